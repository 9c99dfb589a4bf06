"""What is done for a script beyond starting it: looks before the start, and looks while it runs.

`Watcher` acts on files and processes, and answers with events for the machine; `stalled` is pure. Nothing here waits.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Callable

from remuda.node.child import machine
from remuda.node.child.streams import Tee
from remuda.node.claim import CLAIM
from remuda.node.fence import Fence, Previous
from remuda.node.gpu import gpus
from remuda.node.gpu.smoke import NO_CUDA, OK, Smoke
from remuda.node.guard.guard_client import Guarded, Unguarded, node_count, not_guarded
from remuda.node.lease import JobLease, terms
from remuda.node.records import ERRORS, LOG
from remuda.node.script import progress
from remuda.node.script.job_processes import NodeJob
from remuda.node.script.scan import Faults, Scanner, faults_in, root_cause
from remuda.policy.presence import Presence, silence_s
from remuda.wire import exit as codes
from remuda.wire.fault import INFO, NODE, Fault
from remuda.wire.process import identify

if TYPE_CHECKING:
    from remuda.node.child.uptime import LivedTime
    from remuda.node.gpu.smoke import GpuSmokeResult
    from remuda.node.journal import NodeLog
    from remuda.wire.child import ChildSpec, RunWatch

LOOK_S = 1.0
"""Between looks at fence and progress."""
PREVIOUS_LOOK_S = 0.1
LATE_BYTES = 1 << 20
"""Of the end of each log that is looked at again when the script has ended and there was no time for all before."""


def stalled(
    limit_s: float, now: float, started: float, progress_at: float, output_at: float, resumed: float = 0.0
) -> str:
    """Why the script is taken for hung, in one sentence; empty when it is not. Pure.

    Args:
        limit_s: 0 switches this off.
        now: seconds, as all the times.
        started: when the script started.
        progress_at: last change of the progress file, 0 when the script never wrote one.
        output_at: last growth of the output, 0 for none.
        resumed: when this program itself went on after standing still, 0 if it never did.
    """
    if limit_s <= 0:
        return ""
    since = max(started, progress_at or output_at)
    silent_s = silence_s(Presence(lived=now, resumed=resumed), since)
    if silent_s < limit_s:
        return ""
    what = (
        "the progress file did not change" if progress_at else "nothing was printed, and no progress file was written,"
    )
    return f"{what} for {silent_s:.4g} s; {limit_s:.4g} s are allowed"


class Watcher:
    """Looks after one script.

    Args:
        spec: the document; `spec.watch` is set.
        watch: that.
        journal: the node program's log.
        lived: its time, on which all calls are.
    """

    def __init__(self, spec: ChildSpec, watch: RunWatch, journal: NodeLog, lived: LivedTime) -> None:
        self._time = lived
        self.faults = Faults()
        self.reason = ""
        """What it does or has found, for reports."""
        self._spec = spec
        self._watch = watch
        self._journal = journal
        self._dir = Path(spec.run_dir)
        self.progress = progress.ProgressFile(self._dir)
        fence = Path(spec.fence_file) if spec.fence_file else None
        self._fence = Fence(fence, spec.token, self._dir / CLAIM, identify(os.getpid()))
        term = terms(os.environ)
        self._lease = JobLease(term) if term is not None else None
        self._env = {**os.environ, **spec.env}
        self._has_gpus = watch.gpus > 0 or gpus.are_given(self._env)
        self._step: Callable[[float], machine.Event | None] | None = self._wait_for_previous
        self._previous: Previous | None = None
        self._unguarded: Unguarded | None = None
        self._guards: Guarded | None = None
        self._warning = ""
        """Why it runs without its guards."""
        self._smoke: Smoke | None = None
        self._addresses: dict[str, str] = {}
        self._scanners: list[Scanner] = []
        self._tees = self._make_tees() if watch.tee else ()
        self._look_at = 0.0
        self._started = 0.0
        self._printed = (0, 0.0)
        """Bytes, and when they were last more."""
        self._progress_at = 0.0
        self._bad: tuple[float, Fault] | None = None
        """When and what told of broken hardware."""

    @property
    def due(self) -> float:
        """When `turn` is needed next."""
        return min(self._look_at, self._smoke.deadline if self._smoke is not None else float("inf"))

    # --- before the start --------------------------------------------------------------------------------------------

    def turn(self, now: float, *, printed: int = 0, is_warned: bool = False) -> list[machine.Event]:
        """Look at what is due.

        Args:
            now: seconds.
            printed: bytes of output so far.
            is_warned: whether the time limit is near: then nothing is ended for being slow.
        """
        if self._step is not None:
            return self._prepare(now)
        if now < self._look_at:
            return []
        self._look_at = now + LOOK_S
        by = self._fence.broken_by()
        if by:
            return [self._fenced(machine.FencedOff(by))]
        end = self._lease.look() if self._lease is not None else None
        if end is not None:
            return [self._fenced(end)]
        if self._guards is not None:
            self._guards.look()
            if self._guards.must_end:
                return [machine.End(codes.UNGUARDED, self._guards.must_end)]
        if self.progress.look():
            self._progress_at = now
        if printed != self._printed[0]:
            self._printed = (printed, now)
        if not self._started:
            return []
        return self._judge(now, is_warned=is_warned)

    def _prepare(self, now: float) -> list[machine.Event]:
        """Go on with what comes before the start."""
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            by = self._fence.broken_by()
            if by:
                self.cancel()
                return [self._fenced(machine.FencedOff(by))]
        while self._step is not None:
            step = self._step
            event = step(now)
            if event is not None:
                self._step = None
                by = self._fence.broken_by()
                return [self._fenced(machine.FencedOff(by)) if by else event]
            if self._step is step:
                break
        return []

    def _wait_for_previous(self, now: float) -> machine.Event | None:
        if self._spec.previous_dir:
            wait_s = self._watch.previous_wait_s
            self._previous = self._previous or Previous(Path(self._spec.previous_dir), wait_s, now)
            found = self._previous.look(now)
            if found is None:
                self.reason = "waits for the attempt before to end"
                self._look_at = now + PREVIOUS_LOOK_S
                return None
            if found:
                self._journal.say("info", found)
        self.reason = ""
        self._step = self._wait_for_guards_before if self._spec.guard is not None else self._check_gpus
        return None

    def _wait_for_guards_before(self, now: float) -> machine.Event | None:
        """Wherever an earlier attempt ran, nothing of it may write any more."""
        self._unguarded = self._unguarded or Unguarded(self._dir, now)
        nodes = self._unguarded.look(now)
        if nodes:
            self.reason = f"waits until nothing of an earlier attempt is left on {', '.join(nodes)}"
            self._look_at = now + PREVIOUS_LOOK_S
            return None
        self.reason = ""
        nodes_here, guard = node_count(os.environ), self._spec.guard
        self._step = self._check_gpus
        if nodes_here > 1 and guard is not None:
            try:
                beat_s = self._watch.heartbeat_interval_s
                self._guards = Guarded(guard, self._dir, nodes_here, self._journal, now, beat_s=beat_s)
                self._step = self._await_guards
            except OSError as error:
                self._warning = not_guarded(str(error))
                self._journal.say("warning", self._warning)
        return None

    def _await_guards(self, now: float) -> machine.Event | None:
        if self._guards is not None and not self._guards.is_settled(now):
            self.reason = "waits for the guards of its other nodes"
            self._look_at = now + PREVIOUS_LOOK_S
            return None
        self.reason = ""
        self._step = self._check_gpus
        return None

    def _check_gpus(self, now: float) -> machine.Event | None:
        if not self._has_gpus or not self._watch.gpu_check:
            return machine.Start()
        seen = gpus.visible(self._env)
        wrong = gpus.missing(self._watch.gpus, seen)
        if wrong:
            return self._missing(wrong)
        if seen.number is None:
            self._journal.say(
                "info", f"{self._watch.gpus} GPUs were asked for, and no variable tells which are visible"
            )
        try:
            self._smoke = Smoke(self._env, self._watch.gpu_check_timeout_s, now)
        except OSError as error:
            self._journal.say("warning", f"the GPUs are not tested: {error}")
            return machine.Start()
        self.reason = "tests the GPUs"
        self._step = self._await_smoke
        return None

    def _await_smoke(self, now: float) -> machine.Event | None:
        smoke = self._smoke
        if smoke is None:
            return machine.Start()
        if smoke.result is None and now >= smoke.deadline:
            smoke.expire()
        if smoke.result is None:
            return None
        self._smoke = None
        self.reason = ""
        return self._judge_gpus(smoke.result)

    def _judge_gpus(self, result: GpuSmokeResult) -> machine.Event:
        if result.outcome == NO_CUDA:
            self._journal.say("info", f"the GPUs are not tested: {result.error}")
            return machine.Start()
        if result.outcome != OK:
            self.faults.add([gpus.broken_fault(result, time.time())])
            return machine.CannotStart(codes.GPU_BROKEN, result.error)
        wrong = gpus.missing_in(self._watch.gpus, result)
        if wrong:
            return self._missing(wrong)
        self._addresses = result.addresses()
        self._journal.say("info", f"GPUs that work: {len(result.devices)}, tested in {result.seconds:.3g} s")
        return machine.Start()

    def _missing(self, sentence: str) -> machine.Event:
        self.faults.add([gpus.missing_fault(sentence, time.time())])
        return machine.CannotStart(codes.NO_GPU, sentence)

    def reaped(self, pid: int, returncode: int) -> None:
        """A process that is not the child has ended."""
        if self._smoke is not None and pid == self._smoke.process.pid:
            self._smoke.ended(returncode)
            self._look_at = 0.0

    def cancel(self) -> None:
        """Nobody wants to start any more, or what was started has ended."""
        self._step = None
        if self._guards is not None:
            self._guards.dismiss()
        if self._smoke is not None:
            self._smoke.cancel()
            self._smoke = None

    def leave(self) -> None:
        """Wait for those that were dismissed."""
        if self._guards is not None:
            self._guards.leave()

    def _fenced(self, end: machine.FencedOff) -> machine.FencedOff:
        """Another counts, or may soon: steps of the job here are no descendants of this program, and end now."""
        if self._spec.guard is not None:
            NodeJob(os.environ).kill()
        return end

    # --- while it runs -----------------------------------------------------------------------------------------------

    def starts(self, now: float) -> None:
        """The script is about to be started."""
        try:
            progress.install(self._dir)
        except OSError as error:
            self._journal.say("warning", f"the tools for progress are missing: {error}")
        self.progress.begin()
        self.reason = self._warning if self._guards is None else self._guards.warning
        self._started, self._printed, self._progress_at = now, (0, 0.0), 0.0
        self._scanners = [Scanner(self._addresses) for _ in range(2)] if self._watch.scan_log else []

    def took(self, stream: int, data: bytes) -> None:
        """The script printed `data` on its stdout (0) or stderr (1)."""
        if self._tees:
            self._tees[stream].write(data)
        if self._scanners:
            self._note(self._scanners[stream].feed(data))

    def finish(self) -> None:
        """The script has ended: look at its last lines, and at what there was no time for."""
        self.progress.look()
        for scanner, name in zip(self._scanners, (LOG, ERRORS)):
            self._note(scanner.finish())
            if scanner.skipped_bytes:
                self._journal.say("info", f"{scanner.skipped_bytes} bytes of {name} came too fast to be looked at")
                self._note(faults_in(_last_lines(self._dir / name), time.time(), self._addresses))

    def _note(self, found: list[Fault]) -> None:
        for fault in self.faults.note(found, self._journal, has_gpus=self._has_gpus):
            if fault.kind == NODE and self._bad is None:
                self._bad = (self._time.now(), fault)
                self._look_at = 0.0
        worst = root_cause(self.faults.all)
        if worst is not None and worst.kind != INFO:
            self.reason = f"{worst.name}: {worst.line}"

    def _judge(self, now: float, *, is_warned: bool) -> list[machine.Event]:
        """What must be ended now. A script that was told of its time limit saves its work, and is left alone."""
        if is_warned:
            return []
        if self._bad is not None:
            since, fault = self._bad
            grace = self._watch.fault_grace_s
            if now >= since + grace:
                why = f"broken hardware, and the script did not end by itself within {grace:g} s: {fault.line}"
                return [machine.End(codes.NODE_FAULT, why)]
            self._look_at = min(self._look_at, since + grace)
        limit_s, resumed = self._watch.progress_stall_s, self._time.resumed
        why = stalled(limit_s, now, self._started, self._progress_at, self._printed[1], resumed)
        return [machine.End(codes.STALLED, why)] if why else []

    def _make_tees(self) -> tuple[Tee, Tee]:
        out = Tee(1)
        return out, Tee(2) if self._journal.is_apart else out


def _last_lines(path: Path) -> list[bytes]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LATE_BYTES))
            return file.read(LATE_BYTES).split(b"\n")
    except OSError:
        return []

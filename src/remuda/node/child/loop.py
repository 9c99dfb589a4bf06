"""The loop beside one child: waits for whatever comes first, tells the machine, does what it answers, reports."""

from __future__ import annotations

import dataclasses
import errno
import os
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.node import records
from remuda.node.capped import CappedFile
from remuda.node.child import loading, machine, metrics
from remuda.node.child.fetch import Fetch
from remuda.node.child.launch import Launch, NotHere, SecretMissing, node_name, prepare, probe_host, url
from remuda.node.child.owner import PortOwner
from remuda.node.child.ports import ChildPorts, PortTaken, UnsafeDirectory
from remuda.node.child.process import (
    Child,
    adopt_orphans,
    descendants,
    kill_descendants,
    reap,
    spawn,
    sweep,
    terminate_strays,
)
from remuda.node.child.serverlog import ServerLog
from remuda.node.child.signals import ENDING, Signals
from remuda.node.child.streams import Onward, Streams, to_all
from remuda.node.child.uptime import LivedTime
from remuda.node.journal import NodeLog
from remuda.node.recorder.supervisor import ChildRecorder
from remuda.node.script import progress
from remuda.node.script.job_processes import Script
from remuda.node.script.start import as_file
from remuda.node.script.watch import Watcher
from remuda.node.uplink import Uplink
from remuda.wire import exit as codes
from remuda.wire.report import Report

if TYPE_CHECKING:
    from remuda.wire.child import ChildSpec

PROBE_BODY_BYTES = 65536
FAREWELL_S = 0.5  # how long the end waits for the host to take the last report
TERM_RACE_S, WELL_RACE_S = 1.0, 0.2
"""A scheduler that ends everything may reach the script before this program: so long its SIGTERM is waited for, behind
a script that a SIGTERM ended, and behind one that ended with 0, as those do that save their work when they are told."""
MAX_REASON, TAIL_CHARS = 1000, 4000
_PASSING = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY, errno.EINTR)


class ChildSupervisor:
    """Runs the child of one claimed allocation to its end.

    Args:
        spec: the document.
        signals: collector of this process's signals.
        start: how often the scheduler itself has started the allocation again.
    """

    def __init__(self, spec: ChildSpec, signals: Signals, start: int = 0) -> None:
        self.spec = spec
        self.life = machine.Life()
        self._start = start or (0 if spec.away is None else -1)  # a pod is not told how many were there before it
        self._signals = signals
        self._dir = Path(spec.run_dir)
        self._records = records.Records(self._dir, start, spec.away)
        self._journal = NodeLog(self._dir, spec.task, spec.log_level, to_file=bool(spec.watch or spec.away))
        self._time = LivedTime()
        self._now = self._time.now
        self._watch = Watcher(spec, spec.watch, self._journal, self._time) if spec.watch is not None else None
        self._script = Script(os.environ if spec.watch is not None else {})
        self._progress = self._watch.progress if self._watch is not None else progress.Unwatched(self._dir)
        is_scanned = spec.scan_log and spec.watch is None
        self._server = ServerLog(spec, self._journal, self._now) if is_scanned else None
        names = (records.LOG,) if self._watch is None else (records.LOG, records.ERRORS)
        self._logs = tuple(CappedFile(self._dir / name, spec.log_max_bytes) for name in names)
        self._second = CappedFile(Path(spec.copy_to), spec.log_max_bytes, 0o644) if spec.copy_to else None
        self._onward = Onward() if spec.away is not None else self._second
        self._uplink = Uplink(spec.host_file, self._records.key_file, spec.token)
        self._ports = ChildPorts(spec)
        self._cleanup = adopt_orphans()
        self._recorded = ChildRecorder(spec, self._journal)
        self._child: Child | None = None
        self._child_code: int | None = None
        """Of the child, as long as what it left behind may still end in peace."""
        self._ended_at = 0.0
        self._started_at = 0.0
        self._ran_s = 0.0
        self._output: Streams | None = None
        self._probe: Fetch | None = None
        self._scrape: Fetch | None = None
        self._launch: Launch | None = None
        self._address = ""
        self._owner = PortOwner(descendants, is_watched=not spec.outside)
        self._seq = self._records.last_seq() if start else 0
        self._is_fenced = False
        self._told: tuple[object, ...] = ()
        self._heartbeat = 0.0
        self._metrics: dict[str, float] = {}
        self._scraped_at = 0.0
        self._line = loading.LastLine()
        self._whole_at = 0.0
        """When the next report is due that goes into the files, too."""
        self._tail = ""
        self._code = codes.BROKEN

    def run(self) -> int:
        """Supervise until the end; the program's exit code."""
        try:
            for log in self._logs:
                log.append(b"")  # it is there from the beginning, for those who follow it
            if self._watch is None:
                self._handle(machine.Start())
            else:
                self._beat(self._now())
                self._look()
            while self.life.phase != machine.EXITED:
                self._wait()
                self._turn()
            reason = self.life.reason
        except Exception as error:  # noqa: BLE001 - the edge: a bug must not leave a child without a supervisor
            self._code = codes.NO_ROOM if codes.is_full(error) else codes.BROKEN
            import traceback

            reason = f"the disk is full: {error}" if codes.is_full(error) else traceback.format_exc()
            self.life = dataclasses.replace(self.life, phase=machine.EXITED, reason=reason.rstrip().splitlines()[-1])
            kill_descendants()
        self._farewell(reason)
        return self._code

    # --- waiting -----------------------------------------------------------------------------------------------------

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self._signals.fd, select.POLLIN)
        deadlines = [machine.due(self.spec, self.life), self._heartbeat, self._uplink.due]
        if self._output is not None:
            deadlines.append(self._output.wait_for(poll, self._now()))
        if self._watch is not None:
            deadlines.append(self._watch.due)
        if self._child_code is not None and not self._may_linger:
            deadlines.append(self._ended_at + self._race_s(self._child_code))
        for fetch in (self._probe, self._scrape):
            if fetch is not None:
                poll.register(fetch.socket, fetch.events)
        if self._uplink.socket is not None:
            poll.register(self._uplink.socket, self._uplink.events)
        deadlines += [fetch.deadline for fetch in (self._probe, self._scrape) if fetch is not None]
        self._time.wait(poll, min(deadlines), in_steps=self.life.in_grace)

    def _turn(self) -> None:
        for number in self._signals.take():
            if number in ENDING:
                self._handle(machine.Stop(f"asked to end by {signal.Signals(number).name}"))
            elif number == signal.SIGUSR1 and self.spec.watch is not None:
                self._warn(self.spec.watch.warn_number())
            elif self._child is not None:
                self._child.signal_group(number)
        if self._output is not None:
            self._output.pump(self._now())
        self._reap()
        self._look()
        self._advance_probe()
        self._advance_scrape()
        now = self._now()
        if now >= machine.due(self.spec, self.life):
            self._handle(machine.Tick())
        if now >= self._heartbeat:
            self._beat(now)
        self._uplink.advance(now)

    def _look(self) -> None:
        """Let the watcher look, and tell the machine what it sees."""
        if self._watch is None or self.life.phase == machine.EXITED:
            return
        printed = self._output.total_bytes if self._output is not None else 0
        for event in self._watch.turn(self._now(), printed=printed, is_warned=self.life.warned):
            if isinstance(event, machine.FencedOff) and event.code == codes.FENCED:
                self._is_fenced = True
                self._records.mute()
                for log in self._logs:
                    log.is_mute = True
            self._handle(event)
        if self.life.phase != machine.EXITED:
            self._report(beat=False)

    def _warn(self, number: int) -> None:
        """Tell the script, once, that its time limit is near."""
        if self.life.warned:
            return
        self._journal.say("info", "its time limit is near")
        self._handle(machine.Warned())
        if number and self._child is not None and self.life.phase in machine.RUNNING:
            self._script.tell(self._child, number)

    # --- acting ------------------------------------------------------------------------------------------------------

    def _handle(self, event: machine.Event) -> None:
        """Tell the machine, do what it says and tell it how that went, until nothing is left; then report changes."""
        events = [event]
        while events:
            self.life, actions = machine.step(self.spec, self.life, events.pop(0), self._now())
            for action in actions:
                answer = self._act(action)
                if answer is not None:
                    events.append(answer)
        if self.life.phase not in machine.RUNNING:
            self._drop_fetches()
        if self.life.phase != machine.EXITED:  # that is told when the exit record is in place
            self._report(beat=False)

    def _act(self, action: machine.Action) -> machine.Event | None:
        if isinstance(action, machine.Spawn):
            return self._spawn(action)
        if isinstance(action, machine.AskHealth):
            return self._ask()
        if isinstance(action, machine.Sample):
            return self._sample()
        if isinstance(action, machine.Finish):
            self._code = action.code
        elif self._child is not None:
            if isinstance(action, machine.Kill):
                self._child.signal_group(signal.SIGKILL)
                kill_descendants()
            else:
                self._script.tell(self._child, signal.SIGTERM)
                self._child.signal_group(signal.SIGCONT)  # one that is suspended could not end
        return None

    def _spawn(self, action: machine.Spawn) -> machine.Event:
        try:
            self._ports.choose(move=action.move_port)
            self._launch = prepare(self.spec, self._ports.port, os.environ, self._ports.named)
        except PortTaken as error:
            return machine.CannotStart(codes.PORT_TAKEN, str(error))
        except (NotHere, SecretMissing, UnsafeDirectory) as error:
            return machine.CannotStart(codes.CANNOT_START, str(error))
        except OSError as error:
            return machine.CannotStart(codes.CANNOT_START, f"cannot choose a port on {self.spec.bind_host}: {error}")
        self._address = url(self.spec, self._ports.port)
        self._owner = PortOwner(descendants, is_watched=not self.spec.outside)
        self._metrics, self._scraped_at = {}, 0.0
        looks = self._watch or self._server
        if looks is not None:
            looks.starts(self._now())
        taken = to_all(
            looks.took if looks is not None else None, self._onward.take if self._onward is not None else None
        )
        streams = Streams(self._logs, self._launch.secrets, taken)
        ends = (streams.stdout, streams.stderr)
        try:
            started = self._launch if self._watch is None else as_file(self._launch, self.spec.cwd, self._journal)
            self._child = spawn(started, self.spec.cwd, self.spec.stdin_file, ends, self._cleanup)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            streams.finish()
            reason = f"cannot start {self._launch.argv[0]!r}: {error}"
            if getattr(error, "errno", None) in _PASSING:
                return machine.SpawnFailed(reason)
            return machine.CannotStart(codes.CANNOT_START, reason)
        streams.close_writers()
        self._recorded.starts(self._launch.env)
        self._output = streams
        self._started_at = self._now()
        return machine.Spawned()

    def _reap(self) -> None:
        for pid, code in reap():
            if self._child is not None and pid == self._child.pid:
                self._child.ended(code)
                self._child_code = code
                self._ended_at = self._now()
                if self.life.in_grace:
                    terminate_strays(self._child, self._script.sruns())
            elif self._watch is not None:
                self._watch.reaped(pid, code)
        # A shell ends at once when it is told to; what it started may still be saving its work. Orphans come to us,
        # so the end of the last one is a signal too.
        if self._child_code is not None and self._is_over(self._child_code):
            self._end(self._child_code)

    @property
    def _may_linger(self) -> bool:
        """Whether what the child leaves behind may end in peace: it was told to end, or of its time limit."""
        return self.life.in_grace or (self.life.warned and self.life.phase in machine.RUNNING and self._child_code != 0)

    def _is_over(self, code: int) -> bool:
        """Whether nothing more is to be waited for after the end of the child itself."""
        if self._may_linger:
            return not descendants()
        return self._now() >= self._ended_at + self._race_s(code)

    def _race_s(self, code: int) -> float:
        """For how long the signal that made the child end so may still be on its way to this program."""
        if self._watch is None or self.life.phase not in machine.RUNNING:
            return 0.0
        by_term = code in (-signal.SIGTERM, 128 + signal.SIGTERM)
        return TERM_RACE_S if by_term else WELL_RACE_S if code == 0 else 0.0

    def _end(self, code: int) -> None:
        child, output = self._child, self._output
        if child is None or output is None:
            return
        self._ran_s = self._now() - self._started_at
        sweep(child)
        output.finish()
        unfinished = False
        if self._watch is not None:
            self._watch.finish()
            unfinished = self._watch.progress.is_unfinished
        self._end_if_broken()
        self._tail = output.tail(TAIL_CHARS)
        taken = self.spec.listens() and not self._owner.was_ours and output.says_port_taken()
        self._child = self._output = self._child_code = None
        why = records.take_why(self._dir) if self.spec.spread is not None else ""
        why = why or (loading.last_line(self._tail) if code > 0 and self._watch is None else "")
        self._handle(machine.Ended(code if code >= 0 else None, max(-code, 0), taken, unfinished, why))

    def _end_if_broken(self, *, ill: bool = False) -> None:
        """Give up at once where the hardware is broken: it would be the same again."""
        broken = self._server.broken(self._now(), ill=ill) if self._server is not None else ""
        if broken:
            self._handle(machine.End(codes.NODE_FAULT, f"broken hardware: {broken}"))

    def _sample(self) -> machine.Activity:
        seen = {} if self.spec.outside else descendants()
        # Where the system does not tell, CPU time is taken to pass: then only the start-up limit counts.
        cpu_s = sum(seen.values()) if seen else self._now()
        return machine.Activity(self._output.total_bytes if self._output is not None else 0, cpu_s)

    # --- asking ------------------------------------------------------------------------------------------------------

    def _fetch(self, path: str, max_bytes: int) -> Fetch:
        probe = self.spec.probe
        timeout_s = probe.timeout_s if probe is not None else 2.0
        bearer = self._launch.bearer if self._launch is not None else ""
        host = probe_host(self.spec.bind_host)
        deadline = self._now() + timeout_s
        asks = not self.spec.outside
        return Fetch(host, self._ports.port, path, deadline, max_bytes=max_bytes, bearer=bearer, asks_who=asks)

    def _ask(self) -> machine.Event | None:
        if self._probe is not None:
            self._probe.close()
        path = self.spec.probe.path if self.spec.probe is not None else "/"
        try:
            self._probe = self._fetch(path, PROBE_BODY_BYTES)
        except OSError as error:
            self._probe = None
            return machine.Probed(0, f"cannot ask it: {error}")
        return None

    def _advance_probe(self) -> None:
        fetch = self._probe
        if fetch is None or not fetch.advance(self._now()):
            return
        fetch.close()
        self._probe = None
        error, path = fetch.error, self.spec.probe.path if self.spec.probe is not None else ""
        if not error and path and not 200 <= fetch.status < 300:
            error = f"answers with HTTP status {fetch.status}"
        error = error or self._owner.why_not(probe_host(self.spec.bind_host), self._ports.port)
        self._journal.say("debug", f"probe: {error or fetch.status}")
        if not error and self._server is not None:
            self._server.answered(self._now())
        dead = f"printed «{self._server.fatal}»" if error and self._server is not None and self._server.fatal else ""
        self._handle(machine.Probed(fetch.status, dead or error, bool(dead)))
        if error:
            self._end_if_broken(ill=True)

    def _advance_scrape(self) -> None:
        fetch = self._scrape
        if fetch is None or not fetch.advance(self._now()):
            return
        fetch.close()
        self._scrape = None
        if not fetch.error and fetch.status == 200:
            now = self._now()
            elapsed_s = now - self._scraped_at if self._scraped_at else 0.0
            self._metrics = metrics.with_rates(metrics.parse(fetch.body), self._metrics, elapsed_s)
            self._scraped_at = now
        self._report(beat=True)

    def _drop_fetches(self) -> None:
        for fetch in (self._probe, self._scrape):
            if fetch is not None:
                fetch.close()
        self._probe = self._scrape = None

    # --- reporting ---------------------------------------------------------------------------------------------------

    def _beat(self, now: float) -> None:
        self._heartbeat = now + self._pace_s
        if self._watch is not None:
            self._records.heartbeat(time.time())
        if now < self._whole_at:
            self._report(beat=True, to_files=False)
            return
        if self.spec.metrics_path and self.life.phase == machine.READY and self._ports.port:
            try:
                self._scrape = self._scrape or self._fetch(self.spec.metrics_path, metrics.MAX_BYTES)
            except OSError:
                self._report(beat=True)
        else:
            self._report(beat=True)

    @property
    def _pace_s(self) -> float:
        watch = self.spec.watch
        pace = self.spec.beat_s if watch is None else watch.heartbeat_interval_s
        return max(min(pace or self.spec.report_every_s, self.spec.report_every_s), 0.05)

    def _report(self, *, beat: bool, to_files: bool = True) -> None:
        """Report if something changed, or if it is time. What only says that it lives need not go `to_files`."""
        if self._is_fenced:
            return
        life, reason = self.life, self.life.reason
        numbers = {**self._metrics, **self._progress.numbers}
        if self._watch is not None:
            reason = reason or self._watch.reason
        elif life.phase == machine.STARTING:
            line = self._line.of(self._output, self._now())
            reason = loading.words(reason, line, life.used, self.spec.restart.max_restarts)
        elif life.phase == machine.READY and self.spec.spread is not None:
            reason = reason or records.warning(self._dir)
        pid = self._child.pid if self._child is not None else 0
        event = (life.state, pid, life.restarts)
        facts = (*event, reason, life.http_status, self._address)
        if facts == self._told and not beat:
            return
        changed, self._told = event != self._told[:3], facts
        self._seq += 1
        now = self._now()
        report = Report(
            token=self.spec.token,
            attempt=self.spec.attempt,
            seq=self._seq,
            at=time.time(),
            state=life.state,
            node=node_name(os.environ),
            url=self._address,
            pid=pid,
            http_status=life.http_status,
            restarts=life.restarts,
            exit_code=life.exit_code,
            signal=life.signal,
            start=self._start,
            reason=reason[:MAX_REASON],
            metrics=numbers,
            ports=self._ports.named,
            **self._recorded.look(now),
        )
        if changed:
            well = life.state in ("starting", "ready", "stopping", "exited")
            text = f"{life.state}, pid {pid}, restarts {life.restarts}: {reason}"
            self._journal.say("info" if well else "warning", text)
        if to_files or changed:
            self._records.report(report, changed=changed)
            self._whole_at = now + self.spec.report_every_s if self.spec.beat_s else 0.0
        self._uplink.tell(report.to_json(), now)
        if self._watch is None:
            self._heartbeat = now + self._pace_s
            if changed and life.phase == machine.READY and self.spec.metrics_path:
                self._heartbeat = self._whole_at = now  # its numbers are wanted at once

    def _farewell(self, reason: str) -> None:
        """Last word: into the run directory so that it lasts, and to the host if it listens."""
        looks = self._watch or self._server
        record = codes.ExitRecord(
            token=self.spec.token,
            attempt=self.spec.attempt,
            code=self._code,
            at=time.time(),
            child_exit_code=self.life.exit_code,
            child_signal=self.life.signal,
            reason=reason,
            log_tail=self._tail,
            faults=[fault.to_dict() for fault in looks.faults.all] if looks is not None else [],
            ran_s=round(self._ran_s, 3),
            metrics=self._progress.last(),
        )
        if self._watch is not None:
            self._watch.cancel()
        self._records.exit(record)
        self._recorded.end()
        if self._watch is not None:
            self._watch.leave()
        self._report(beat=True)
        for log in (*self._logs, *((self._second,) if self._second is not None else ())):
            log.close()
        self._ports.release()
        self._uplink.finish(FAREWELL_S, self._now)

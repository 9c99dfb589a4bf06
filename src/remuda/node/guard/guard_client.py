"""The node program's side of the guards: starts the guardroom, notes who is there and who is lost, and dismisses it.

Also what a new attempt knows of the guards of those before it, see `Unguarded`.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import TYPE_CHECKING

from remuda.node.child.process import adopt_orphans, spare
from remuda.node.guard import member_line
from remuda.node.guard.guard import GUARDS
from remuda.node.records import HEARTBEAT
from remuda.wire.guard import ENDS_WITHIN_S

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from remuda.node.journal import NodeLog
    from remuda.wire.guard import Guard

DISMISS_S = 8.0


def node_count(environ: Mapping[str, str]) -> int:
    """Nodes of the job, 1 where nobody says."""
    text = environ.get("SLURM_JOB_NUM_NODES") or environ.get("SLURM_NNODES") or ""
    return int(text) if text.isdigit() else 1


def not_guarded(why: str) -> str:
    """What the user of a run should know that has not all of its guards."""
    return f"not all of its nodes are guarded ({why}): behind a cut cable they may write on beside a new attempt"


class Guarded:
    """The guards of the other nodes, as the node program sees them.

    Args:
        guard: of the document.
        folder: run directory.
        nodes: of the job, two or more.
        beat_s: between two heartbeats of this program.
        journal: the node program's log.
        now: monotonic seconds.

    Raises:
        OSError: the guardroom cannot be started.
    """

    def __init__(self, guard: Guard, folder: Path, nodes: int, journal: NodeLog, now: float, *, beat_s: float) -> None:
        self._folder, self._journal = folder / GUARDS, journal
        # From the last sign of this node on; it may have lived for one more beat.
        self._within_s = guard.silence_s + ENDS_WITHIN_S + beat_s
        self._others = nodes - 1
        self._seen: set[str] = set()
        """Nodes whose guard has called."""
        self._meet_s, self._until = guard.meet_s, now + guard.meet_s
        self.warning = ""
        """What the user should know although the script runs; empty: all of its nodes are guarded."""
        self.must_end = ""
        """Why the job must end as long as its nodes can be reached; empty: it need not."""
        self._is_dismissed = False
        self._folder.mkdir(mode=0o700, exist_ok=True)
        for old in self._folder.iterdir():  # of an earlier start in this directory, which is over
            old.unlink()
        argv = [*guard.launcher, "guardroom", str(folder), str(nodes)]
        self._process = member_line.start(argv, {}, adopt_orphans(), own_group=True, pipe=True)
        spare(self._process.pid)
        self._pipe = -1 if self._process.stdout is None else self._process.stdout.fileno()
        os.set_blocking(self._pipe, False)
        self._buffer = b""

    def is_settled(self, now: float) -> bool:
        """Whether the start need not wait any longer: all are there, or they cannot be had."""
        self.look()
        missing = self._others - len(self._seen)
        if missing <= 0 or self._pipe < 0:
            return True
        if now < self._until:
            return False
        self._warn(f"those of {missing} of them have not come within {self._meet_s:g} s")
        return True

    def look(self) -> None:
        """Take in what the guardroom says."""
        while self._pipe >= 0:
            try:
                data = os.read(self._pipe, 65536)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._pipe = -1
                self._take({"gone": ""})
                return
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            for line in lines:
                self._take(json.loads(line))

    def _take(self, told: dict[str, str]) -> None:
        if "here" in told:
            node = told["here"]
            if node in self._seen:
                self._journal.say("info", f"node {node} is guarded again")
            self._seen.add(node)
            for what in ("ended", "lost"):  # of the one before
                with contextlib.suppress(OSError):
                    (self._folder / f"{node}.{what}").unlink()
            self._note(node, "here")
        elif "lost" in told:
            self._journal.say("warning", f"node {told['lost']} is lost: {told['why']}")
            self._note(told["lost"], "lost")
        elif "died" in told:
            self._journal.say("warning", f"the guard of node {told['died']} died")
        elif "unguarded" in told:
            self.must_end = f"node {told['unguarded']} is not guarded any more, because its guard died: {told['why']}"
        elif "failed" in told:
            self._warn(told["failed"])
        elif not self._is_dismissed and not self.warning:
            if self._seen:
                self.must_end = "what kept the lines to the guards has ended, so they end what runs on the other nodes"
            else:
                self._warn("what starts the guards has ended")

    def _warn(self, why: str) -> None:
        self.warning = not_guarded(why)
        self._journal.say("warning", self.warning)

    def _note(self, node: str, what: str) -> None:
        with contextlib.suppress(OSError):
            (self._folder / f"{node}.{what}").write_text(f"{self._within_s}\n", encoding="utf-8")

    def dismiss(self) -> None:
        """The job is over: the guards are to end what is left on their nodes."""
        self._is_dismissed = True
        self._process.terminate()

    def leave(self) -> None:
        """Wait until they have said that they did."""
        self.dismiss()
        until = time.monotonic() + DISMISS_S
        while self._process.poll() is None and time.monotonic() < until:
            self.look()
            time.sleep(0.02)
        self._process.kill()
        self._process.wait()


class Unguarded:
    """Guards of earlier attempts that have not said that nothing is left on their node: so long this one waits.

    Whether one has had its time is told by the times of files on one file system, so that no two clocks are compared.

    Args:
        folder: run directory of this attempt, whose own guards are not there yet.
        now: seconds, on the clock that `look` is asked with.
    """

    def __init__(self, folder: Path, now: float) -> None:
        self._open: dict[Path, float] = {}
        uid = folder.name.rpartition("-")[2]
        clock = folder / ".now"
        with contextlib.suppress(OSError):
            clock.write_bytes(b"")
            here = clock.stat().st_mtime
            for here_file in folder.parent.glob(f"attempt-*-{uid}/{GUARDS}/*.here"):
                wait_s = _left_s(here_file, here)
                if wait_s > 0:
                    self._open[here_file.with_suffix(".ended")] = now + wait_s

    def look(self, now: float) -> list[str]:
        """Names of the nodes that are waited for."""
        self._open = {path: until for path, until in self._open.items() if now < until and not path.exists()}
        return sorted(path.stem for path in self._open)


def _left_s(here: Path, now: float) -> float:
    """Seconds until the guard that came here has surely ended everything; `now` on the file system's clock."""
    if here.with_suffix(".ended").exists():
        return 0.0
    attempt = here.parent.parent
    since = max((when for path in (attempt / HEARTBEAT, here) if (when := _time(path)) is not None), default=now)
    for path in (here.with_suffix(".lost"), attempt / "exit.json"):
        when = _time(path)
        if when is not None:
            since = when
            break
    try:
        within_s = float(here.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        within_s = 60.0 + ENDS_WITHIN_S
    return min(within_s, within_s - (now - since))


def _time(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None

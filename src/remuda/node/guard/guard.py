"""The fence of every node of a job but the first: ends what runs there when the first node is lost, or is history.

The first node's fence is the node program itself. It tells the others over a line through `guard_server`; who hears
nothing on it for a while looks by himself whether another allocation counts, and ends everything when that lasts.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.node.child.launch import node_name
from remuda.node.child.signals import ENDING, Signals
from remuda.node.claim import CLAIM
from remuda.node.fence import Fence
from remuda.node.guard import member_line
from remuda.node.guard.door import call
from remuda.node.journal import NodeLog
from remuda.node.recorder.supervisor import ChildRecorder
from remuda.node.script.job_processes import NodeJob
from remuda.wire.child import ChildSpec
from remuda.wire.process import ProcessId

if TYPE_CHECKING:
    from collections.abc import Callable

GUARDS = "guards"
"""Directory in the run directory: `NODE.here`, `NODE.lost`, `NODE.ended`."""
MEETING = "guards.json"
"""In the run directory, readable for its owner only: where the first node listens, the key, and who counts there."""
WORRY_S = 8.0
"""A silence after which a guard looks at the fence file by itself. Not earlier: a thousand guards would keep the file
system busy."""
GAP_S = 10.0
"""This program itself stood still for so long: then silence says nothing of the others."""


def main(arguments: list[str]) -> int:
    """`guard RUN_DIR`: 0 when nothing of the job is left on this node."""
    folder = Path(arguments[0])
    signals = Signals()  # what ends the job tells its steps first; they may be saving their work, so this one stays
    spec = ChildSpec.from_json((folder / "child.json").read_text(encoding="utf-8"))
    found = meet(folder)
    if found is None or spec.guard is None:
        sys.stderr.write("remuda-node: guard: the first node does not answer\n")
        return 1
    line, own = found
    name = node_name(os.environ)
    recorder = ChildRecorder(spec, NodeLog(folder, f"guard on {name}:", "info", to_file=False), name)
    recorder.starts({**os.environ, **spec.env})
    fence = Fence(Path(spec.fence_file) if spec.fence_file else None, spec.token, folder / CLAIM, own)
    job = NodeJob(os.environ)
    ended = EndNotice(folder / GUARDS / f"{name}.ended", job)
    watch = FirstNodeWatch(line, FenceWatch(fence), spec.guard.silence_s)
    why = watch.until_it_ends(signals, ended, lambda: recorder.look(time.time()))
    left = job.kill()
    recorder.end()  # before this is told: with the last guard the job ends, and all that is left of it
    if not left:
        ended.say(why)
    line.say({"ended": name, "left": len(left)})
    line.close()
    with contextlib.suppress(OSError):  # nobody may be left to read it
        sys.stderr.write(f"remuda-node: guard on {name}: {why}; {len(left)} processes of the job are left\n")
        sys.stderr.flush()
    return 1 if left else 0


class EndNotice:
    """Says in a file that nothing of the job is left on this node, for whoever comes after it.

    What the scheduler ends, it ends with this program; so once it has told that it will, this is said as soon as it is
    true, and taken back if it should not stay so.
    """

    def __init__(self, path: Path, job: NodeJob) -> None:
        self._path, self._job = path, job
        self._is_said = False

    def say(self, why: str) -> None:
        """It is true now."""
        self._is_said = True
        with contextlib.suppress(OSError):
            self._path.write_text(f"{why}\n", encoding="utf-8")

    def look(self) -> None:
        """See whether it is true."""
        is_true = not self._job.processes()
        if is_true and not self._is_said:
            self.say("the scheduler ends the job")
        elif not is_true and self._is_said:
            self._is_said = False
            with contextlib.suppress(OSError):
                self._path.unlink()


class FenceWatch:
    """Looks at files beside the loop: where the cable is cut, a look may never come back."""

    def __init__(self, fence: Fence) -> None:
        self.broken_by = ""
        self._fence = fence
        self._asked = threading.Event()
        threading.Thread(target=self._look, daemon=True).start()

    def ask(self) -> None:
        """Look once more; the answer comes when it comes."""
        self._asked.set()

    def _look(self) -> None:
        while True:
            self._asked.wait()
            self._asked.clear()
            self.broken_by = self._fence.broken_by() or self.broken_by


class FirstNodeWatch:
    """Listens to the first node.

    Args:
        line: to it.
        fence: at the fence.
        silence_s: longest silence that is borne.
    """

    def __init__(self, line: member_line.MemberLine, fence: FenceWatch, silence_s: float) -> None:
        self._line, self._fence, self._silence_s = line, fence, silence_s
        self._said_at = self._turned_at = time.monotonic()

    def until_it_ends(self, signals: Signals, ended: EndNotice, each: Callable[[], object] = lambda: None) -> str:
        """Why what runs on this node must end, in a sentence; `each` is called about once a second."""
        is_told = False
        while True:
            signals.wait(100 if is_told else 1000, self._line.socket.fileno())
            is_told = is_told or any(number in ENDING for number in signals.take())
            if is_told:
                ended.look()
            each()
            why = self.turn(time.monotonic())
            if why:
                return why

    def turn(self, now: float) -> str:
        """Look at everything once; why it must end, empty while it need not."""
        line = self._line
        told = line.hear()
        if any("end" in message for message in told):
            return "the first node says so"
        if not line.is_open:
            return "the first node has gone"
        if now - self._turned_at > GAP_S:
            line.heard_at = max(line.heard_at, now)
        self._turned_at = now
        silent_s = now - line.heard_at
        if silent_s > WORRY_S:
            self._fence.ask()
            if self._fence.broken_by:
                return self._fence.broken_by
        if silent_s > self._silence_s:
            return f"nothing was heard of the first node for {silent_s:.0f} s"
        if now - self._said_at >= member_line.BEAT_S:
            self._said_at = now
            line.say({})
        return ""


def meet(folder: Path) -> tuple[member_line.MemberLine, ProcessId] | None:
    """The line to the first node and the process that counts there; None when it cannot be had."""
    met = call(folder / MEETING)
    return (met[0], ProcessId(**met[1]["process"])) if met is not None else None

"""What runs on each node of a replica but the first: asks the first one what to run, runs it, and ends with it."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda.node.child import scratch
from remuda.node.child.launch import NotHere
from remuda.node.child.ports import PortClaim, PortTaken, UnsafeDirectory
from remuda.node.child.process import adopt_orphans
from remuda.node.child.signals import ENDING, Signals
from remuda.node.guard import member_line
from remuda.node.guard.door import call
from remuda.wire.child import PORT_MARK
from remuda.wire.spread import OWN_MARK, SCRATCH_MARK

if TYPE_CHECKING:
    import subprocess

    from remuda.node.child.process import Cleanup

GRACE_S = 5.0


def main(arguments: list[str]) -> int:
    """`member RUN_DIR`: exit code of what was run, 1 when the first node has gone."""
    signals, cleanup = Signals(), adopt_orphans()
    line = meet(Path(arguments[0]))
    if line is None:
        return _say("the first node does not answer")
    child: subprocess.Popen[bytes] | None = None
    folder = ""
    try:
        while line.is_open:
            signals.wait(500, line.socket.fileno())
            for message in line.hear():
                if "argv" in message and child is None:
                    folder = scratch.share(str(message.get("scratch", "")), message["argv"])
                    child = _run(message, line, cleanup)
            if any(number in ENDING for number in signals.take()):
                return _say("asked to end")
            if child is not None and child.poll() is not None:
                code = member_line.code_of(child)
                line.say({"ended": code})
                return code or 1
            line.beat(time.monotonic())
    except (OSError, NotHere, PortTaken, UnsafeDirectory) as error:
        line.say({"ended": 127, "why": str(error)})
        return _say(str(error))
    finally:
        member_line.end([child] if child is not None else [], GRACE_S)
        line.close()
        scratch.remove(folder)
    return _say("the first node has gone")


def meet(folder: Path) -> member_line.MemberLine | None:
    """The line to the first node; None when it cannot be had."""
    met = call(folder / member_line.MEETING, rank=int(os.environ.get("SLURM_PROCID", "0")) + 1)
    return met[0] if met is not None else None


def _run(message: dict[str, Any], line: member_line.MemberLine, cleanup: Cleanup) -> subprocess.Popen[bytes]:
    own = str(line.socket.getsockname()[0])
    marks = {OWN_MARK: own, SCRATCH_MARK: str(message.get("scratch", ""))}
    if any(PORT_MARK in word for word in message["argv"]):
        # The server listens on the first node only, but the engine's words are the same on each.
        marks[PORT_MARK] = str(PortClaim(None, "0.0.0.0").take_free(0, f"{own} {os.getpid()}"))  # noqa: S104
    return member_line.start(member_line.filled(message["argv"], marks), message["env"], cleanup, own_group=True)


def _say(what: str) -> int:
    sys.stderr.write(f"remuda-node: member on {os.uname().nodename}: {what}\n")
    return 1

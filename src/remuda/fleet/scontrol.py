"""What the head says to its own slurmctld about one node. Each call runs a command: call them in a thread."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.base.errors import BackendUnreachable, Rejected

if TYPE_CHECKING:
    from remuda.fleet.daemons import Controller

_STATE = re.compile(r"\bState=(\S+)")
_BUSY = re.compile(r"ALLOCATED|MIXED|COMPLETING|DRAINING")
_RECORDER = re.compile(r"^(\d+) \S+\.recorder_\d+\.\d+\.\d+\.[^\s.]+$", re.MULTILINE)
"""A line of squeue: the job of a recorder, by its token. No service has `_` in its name."""
LEAVES = "leaves the fleet"
"""Why a node that its machine wants back is drained."""
LOST = "somebody says that it is off"


@dataclass(frozen=True)
class SlurmNode:
    """A node as slurmctld has it."""

    state: str
    """As Slurm writes it, `IDLE+DRAIN+DYNAMIC_NORM`; empty: it has none of that name."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing runs there."""
        return _BUSY.search(self.state) is None

    @property
    def is_closed(self) -> bool:
        """Whether it gets nothing new."""
        return not self.state or "DRAIN" in self.state or "DOWN" in self.state


def look(controller: Controller, name: str) -> SlurmNode:
    """What slurmctld says of a node.

    Raises:
        BackendUnreachable: it does not answer.
    """
    try:
        return seen(_run(controller, "show", "node", name, "--oneliner"))
    except Rejected:
        return SlurmNode("")


def seen(text: str) -> SlurmNode:
    """A line of `scontrol show node --oneliner`. Pure."""
    found = _STATE.search(text)
    return SlurmNode(found[1] if found else "")


def closed(controller: Controller) -> dict[str, str]:
    """Nodes that get no work, and why in Slurm's words; errors as `look`."""
    if not controller.answers():
        raise BackendUnreachable("the fleet's controller does not answer")
    lines = controller.ask(
        "sinfo", "-h", "-N", "-t", "down,drain,fail,no_respond", "-o", "%N|%T|%E"
    ).stdout.splitlines()
    return {
        name: f"{state}: {why}" for name, state, why in (line.split("|", 2) for line in lines if line.count("|") > 1)
    }


def put(controller: Controller, name: str, state: str, reason: str = "") -> None:
    """A node in `drain` gets nothing new, until `resume`; in `down` what runs there ends, and has failed with its node.

    Raises:
        Rejected: there is no such node.
        BackendUnreachable: no answer.
    """
    _run(controller, "update", f"nodename={name}", f"state={state}", *([f"reason={reason}"] if reason else []))


def end_recorders(controller: Controller, name: str) -> None:
    """A recording lasts until it is stopped: a node that leaves does not wait for that."""
    if jobs := _RECORDER.findall(controller.ask("squeue", "-h", "-w", name, "-o", "%i %j").stdout):
        controller.ask("scancel", *jobs)


def delete(controller: Controller, name: str) -> None:
    """Forget a node; errors as `put`, and while something runs there."""
    _run(controller, "delete", f"nodename={name}")


def _run(controller: Controller, *words: str) -> str:
    if not controller.answers():
        raise BackendUnreachable("the fleet's controller does not answer")
    done = controller.ask("scontrol", *words)
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["it said nothing"]
        raise Rejected(f"scontrol {words[0]}: {said[-1]}")
    return done.stdout

"""Why an allocation ended, classified once from what was seen. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from remuda.backends.base import CHILD_ENDED, Life, Observed
from remuda.supervise.model import Cause
from remuda.wire import exit as node_exit


@dataclass(frozen=True, slots=True)
class Verdict:
    """Cause of an end, and what follows from it."""

    cause: Cause
    reason: str
    """One sentence, with the values."""
    success: bool = False
    """The child ended by itself with code 0."""
    permanent: bool = False
    """Trying again cannot help; the task is given up at once."""
    counts: bool = True
    """It uses up one of the task's failures."""


_NODE_CODES = {
    node_exit.GAVE_UP: Cause.APPLICATION,
    node_exit.HUNG: Cause.APPLICATION,
    node_exit.PORT_TAKEN: Cause.NODE,
    node_exit.CANNOT_START: Cause.USER,
    node_exit.BAD_SPEC: Cause.UNKNOWN,
    node_exit.BROKEN: Cause.UNKNOWN,
    node_exit.FENCED: Cause.UNKNOWN,
}
_PERMANENT = frozenset({node_exit.CANNOT_START, node_exit.BAD_SPEC})


def classify(seen: Observed) -> Verdict:
    """Say why `seen`, which ENDED or is GONE, is no more."""
    if seen.life is Life.GONE:
        return Verdict(Cause.UNKNOWN, seen.reason or "the backend does not know the allocation any more")
    code = seen.exit_code
    if code == 0:
        return Verdict(Cause.NONE, seen.reason or "ended with exit code 0", success=True)
    if code in _NODE_CODES and seen.native_state != CHILD_ENDED:
        reason = seen.reason or node_exit.meaning(code)
        return Verdict(_NODE_CODES[code], reason, permanent=code in _PERMANENT)
    if code == node_exit.STOPPED and seen.native_state != CHILD_ENDED:
        return Verdict(Cause.USER, seen.reason or "was asked to stop by somebody else", counts=False)
    if seen.native_state == "rebooted":
        return Verdict(Cause.NODE, seen.reason or "the machine was restarted", counts=False)
    if seen.signal and code is None:
        return Verdict(Cause.UNKNOWN, seen.reason or f"was killed by signal {seen.signal}")
    if code is None:
        return Verdict(Cause.UNKNOWN, seen.reason or "ended without leaving an exit code")
    return Verdict(Cause.APPLICATION, seen.reason or f"ended with exit code {code}")

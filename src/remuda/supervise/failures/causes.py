"""Why an allocation ended, classified once from what was seen. Pure.

The scheduler's word wins over exit codes, and hardware that was seen to be broken wins over a failure of the program.
What a person, a preemption or a time limit ended says nothing about the node it ran on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from remuda.backends.base import CHILD_ENDED, Ending, Life, Observed
from remuda.store.rows import Evidence
from remuda.supervise.failures.ledger import AMBIGUOUS_WEIGHT
from remuda.supervise.model import Cause
from remuda.wire import exit as node_exit
from remuda.wire import fault as faults

if TYPE_CHECKING:
    from remuda.plan.model import Group


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
    final: bool = False
    """A person ended it, and the group says that this is its end."""
    evidence: tuple[Evidence, ...] = ()
    """Against the node it ran on: kind, weight, device and detail; the others are filled in by who knows them."""


_NODE_CODES = {
    node_exit.GAVE_UP: Cause.APPLICATION,
    node_exit.HUNG: Cause.APPLICATION,
    node_exit.STALLED: Cause.APPLICATION,
    node_exit.PORT_TAKEN: Cause.NODE,
    node_exit.NO_GPU: Cause.NODE,
    node_exit.GPU_BROKEN: Cause.NODE,
    node_exit.NODE_FAULT: Cause.NODE,
    node_exit.NO_ROOM: Cause.NODE,
    node_exit.CANNOT_START: Cause.USER,
    node_exit.BAD_SPEC: Cause.UNKNOWN,
    node_exit.BROKEN: Cause.UNKNOWN,
    node_exit.FENCED: Cause.UNKNOWN,
    node_exit.UNGUARDED: Cause.UNKNOWN,
    node_exit.UNLEASED: Cause.SCHEDULER,
}
_PERMANENT = frozenset({node_exit.CANNOT_START, node_exit.BAD_SPEC})
_BROKEN_NODE = {
    node_exit.NO_GPU: "no-gpu",
    node_exit.GPU_BROKEN: "gpu-broken",
    node_exit.NODE_FAULT: "node-fault",
}
_ENDINGS = {
    Ending.CANCELLED: (Cause.USER, "cancelled by another user", False),
    Ending.PREEMPTED: (Cause.PREEMPTION, "preempted", False),
    Ending.TIME_LIMIT: (Cause.TIME_LIMIT, "reached its time limit", False),
    Ending.NODE_FAILED: (Cause.NODE, "its node failed", True),
    Ending.OUT_OF_MEMORY: (Cause.APPLICATION, "used more memory than it had asked for", True),
    Ending.LOST: (Cause.SCHEDULER, "the scheduler lost it", True),
    Ending.NOT_STARTED: (Cause.NODE, "was given a node and never started there", True),
    Ending.GROUP: (Cause.GROUP, "ended with", False),
}
_ENDING_EVIDENCE = {Ending.NODE_FAILED: ("node-failed", 1.0), Ending.NOT_STARTED: ("not-started", AMBIGUOUS_WEIGHT)}
_NO_FAULT_OF_NODE = frozenset({Cause.USER, Cause.GROUP, Cause.PREEMPTION, Cause.TIME_LIMIT, Cause.NONE})
_WEAKEST_FIRST = (
    faults.INFO, faults.APPLICATION, faults.RESOURCE, faults.TRANSIENT, faults.AMBIGUOUS, faults.NODE_BUSY, faults.NODE,
)  # fmt: skip
_FAULT_CAUSES = {
    faults.NODE: Cause.NODE,
    faults.NODE_BUSY: Cause.NODE,
    faults.TRANSIENT: Cause.UNKNOWN,
    faults.AMBIGUOUS: Cause.APPLICATION,
    faults.RESOURCE: Cause.APPLICATION,
    faults.APPLICATION: Cause.APPLICATION,
}


def classify(seen: Observed, group: Group | None = None) -> Verdict:
    """Say why `seen`, which ENDED or is GONE, is no more. `group` knows what a person's cancel means."""
    verdict = _by_life(seen, group)
    if verdict.success or verdict.permanent or verdict.cause in _NO_FAULT_OF_NODE:
        return verdict
    return _with_faults(verdict, seen)


def _by_life(seen: Observed, group: Group | None) -> Verdict:
    if seen.life is Life.GONE:
        return Verdict(Cause.UNKNOWN, seen.reason or "the backend does not know the allocation any more")
    if seen.ending is not Ending.NONE:
        return _by_ending(seen, group)
    if seen.befell is not Ending.NONE and group is not None and not group.replace.has_goal:
        # A scheduler's SIGTERM may reach a server before its node program: then it seems to have ended by itself.
        return _by_ending(replace(seen, ending=seen.befell, native_state=""), group)
    if seen.befell is Ending.NODE_FAILED and group is not None and group.resources.nodes > 1 and not _is_whole(seen):
        # The first rank's part is done. What ran on the node that failed is not.
        return _by_ending(replace(seen, ending=seen.befell, native_state="", exit_code=None), group)
    if seen.native_state == "rebooted":
        return Verdict(Cause.NODE, seen.reason or "the machine was restarted", counts=False)
    return _by_code(seen)


def _is_whole(seen: Observed) -> bool:
    """Whether the script told that it has made all of its steps."""
    total = seen.metrics.get("progress_total", 0.0)
    return 0 < total <= seen.metrics.get("progress_step", 0.0)


def _by_ending(seen: Observed, group: Group | None) -> Verdict:
    cause, words, counts = _ENDINGS[seen.ending]
    if seen.ending is Ending.CANCELLED and seen.by:
        words = f"cancelled by {seen.by}"
    raw = f" ({seen.native_state})" if seen.native_state and seen.native_state.lower() not in words else ""
    if seen.reason.startswith(words):
        reason = seen.reason
    else:
        reason = f"{words}{raw}: {seen.reason}" if seen.reason else f"{words}{raw}"
    final = seen.ending is Ending.CANCELLED and group is not None and group.replace.user_cancel == "stop"
    kind = _ENDING_EVIDENCE.get(seen.ending)
    evidence = () if kind is None else (_against(kind[0], kind[1], reason),)
    return Verdict(cause, reason, counts=counts, final=final, evidence=evidence)


def _by_code(seen: Observed) -> Verdict:
    code = seen.exit_code
    if code == 0:
        return Verdict(Cause.NONE, seen.reason or "ended with exit code 0", success=True)
    if seen.native_state != CHILD_ENDED:
        if code in _NODE_CODES:
            reason = seen.reason or node_exit.meaning(code)
            kind = _BROKEN_NODE.get(code)
            evidence = () if kind is None else (_against(kind, 1.0, reason),)
            return Verdict(_NODE_CODES[code], reason, permanent=code in _PERMANENT, evidence=evidence)
        if code == node_exit.STOPPED:
            return Verdict(Cause.USER, seen.reason or "was asked to stop by another user", counts=False)
        if code == node_exit.TIME_UP:
            return Verdict(Cause.TIME_LIMIT, seen.reason or node_exit.meaning(code), counts=False)
    if seen.signal and code is None:
        return Verdict(Cause.UNKNOWN, seen.reason or f"was killed by signal {seen.signal}")
    if code is None:
        return Verdict(Cause.UNKNOWN, seen.reason or "ended without leaving an exit code")
    return Verdict(Cause.APPLICATION, seen.reason or f"ended with exit code {code}")


def _with_faults(verdict: Verdict, seen: Observed) -> Verdict:
    """The strongest fault that was seen decides; only `node` and `ambiguous` ones reach the ledger."""
    if not seen.faults:
        return verdict
    worst = max(seen.faults, key=lambda one: _WEAKEST_FIRST.index(one.kind))
    weights = {faults.NODE: 1.0, faults.AMBIGUOUS: AMBIGUOUS_WEIGHT}
    named = tuple(_against(one.name, weights[one.kind], one.line, one.device) for one in seen.faults
                  if one.kind in weights)  # fmt: skip
    if worst.kind in _FAULT_CAUSES and verdict.cause is not Cause.NODE:
        verdict = replace(verdict, cause=_FAULT_CAUSES[worst.kind])
    if worst.kind != faults.INFO:
        verdict = replace(verdict, reason=f"{verdict.reason}; seen: {worst.line or worst.name}")
    # What names the fault and the device says more than the code that came of it.
    is_named = worst.kind == faults.NODE
    return replace(verdict, evidence=named if is_named else (*verdict.evidence, *named))


def _against(kind: str, weight: float, detail: str, device: str = "") -> Evidence:
    return Evidence("", 0.0, kind, weight, device=device, detail=detail)

"""What recorders find on GPUs, as evidence against nodes: once, whoever saw it. A finding never ends anything."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from remuda.base.errors import RemudaError
from remuda.store.rows import Evidence
from remuda.supervise.failures.ledger import AMBIGUOUS_WEIGHT
from remuda.wire import fault as faults
from remuda.wire.fault import Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from remuda.plan.model import Group
    from remuda.supervise.model import Task
    from remuda.wire.report import Report

_LOG = logging.getLogger("remuda.supervise")
_WEIGHTS = {faults.NODE: 1.0, faults.AMBIGUOUS: AMBIGUOUS_WEIGHT}
"""Kinds of faults that speak against a node; an application's own (XID 13, 31, 43, 45) and information do not."""


def found(task: Task, group: Group, report: Report, now: float) -> list[Evidence]:
    """What a report says against its node.

    Args:
        task: that it is of.
        group: of the task.
        report: with the faults that a recorder saw.
        now: seconds since the epoch.
    """
    node = report.node or task.node
    seen = map(Fault.from_dict, report.faults)
    return [
        Evidence(
            node, now, fault.name, _WEIGHTS[fault.kind], task.backend, fault.device, task.key.workload, task.token,
            fault.line, now + group.nodes.ttl_s, report.boot,
        )
        for fault in seen
        if fault.kind in _WEIGHTS and node
    ]  # fmt: skip


def fresh(items: Iterable[Evidence], known: Sequence[Evidence]) -> list[Evidence]:
    """Those that nobody has seen yet: one for a node, device, kind and boot.

    What the output of an allocation tells has no boot: it is that of what a recorder beside the same allocation told.
    """
    taken: list[Evidence] = []
    for item in items:
        if not any(_is_same(item, other) for other in (*known, *taken)):
            taken.append(item)
    return taken


def _is_same(one: Evidence, other: Evidence) -> bool:
    if (one.cluster, one.node, one.device, one.kind) != (other.cluster, other.node, other.device, other.kind):
        return False
    if one.boot and other.boot:
        return one.boot == other.boot
    return bool(one.boot or other.boot) and one.token == other.token


class Findings:
    """What was taken from reports already: they are levels, and say the same again."""

    def __init__(self, known: Callable[[float], Sequence[Evidence]]) -> None:
        """Wire it.

        Args:
            known: evidence that counts at a time, in seconds since the epoch.
        """
        self._known = known
        self._told: dict[str, str] = {}

    def of(self, task: Task, group: Group, report: Report, now: float, more: Sequence[Evidence] = ()) -> list[Evidence]:
        """What is new in a report; `more` is evidence that is not written down yet."""
        told, mark = self._told.get(task.token), str(report.faults)
        if report.token != task.token or not report.faults or told == mark:
            return []
        known = self._read(now)
        if known is None:
            return []  # the next report says it again
        self._told[task.token] = mark
        return fresh(found(task, group, report, now), [*known, *more])

    def at_end(self, items: Sequence[Evidence], now: float, more: Sequence[Evidence] = ()) -> list[Evidence]:
        """Evidence of an allocation that ended, without what a recorder beside it has told before."""
        for item in items:
            self._told.pop(item.token, None)
        told = [item for item in (*((self._read(now) or ()) if items else ()), *more) if item.boot]
        return fresh(items, told)

    def _read(self, now: float) -> Sequence[Evidence] | None:
        try:
            return self._known(now)
        except RemudaError as error:
            _LOG.warning("the evidence against nodes cannot be read: %s", error)
            return None

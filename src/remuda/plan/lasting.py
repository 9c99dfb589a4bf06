"""How the parts of a swarm or deployment outlive the time limits of their jobs, and what ends it before. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from remuda.base.errors import InputError
from remuda.base.units import show_duration
from remuda.plan.model import Group, Succession

if TYPE_CHECKING:
    from remuda.specs.service import ServiceFields

COUNTING: Final = frozenset({"smg"})
"""Routers whose counters tell a request of a client from a question about their health."""
LEAD_MAX_S: Final = 7200.0
LEAD_SHARE: Final = 0.25
MOST_SLOTS: Final = 500
"""As `supervise.groups.handover.SUCCESSOR`: the other index of a member is so much higher."""


def with_succession(spec: ServiceFields, groups: tuple[Group, ...]) -> tuple[Group, ...]:
    """The groups of what has a lifetime: those whose jobs have a time limit get successors.

    Raises:
        InputError: a successor would be asked for before the job has begun, or there are too many servers.
    """
    if not spec.lifetime:
        return groups
    return tuple(_lasting(spec, group) for group in groups)


def _lasting(spec: ServiceFields, group: Group) -> Group:
    limit_s = group.resources.time_limit_s
    if not limit_s or group.role.stays:
        return group
    if group.count > MOST_SLOTS:
        raise InputError(
            f"{group.name} has {group.count} tasks, and with a `lifetime` {MOST_SLOTS} at most can have successors",
            hint="bring up several, or leave `lifetime` out",
            where="replicas" if group.name == "replica" else f"roles.{group.name}.workers",
        )
    lead_s = spec.handover if spec.handover is not None else min(LEAD_SHARE * limit_s, LEAD_MAX_S)
    if lead_s >= limit_s:
        raise InputError(
            f"`handover` is {show_duration(lead_s)}, and the time limit of the {group.name} is "
            f"{show_duration(limit_s)}: successors would follow each other without a pause",
            hint="make `handover` shorter, or the time limit longer",
            where="handover",
        )
    succession = Succession(lead_s=lead_s, drain_s=spec.drain, follows_queue=spec.handover is None)
    return group.model_copy(update={"succession": succession})

"""Whether the rules between a workload's groups can be followed. Pure."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from remuda.base.errors import InputError

if TYPE_CHECKING:
    from remuda.plan.model import Workload


def check(workload: Workload) -> None:
    """Refuse what could never begin or end.

    Raises:
        InputError: `after` or `ends_with` names no group, groups wait for each other, or the group that the workload
            ends with is replaced.
    """
    known = {group.name: group for group in workload.groups}
    for group in workload.groups:
        if unknown := next((name for name in group.after if name not in known), ""):
            raise InputError(f"{group.name}.after: there is no group {unknown!r}", hint=f"known: {', '.join(known)}")
    try:
        TopologicalSorter({group.name: group.after for group in workload.groups}).prepare()
    except CycleError as error:
        circle = " → ".join(reversed(error.args[1]))
        raise InputError(f"groups wait for each other: {circle}", hint="remove one of them from `after`") from None
    if workload.ends_with is None:
        return
    if workload.ends_with not in known:
        raise InputError(f"ends_with: there is no group {workload.ends_with!r}", hint=f"known: {', '.join(known)}")
    if known[workload.ends_with].replace.policy != "never":
        raise InputError(f"the workload ends with {workload.ends_with}, so that is never replaced",
                         hint='set its replace.policy to "never", or another group')  # fmt: skip

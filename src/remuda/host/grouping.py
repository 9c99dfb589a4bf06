"""What may be done with the groups of a workload one by one: which are counted, and which are begun again. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from remuda.base.errors import Conflict, InputError, NotFound
from remuda.base.hostlist import compress_numbers
from remuda.look.allocate import check_count
from remuda.specs.arrays import parse_array
from remuda.supervise.groups.handover import SUCCESSOR, takes_turns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.plan.model import Group, Workload
    from remuda.supervise.model import Want


def begun_again(want: Want, words: str) -> Want:
    """The intent that what runs in a group, or in tasks of an array (`7,9`), is begun again, as what ended there is.

    Raises:
        NotFound: there is no such group or index.
        Conflict: nothing of the workload is begun now.
    """
    name, only, parts = want.workload.name, words, _parts_named(want.workload, words)
    if not want.running:
        raise Conflict(
            f"{name!r} is down, so {only!r} cannot be restarted alone", hint=f"all of it: remuda restart {name}"
        )
    if want.paused:
        raise Conflict(f"{name!r} is paused, so {only!r} is not restarted", hint=f"first: remuda unpause {name}")
    marks = {part: want.group_marks.get(part, 0) + 1 for part in parts}
    return replace(want, group_marks={**want.group_marks, **marks})


def _parts_named(workload: Workload, words: str) -> list[str]:
    """A group, or tasks of an array, as marks have them."""
    if not (workload.is_array and words[:1].isdigit()):
        return [group_named(workload, words).name]
    group = workload.groups[0]
    known = compress_numbers(group.indices)
    try:
        wanted = parse_array(words).indices
    except InputError as error:
        raise InputError(f"{words!r} {error.message}", hint=f"write 7, 1,3 or 1-5; its tasks: {known}") from error
    if unknown := set(wanted) - set(group.indices):
        raise NotFound(f"{workload.name!r} has no task {min(unknown)}", hint=f"its tasks: {known}")
    return [f"{group.name}/{index}" for index in wanted]


def group_named(workload: Workload, name: str) -> Group:
    """One group.

    Raises:
        NotFound: there is none of that name.
    """
    found = next((group for group in workload.groups if group.name == name), None)
    if found is None:
        known = ", ".join(group.name for group in workload.groups)
        raise NotFound(f"{workload.name!r} has no group {name!r}", hint=f"its groups: {known}")
    return found


def counted(workload: Workload, asked: Mapping[str, int]) -> dict[str, int]:
    """Another number of tasks by group, checked.

    Args:
        workload: whose groups they are.
        asked: number by name of a group; without a name: of the one that serves.

    Raises:
        NotFound: there is no such group.
        InputError: the number of one is not for users to change, or wrong.
    """
    if workload.pack is not None:
        raise InputError(f"{workload.name!r} is one job, which cannot be scaled",
                         hint="say how many workers it has in its document, and bring it up again")  # fmt: skip
    counts = {}
    for name, count in asked.items():
        group = group_named(workload, name) if name else _only_one_that_serves(workload)
        _check(workload, group, count)
        counts[group.name] = count
    return counts


def _only_one_that_serves(workload: Workload) -> Group:
    serving = [group for group in workload.groups if group.role.serves]
    if not serving:
        raise InputError(f"{workload.name!r} is a {workload.kind.value}, which has no replicas to scale")
    if len(serving) > 1:
        names = ", ".join(group.name for group in serving)
        hint = f"say which: remuda scale {workload.name} {serving[-1].name}=2"
        raise InputError(f"{workload.name!r} has several groups to scale: {names}", hint=hint)
    return serving[0]


def _check(workload: Workload, group: Group, count: int) -> None:
    name, word = workload.name, group.role.value
    if not group.role.serves:
        raise InputError(f"the {group.name} of {name!r} cannot be scaled: it is a {word}, whose number is fixed")
    if count < 1:
        raise InputError(f"{name!r} needs at least 1 {word}, not {count}", hint=f"to end it: remuda down {name}")
    check_count(workload, group.name, count)
    if takes_turns(workload, group) and count > SUCCESSOR:
        raise InputError(f"{name!r} has a lifetime, and cannot have more than {SUCCESSOR} {word} tasks")
    endpoint = workload.endpoint
    if count > 1 and endpoint is not None and not endpoint.router:
        raise InputError(f"{name!r} was brought up without a router", hint="bring it up again with --reverse-proxy")

"""What bringing workloads up sends: the one rendering of dry runs, checks, and records of what was started."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from remuda.backends.base import Rendered, Request, TaskKey, make_token
from remuda.base.errors import InputError
from remuda.base.secrets import MASK, looks_secret
from remuda.look.allocate import with_devices
from remuda.look.facts import apart

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from remuda.look.facts import Looked
    from remuda.plan.compile import Finding, Plan
    from remuda.plan.model import Workload

_UNDER: Final = ("backend", "resources")
"""Parts of a document that have fields of what runs somewhere."""


def calls(workloads: Sequence[Workload], facts: Looked) -> dict[str, Sequence[Rendered]]:
    """Backend -> calls for the first attempt of every task that may begin; those that one call starts are one.

    Raises:
        InputError: a backend cannot be asked for it.
    """
    rendered: dict[str, list[Rendered]] = {}
    for workload in workloads:
        placed = with_devices(workload, {}) if workload.is_here else workload
        for group in placed.groups:
            name = group.backend or placed.backend
            pools = group.pools if group.failover.hedge else group.pools[:1]
            for index in group.slots(group.count)[: group.at_once(group.count)]:
                key = TaskKey(placed.name, group.name, index)
                token = make_token(key, 1, placed.uid)
                item = facts.backend(name).render(Request(key, 1, token, placed, group, pools=pools))
                rendered.setdefault(name, []).append(item)
    return {name: facts.backend(name).as_sent(items) for name, items in rendered.items()}


def shape_of(plan: Plan) -> str:
    """The same for plans that differ in nothing but script, name and arguments, which are asked for alike."""
    place = json.dumps(plan.workload.place, sort_keys=True, default=str)
    said = plan.spec.model_dump_json(exclude={"script", "name", "args"}) if plan.spec is not None else ""
    return said + place


def shown(workloads: Sequence[Workload], facts: Looked) -> list[Rendered]:
    """The same for eyes and programs: values of variables whose names look secret are masked."""
    groups = [group for workload in workloads for group in workload.groups]
    hidden = {value for group in groups for name, value in group.command.env.items() if value and looks_secret(name)}
    return [_masked(call, hidden) for some in calls(workloads, facts).values() for call in some]


def _masked(item: Rendered, hidden: set[str]) -> Rendered:
    words = {json.dumps(value): f'"{MASK}"' for value in hidden}
    for value in hidden:  # a document may be a text in another document
        inner = json.dumps(value)[1:-1]
        words |= {one: MASK for one in (value, inner, json.dumps(inner)[1:-1]) if len(one) > 3}

    def masked(text: str) -> str:
        for value, instead in words.items():
            text = text.replace(value, instead)
        return text

    files = {path: masked(text) for path, text in item.files.items()}
    return replace(item, argv=tuple(masked(word) for word in item.argv), files=files)


def ask_backends(plan: Plan, facts: Looked) -> Iterator[Finding]:
    """Ask its backends whether they would take a plan as it is rendered.

    Raises:
        InputError: one of them refuses it; `where` is the field that it speaks of.
        BackendUnreachable: one must answer before, and does not.
    """
    shape = shape_of(plan)
    if shape in facts.taken:
        return iter(())
    for name, some in calls([plan.workload], facts).items():
        try:
            apart(facts.backend(name).check(some))
        except InputError as error:
            under = next((part for part in _UNDER if hasattr(getattr(plan.spec, part, None), error.where)), "")
            if not under:
                raise
            message = error.message.removeprefix(f"{error.where}: ")
            raise InputError(message, hint=error.hint, where=f"{under}.{error.where}") from error
    facts.taken.add(shape)
    return iter(())

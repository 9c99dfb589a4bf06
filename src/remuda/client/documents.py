"""Documents of any kind: which one a file is, its plans, and what speaks against them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from remuda.base.errors import InputError
from remuda.base.text import clean
from remuda.client.jobs.pool import plan_pool
from remuda.look import planning, recipes
from remuda.look.kinds import ASKED
from remuda.look.kinds.deployment import draft_of as deployment_of
from remuda.look.kinds.gang import read as read_gang
from remuda.look.kinds.run import read as read_run
from remuda.look.kinds.swarm import draft_of as swarm_of
from remuda.specs.reading.load import assignment, load, load_swarm
from remuda.specs.reading.pools import load_pool
from remuda.specs.reading.resolve import Override
from remuda.specs.reading.shapes import kind_in
from remuda.specs.recipe.load import split_target

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from remuda.look.facts import Looked
    from remuda.plan.compile import Plan


_NOT_ASKED: Final = "the endpoint is not asked: the benchmark asks it when it begins, before the first load"


@dataclass(frozen=True)
class Preflight:
    """What was seen of one plan of a file."""

    file: str
    selector: str
    """What names it in the file; empty where the file holds one."""
    failures: list[str] = field(default_factory=list)
    """A sentence each, with the place in the document where there is one."""
    notes: list[str] = field(default_factory=list)
    """What is worth a look, and what could not be checked."""


@dataclass(frozen=True)
class Given:
    """What the command line says of a document."""

    settings: Sequence[str] = ()
    """`KEY=VALUE` in the words of the file; they win."""
    unset: Sequence[str] = ()
    """Keys to take out of a recipe."""
    backend: str = ""
    """In place of what the file says."""
    cluster_file: Path | None = None
    """For recipes, instead of the one that is found."""


def plans_of(target: str, facts: Looked, asked: Given = Given()) -> Iterator[tuple[str, Plan | InputError]]:
    """The plans of a file, or why there is none, each with what names it there.

    Raises:
        InputError: the file cannot be read, or is wrong. A benchmark is read, and has no plan.
    """
    for selector, kind, document in _read(target, facts, asked):
        try:
            yield selector, document if kind == "pool" else planning.plan(kind, document, facts)
        except InputError as error:
            yield selector, error


def _read(target: str, facts: Looked, asked: Given) -> Iterator[tuple[str, str, Any]]:
    kind = kind_in(target)
    if kind == "deployment":
        for recipe in recipes.resolve(
            target, asked.settings, asked.unset, backend=asked.backend, cluster_file=asked.cluster_file
        ):
            yield recipe.selector, kind, deployment_of(recipe)
        return
    if asked.unset or asked.cluster_file:
        raise InputError("--unset and --cluster are for recipes", where=target)
    said = [assignment(text) for text in asked.settings]
    if asked.backend:
        key = "backend.type" if kind == "swarm" else "backend"
        said.append(Override(key, asked.backend, "--backend"))
    if kind == "swarm":
        yield "", kind, swarm_of(load_swarm(target, said))
    elif kind == "run":
        yield "", kind, read_run(target, said, facts, set())
    elif kind == "gang":
        yield "", kind, read_gang(target, said)
    elif kind == "pool":
        for member in plan_pool(load_pool(target), facts):
            yield member.name, kind, member.planned
    else:
        load(target, said, expect=kind)


def preflight(target: str, facts: Looked, asked: Given = Given()) -> list[Preflight]:
    """Look for what would make the plans of a file fail. Nothing is started; the help of engines is kept.

    Raises:
        InputError: the file cannot be read, or is wrong.
    """
    found = []
    for selector, plan in plans_of(target, facts, asked):
        seen = Preflight(str(split_target(target)[0]), selector)
        found.append(seen)
        if isinstance(plan, InputError):
            first, *others = str(plan).splitlines()
            seen.failures.extend([f"{first} ({plan.hint})" if plan.hint else first, *others])
            continue
        notes, problems = planning.look([plan], facts, ASKED)
        seen.notes.extend(clean(note, one_line=True) for note in notes)
        seen.failures.extend(clean(problem.text, one_line=True) for problem in problems)
    return found or [Preflight(target, "", notes=[_NOT_ASKED])]

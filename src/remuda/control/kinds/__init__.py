"""The kinds of work: a file each says how its documents are read, compiled and checked."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from remuda.look.facts import Looked
    from remuda.plan.compile import Finding, Plan
    from remuda.plan.context import Context

SHOWN, SENT, ASKED = 0, 1, 2
"""When a check is made: also of a dry run; before it is sent; only for `preflight`, as it may take long."""


@dataclass(frozen=True)
class PlanCheck:
    """One look for what would make a plan fail."""

    look: Callable[[Plan, Looked], Iterable[Finding]]
    """May raise `InputError` for what it finds, too; its `where` is the field."""
    when: int = SHOWN


@dataclass(frozen=True)
class WorkKind:
    """What is special to a kind of work.

    Attributes:
        compile: document, context and facts to plan.
        checks: what would make it fail, in the order in which they are made.
        record: files that say what was asked, from the accepted plan: absolute path -> text.
        needs_gpus: whether planning must know the GPUs of this machine.
    """

    compile: Callable[[Any, Context, Looked], Plan]
    checks: Sequence[PlanCheck] = ()
    record: Callable[[Plan, Looked], Mapping[str, str]] | None = None
    needs_gpus: Callable[[Any], bool] = bool


def kind_of(plan: Plan) -> WorkKind:
    """The kind of a plan."""
    return kind_named(plan.workload.kind.value)


def kind_named(name: str) -> WorkKind:
    """The kind of that name; its file is loaded by whoever needs it."""
    found: WorkKind = import_module(f"remuda.control.kinds.{name}").KIND
    return found

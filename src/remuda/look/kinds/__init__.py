"""The kinds of work: a file each says how its documents are read, compiled and checked."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from remuda.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from remuda.look.facts import Looked
    from remuda.plan.compile import Finding, Plan
    from remuda.plan.context import Context

    Compiler = Callable[[Any, Context, Looked], Plan]
    Check = Callable[[Plan, Looked], Iterable[Finding]]

SHOWN, SENT, ASKED = 0, 1, 2
"""Up to when checks are made: for a dry run; before a plan is sent; for `preflight`, which may take long."""


@dataclass(frozen=True)
class WorkKind:
    """What is special to a kind of work.

    A check yields what it finds against a plan, or raises it as `InputError`, whose `where` is the field.

    Attributes:
        compile: document, context and facts to plan.
        shown: checks of files and words, which a dry run makes, too.
        sent: what is looked for before a plan is sent besides.
        asked: what only `preflight` looks for.
        record: files that say what was asked, from the accepted plan, facts, and the folder if it is not the
            workload's own: absolute path -> text.
        needs_gpus: whether planning a spec must know the GPUs of this machine.
    """

    compile: Compiler
    shown: tuple[Check, ...] = ()
    sent: tuple[Check, ...] = ()
    asked: tuple[Check, ...] = ()
    record: Callable[..., Mapping[str, str]] | None = None
    needs_gpus: Callable[[Any], bool] = bool

    def checks(self, when: int) -> tuple[Check, ...]:
        """Those up to a moment, in the order in which they are made."""
        return (*self.shown, *(self.sent if when >= SENT else ()), *(self.asked if when >= ASKED else ()))


READERS: Final = {
    "serve": "remuda.look.kinds.serve",
    **{name: f"{__name__}.{name}" for name in ("swarm", "run", "gang", "deployment")},
}
"""What can be asked for -> where `plan` makes plans of the words of its command."""


def reader(name: str) -> Callable[..., Sequence[Plan]]:
    """What plans of what a command says of a kind: `(facts, **words)`.

    Raises:
        InputError: there is none.
    """
    if name not in READERS:
        raise InputError(f"{name!r} is not planned from a document", hint=f"known: {', '.join(READERS)}", where="kind")
    found: Callable[..., Sequence[Plan]] = import_module(READERS[name]).plan
    return found


def kind_of(plan: Plan) -> WorkKind:
    """The kind of a plan."""
    return kind_named(plan.workload.kind.value)


def kind_named(name: str) -> WorkKind:
    """The kind of that name; its file is loaded by whoever needs it."""
    found: WorkKind = import_module(f"remuda.look.kinds.{name}").KIND
    return found

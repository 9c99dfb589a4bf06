"""Who this process is in its gang, from the environment that schedulers and launchers set."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from remuda.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The first that is set counts. Within a copy that is itself many processes, RANK and WORLD_SIZE are of those.
RANK: Final = ("REPLICA_RANK", "REPLICA_GROUP_ID", "RANK")
WORLD_SIZE: Final = ("REPLICA_COUNT", "NUM_REPLICA_GROUPS", "WORLD_SIZE")
RUN_ID: Final = ("RUN_ID",)
QUORUM: Final = ("REMUDA_QUORUM",)
URL: Final = ("REMUDA_RENDEZVOUS", "RENDEZVOUS")


def text(given: str | None, names: tuple[str, ...], what: str, environ: Mapping[str, str] = os.environ) -> str:
    """What was given, else the first of the variables that is set.

    Raises:
        InputError: neither.
    """
    if given:
        return given
    for name in names:
        if environ.get(name):
            return environ[name]
    raise InputError(f"{what} is not known", hint=f"pass it, or set {' or '.join(names)}")


def number(
    given: int | None, names: tuple[str, ...], what: str, least: int, environ: Mapping[str, str] = os.environ
) -> int:
    """The same for a whole number that is at least `least`.

    Raises:
        InputError: it is not known, is none, or is less.
    """
    found = str(given) if given is not None else text(None, names, what, environ)
    try:
        value = int(found)
    except ValueError as error:
        raise InputError(f"{what} is {found!r}, which is not a whole number") from error
    if value < least:
        raise InputError(f"{what} is {value}, and must be at least {least}")
    return value


def quorum(given: int | None, environ: Mapping[str, str] = os.environ) -> int | None:
    """Copies that suffice for a round; None: all of them.

    Raises:
        InputError: the variable has no whole number of at least 1.
    """
    if given is None and any(environ.get(name) for name in QUORUM):
        return number(None, QUORUM, "the quorum", 1, environ)
    return given

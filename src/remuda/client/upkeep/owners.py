"""Whose an allocation is that was found by its name, and what is to be done about it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from remuda.backends.base import read_token
from remuda.specs.places import traits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.backends.base import Stray, Token


class Claimed(StrEnum):
    """Whose it is."""

    WANTED = "wanted"
    """Of a workload that shall run, and its task's current attempt."""
    ENDING = "ending"
    """Of a workload that is going down; a host ends it."""
    ORPHAN = "orphan"
    """From this state directory, and nobody wants it."""
    ELSEWHERE = "elsewhere"
    """From another state directory, which is there."""
    HOMELESS = "homeless"
    """From a state directory that is not there any more."""
    UNKNOWN = "unknown"
    """Nobody can tell."""


@dataclass(frozen=True)
class Home:
    """One state directory, as far as allocations are concerned."""

    path: str
    """Without symbolic links."""
    exists: bool = True
    host: str = ""
    """Whose host runs: `pid 12 on login1`; empty when none does."""
    workloads: Mapping[str, tuple[str, bool]] | None = None
    """Name -> uid, and whether it is wanted; None where the database cannot be read."""
    tokens: Mapping[str, bool] | None = None
    """Tokens of the tasks' current attempts -> whether the attempt may still live."""


@dataclass(frozen=True)
class FoundAllocation:
    """One allocation with its verdict."""

    stray: Stray
    backend: str
    verdict: Claimed
    sentence: str
    """Why."""
    todo: str = ""
    """What to do; empty when nothing is to be done."""
    is_own: bool = False
    """Whether it was started from the state directory that is looked at."""


def judge(stray: Stray, backend: str, here: Home, others: Mapping[str, Home]) -> FoundAllocation:
    """Say whose an allocation is.

    Args:
        stray: as it was found, with its home as `others` and `here` write it.
        backend: name of the backend that found it.
        here: this state directory.
        others: other state directories, by path; one that is missing was not looked at.
    """
    if not stray.home:
        said = "nothing of it shows from which state directory it was started"
        return FoundAllocation(stray, backend, Claimed.UNKNOWN, said, _by_hand(stray, backend))
    if stray.home != here.path:
        return _foreign(stray, backend, others.get(stray.home))
    if here.workloads is None or here.tokens is None:
        said = "the database of this state directory cannot be read, so whether it is wanted is unknown"
        return FoundAllocation(stray, backend, Claimed.UNKNOWN, said, "mend the database first, see above", is_own=True)
    verdict, said = _own(stray, read_token(stray.token), here, here.workloads, here.tokens)
    todo = f"remuda doctor --clean, or {_by_hand(stray, backend)}" if verdict is Claimed.ORPHAN else ""
    return FoundAllocation(stray, backend, verdict, said, todo, is_own=True)


def _own(
    stray: Stray,
    token: Token,
    here: Home,
    workloads: Mapping[str, tuple[str, bool]],
    tokens: Mapping[str, bool],
) -> tuple[Claimed, str]:
    """The verdict on what was started from this state directory."""
    uid, is_wanted = workloads.get(token.workload, ("", False))
    if not uid:
        return Claimed.ORPHAN, f"there is no workload {token.workload!r} any more"
    if uid != token.uid:
        return Claimed.ORPHAN, f"it is of an earlier {token.workload!r}; the one of that name now is another"
    may_live = tokens.get(stray.token)
    if may_live and is_wanted:
        return Claimed.WANTED, f"{token.workload} is wanted"
    if may_live and here.host:
        return Claimed.ENDING, f"{token.workload} goes down, and the host ends it"
    if not is_wanted:
        return Claimed.ORPHAN, f"{token.workload} is down"
    if may_live is None:
        return Claimed.ORPHAN, f"it is an earlier attempt ({token.attempt}) of {token.group}/{token.index}"
    return Claimed.ORPHAN, f"{token.group}/{token.index} of {token.workload} has ended, as far as the record goes"


def _foreign(stray: Stray, backend: str, home: Home | None) -> FoundAllocation:
    """The verdict on what was started from another state directory."""
    ask = f"look from there: REMUDA_HOME={stray.home} remuda doctor"
    if home is None:
        said = f"its state directory {stray.home} could not be looked at"
        return FoundAllocation(stray, backend, Claimed.UNKNOWN, said, ask)
    if not home.exists:
        said = f"its state directory {stray.home} is not there any more, at least not on this machine"
        todo = f"remuda doctor --clean --gone-homes, or {_by_hand(stray, backend)}"
        return FoundAllocation(stray, backend, Claimed.HOMELESS, said, todo)
    if home.host:
        said = f"it belongs to the state directory {stray.home}, whose host runs ({home.host})"
        return FoundAllocation(stray, backend, Claimed.ELSEWHERE, said)
    said = f"it belongs to the state directory {stray.home}, of which no host runs"
    return FoundAllocation(stray, backend, Claimed.ELSEWHERE, said, ask)


def _by_hand(stray: Stray, backend: str) -> str:
    words = stray.native.replace(",", " ")
    return f"{traits(backend).kill} {words}"

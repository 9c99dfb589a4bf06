"""Names of the objects of a run, and what a listing of them says.

    RUN/RUN.json            what the run is; written by whoever comes first
    RUN/start/state         the state that everybody begins with
    RUN/start/s/PART        its arrays, in parts
    RUN/members/RANK        a process that takes part; the newest of a rank
    RUN/left/RANK           a rank that ended and is not waited for
    RUN/rT/c/RANK           contribution of a rank to round T
    RUN/rT/join/RANK        a rank that came back or is new: whoever finishes round T writes the state
    RUN/rT/manifest         who takes part in round T
    RUN/rT/m/SHARD          a reduced shard
    RUN/rT/COMMIT           round T is over
    RUN/rT/state            the state after round T
    RUN/rT/s/PART           its arrays, in parts
    RUN/rT/….NONCE          an object on its way, in parts; copied to its name

All but `members`, `left` and `join` are written once: the first writer wins.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from remuda.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remuda.gang.objects.bucket import Listed

_RUN_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_IN_ROUND: Final = re.compile(
    r"r(\d{1,9})/(?:(c|m|join)/(\d{1,9})|(manifest|COMMIT|state)|s/(.+)|([cm]/\d{1,9}\.[0-9a-f]{16}))"
)
_RANKS: Final = re.compile(r"(members|left)/(\d{1,9})")


def check_run_id(run_id: str) -> str:
    """The id, which becomes a part of keys.

    Raises:
        InputError: it is none.
    """
    if not _RUN_ID.fullmatch(run_id):
        raise InputError(f"{run_id!r} is not a run ID", hint="letters, digits, '.', '_' and '-', at most 128")
    return run_id


@dataclass
class RoundSeen:
    """What is there of a round. Sizes are in bytes, by rank or shard."""

    contributions: dict[int, int] = field(default_factory=dict)
    shards: dict[int, int] = field(default_factory=dict)
    joining: set[int] = field(default_factory=set)
    parts: list[str] = field(default_factory=list)
    aside: list[str] = field(default_factory=list)
    manifest: bool = False
    committed: bool = False
    state: bool = False


@dataclass
class RunSeen:
    """What is there of a run.

    `newest` is the last committed round, -1 before the first; `touched` says by rank when the store last took
    something from it (seconds since the epoch, the store's clock).
    """

    rounds: dict[int, RoundSeen] = field(default_factory=dict)
    members: set[int] = field(default_factory=set)
    left: set[int] = field(default_factory=set)
    touched: dict[int, float] = field(default_factory=dict)
    start: bool = False

    @property
    def newest(self) -> int:
        """The last committed round, -1 before the first."""
        return max((number for number, seen in self.rounds.items() if seen.committed), default=-1)

    def of(self, number: int) -> RoundSeen:
        """A round; an empty one when nothing is there."""
        return self.rounds.get(number, RoundSeen())

    def expected(self, world_size: int) -> frozenset[int]:
        """Ranks that a round waits for."""
        return frozenset((set(range(world_size)) | self.members) - self.left)

    def newest_state(self) -> int | None:
        """The last committed round whose state is there; -1: only the start; None: nothing."""
        with_state = [number for number, seen in self.rounds.items() if seen.state and seen.committed]
        return max(with_state, default=-1 if self.start else None)

    def newest_contribution(self, rank: int) -> int | None:
        """The last round to which a rank contributed, of those that are there."""
        return max((number for number, seen in self.rounds.items() if rank in seen.contributions), default=None)


def read_listing(run_id: str, objects: Iterable[Listed]) -> RunSeen:
    """Put a listing in order. Keys that are not of this protocol are passed over."""
    seen = RunSeen()
    for listed in objects:
        name = listed.key.removeprefix(f"{run_id}/")
        if name == "start/state":
            seen.start = True
        elif ranks := _RANKS.fullmatch(name):
            (seen.members if ranks[1] == "members" else seen.left).add(int(ranks[2]))
            _touch(seen, int(ranks[2]), listed.modified)
        elif found := _IN_ROUND.fullmatch(name):
            _note(seen, found, listed)
    return seen


def _note(seen: RunSeen, found: re.Match[str], listed: Listed) -> None:
    of = seen.rounds.setdefault(int(found[1]), RoundSeen())
    number = int(found[3] or 0)
    match found[2] or found[4]:
        case "c":
            of.contributions[number] = listed.size
            _touch(seen, number, listed.modified)
        case "m":
            of.shards[number] = listed.size
        case "join":
            of.joining.add(number)
        case "manifest":
            of.manifest = True
        case "COMMIT":
            of.committed = True
        case "state":
            of.state = True
        case _ if found[6]:
            of.aside.append(found[6])
        case _:
            of.parts.append(found[5])


def _touch(seen: RunSeen, rank: int, at: float) -> None:
    seen.touched[rank] = max(at, seen.touched.get(rank, 0.0))

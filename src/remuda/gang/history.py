"""What lies behind the rounds: states to begin from, and what may be cleared away."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from remuda.gang.objects import codec as codecs
from remuda.gang.objects import document, frame

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from remuda.gang.objects.codec import Floats, Octets
    from remuda.gang.objects.keys import RoundSeen, RunSeen
    from remuda.gang.run import Run

START: Final = -1
"""The round of the state that everybody begins with."""
COMMITS: Final = 200
"""Rounds whose COMMIT stays when the rest is cleared away: it says to a copy that slept what became of its update."""
_CODEC: Final = "fp32"


class Follower(Protocol):
    """What follows the rounds: a model that is the same on all ranks after each of them.

    Its state must be a function of the state before and the mean, the same to the bit on every rank: a rank that was
    away loads an old state and applies the means since then.
    """

    def apply(self, number: int, mean: Floats) -> None:
        """Take the mean of a round, (elements,) float32; leave it unchanged."""
        ...

    def state(self) -> Mapping[str, Floats]:
        """Arrays of (elements,) float32 by name, as they are after the last round that was applied."""
        ...

    def load(self, arrays: Mapping[str, Floats]) -> None:
        """Go on from a state."""
        ...


def _folder(number: int) -> str:
    return "start" if number == START else f"r{number}"


def write_state(run: Run, number: int, arrays: Mapping[str, Floats]) -> bool:
    """Write the state after a round, the arrays in parts of a shard; whether this one is the one that counts.

    Parts have a name that nobody else writes, because the document that names them comes last and only one wins.
    """
    folder, nonce = _folder(number), secrets.token_hex(8)
    keys = []
    for name, array in arrays.items():
        for shard, (first, last) in enumerate(run.bounds):
            keys.append(run.key(folder, "s", f"{nonce}-{name}-{shard}"))
            run.bucket.create(keys[-1], _part(run, number, shard, name, array[first:last]))
    fields = {
        "round": number, "nonce": nonce, "arrays": list(arrays), "elements": run.elements, "shards": run.world_size,
    }  # fmt: skip
    won = run.bucket.create(run.key(folder, "state"), document.write(fields))
    if not won:
        run.bucket.delete(keys)
    return won


def _part(run: Run, number: int, shard: int, name: str, values: Floats) -> Octets:
    section = frame.Section(shard, number, frame.NOBODY, len(values), 1.0)
    fields = {"kind": "state", "run": run.run_id, "round": number, "array": name, "shard": shard}
    return frame.write_object(_CODEC, section, values, fields)[0]


def read_state(run: Run, number: int) -> dict[str, Floats]:
    """The arrays of a state.

    Raises:
        FileNotFoundError: it was cleared away.
        Damaged: a part is not whole.
    """
    folder = _folder(number)
    said = run.document(run.key(folder, "state"))
    if said is None:
        raise FileNotFoundError(run.key(folder, "state"))
    arrays = {name: np.empty(run.elements, np.float32) for name in said["arrays"]}
    for name, array in arrays.items():
        for shard, (first, last) in enumerate(run.bounds):
            key = run.key(folder, "s", f"{said['nonce']}-{name}-{shard}")
            stop = frame.object_bytes(_CODEC, [last - first])
            _, raw = run.read_section(key, frame.HEAD, stop, _CODEC, (shard, number, frame.NOBODY))
            for place, piece in codecs.decoded(_CODEC, raw[frame.SEAL :], last - first):
                array[first + place.start : first + place.stop] = piece
    return arrays


def floor(seen: RunSeen, keep: int) -> int:
    """The first round that is kept whole: the last `keep`, and all since the newest state. Pure."""
    first = seen.newest - keep + 1
    state = seen.newest_state()
    return first if state is None else min(first, state + 1)


def unsettled(seen: RunSeen, keep: int) -> dict[int, set[int]]:
    """Rounds below the floor whose COMMIT says whether a contribution may go, and the ranks it is about. Pure.

    A contribution carries all that its rank was owed before, so only the newest of each rank can still be owed.
    """
    last = {rank: seen.newest_contribution(rank) for rank in seen.touched}
    found: dict[int, set[int]] = {}
    for number in (number for number in seen.rounds if number < floor(seen, keep)):
        ranks = {rank for rank in seen.of(number).contributions if last.get(rank) == number}
        if ranks:
            found[number] = ranks
    return found


def garbage(seen: RunSeen, keep: int, takers: Mapping[int, Sequence[int]]) -> list[str]:
    """Names below the run of what nobody needs any more. Pure.

    Args:
        seen: the whole run.
        keep: newest rounds that stay whole.
        takers: who took part, of the rounds that `unsettled` names; all of one that is absent are kept.
    """
    owed = unsettled(seen, keep)
    state = seen.newest_state()
    names: list[str] = []
    for number in sorted(number for number in seen.rounds if number < floor(seen, keep)):
        of = seen.of(number)
        kept = owed.get(number, set()) - set(takers.get(number, ()))
        gone = _objects(of, kept, with_state=number != state, with_commit=number < seen.newest - COMMITS and not kept)
        names += [f"r{number}/{name}" for name in gone]
    return names


def _objects(of: RoundSeen, kept: set[int], *, with_state: bool, with_commit: bool) -> list[str]:
    names = [f"c/{rank}" for rank in sorted(set(of.contributions) - kept)]
    names += [f"m/{shard}" for shard in sorted(of.shards)] + [f"join/{rank}" for rank in sorted(of.joining)]
    names += of.aside
    if with_state:
        names += [f"s/{part}" for part in of.parts] + (["state"] if of.state else [])
    names += ["manifest"] if of.manifest else []
    return names + (["COMMIT"] if with_commit and of.committed else [])

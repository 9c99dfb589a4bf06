"""When a recording reaches its bound: of the oldest minutes one round a second stays. Counters lose nothing by that."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from remuda.wire.recording import Batch
from remuda.wire.spool import block, decode, records, unpack

if TYPE_CHECKING:
    from pathlib import Path

SECOND_US = 1_000_000


def kept_places(times: list[int]) -> list[int]:
    """Places of the rounds that stay: the first of each second, of those that are a second apart all. Pure."""
    kept: list[int] = []
    last = -1
    for place, at in enumerate(times):
        if at // SECOND_US != last:
            last = at // SECOND_US
            kept.append(place)
    return kept


def thinned(batch: Batch) -> Batch:
    """A batch with one round a second, and with all that is told once a second. Pure.

    What is missing in the round that stays, as it is looked at once a second only, is that of another in its second.
    """
    kept = kept_places(batch.times)
    ends = [*kept[1:], len(batch.times)]
    new_place = {old: new for new, (begin, end) in enumerate(zip(kept, ends)) for old in range(begin, end)}

    def first_of(column: list[int | None]) -> list[int | None]:
        return [
            next((value for value in column[begin:end] if value is not None), None) for begin, end in zip(kept, ends)
        ]

    return Batch(
        batch.first,
        batch.end,
        [batch.times[place] for place in kept],
        first_of(batch.clock),
        [{name: first_of(column) for name, column in gpu.items()} for gpu in batch.gpus],
        [one._replace(round=new_place[one.round]) for one in batch.processes],
        batch.notes,
    )


def thin_file(path: Path, values: tuple[str, ...]) -> int:
    """Replace a file of minutes by a thinned one, whole or not at all; how many minutes it has.

    Raises:
        OSError: there is no room for it, or the file cannot be read.
    """
    found = []
    with suppress(ValueError):  # what follows cannot be read by anybody
        for kind, payload in records(path.read_bytes())[0]:
            found.append(block(thinned(decode(unpack(kind, payload), values)), values))
    draft = path.with_name(f".{path.name}.draft")
    try:
        draft.write_bytes(b"".join(found))
        draft.replace(path)
    finally:
        with suppress(OSError):
            draft.unlink()
    return len(found)

"""What was recorded, in columns: one track a GPU, with what ran on it. All else in this room is made of these."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from remuda.wire.recording import COUNTER, VALUES, Gpu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

#: In columns of whole numbers (counters, bits): the driver did not tell.
MISSING: Final = -1
COUNTERS: Final = frozenset(value.name for value in VALUES if value.kind == COUNTER)
SECOND_US: Final = 1_000_000
#: Longer without a sample is a gap: so many periods, and no less than that.
_GAP_PERIODS: Final = 3.0
_GAP_S: Final = 1.5
#: Processes are looked at once a second; after so long without a look nobody knows.
_LOOK_S: Final = 2.5


class Attempt(NamedTuple):
    """Whose a token is."""

    task: str
    """Its name for people."""
    number: int = 0
    """0: not known."""


class Person(NamedTuple):
    """A process, and whose it is."""

    pid: int
    name: str = ""
    owner: str = ""
    """`task:TOKEN`, `container:ID`, or empty: unknown."""


class Said(NamedTuple):
    """Something that happened while it was recorded."""

    at_us: int
    """Since the epoch."""
    node: str
    kind: str
    """As of `wire.recording.Note`; `seen` is a fault that speaks for nothing but itself."""
    text: str


@dataclass(frozen=True, eq=False)
class Looks:
    """The processes of one GPU: a row for each that was seen in a look.

    Attributes:
        at: µs since the epoch, ascending; rows of one look have the same.
        who: place in `people`.
        memory: bytes, NaN where missing.
        busy: share of the multiprocessors' time in %, NaN where missing.
        people: of this track.
    """

    at: Ints
    who: Ints
    memory: Floats
    busy: Floats
    people: tuple[Person, ...] = ()

    @cached_property
    def begins(self) -> Ints:
        """Time of each look that saw a process."""
        return np.unique(self.at)

    @cached_property
    def ends(self) -> Ints:
        """Up to when each of them holds: the next look, or a second where there was none."""
        begins = self.begins
        following = np.append(begins[1:], np.iinfo(np.int64).max)
        return np.where(following - begins <= _LOOK_S * SECOND_US, following, begins + SECOND_US)

    @cached_property
    def look(self) -> Ints:
        """Of each row: place of its look in `begins`."""
        return np.searchsorted(self.begins, self.at)

    def within(self, begin: int, end: int) -> Looks:
        """Those of a span of time."""
        kept = (self.at >= begin) & (self.at < end)
        return Looks(self.at[kept], self.who[kept], self.memory[kept], self.busy[kept], self.people)


def no_looks() -> Looks:
    """Nothing was seen, or nobody looked."""
    nothing: Floats = np.empty(0)
    none: Ints = np.empty(0, np.int64)
    return Looks(none, none, nothing, nothing)


@dataclass(frozen=True, eq=False)
class Track:
    """What was recorded of one GPU beside one attempt, or by one recorder.

    Attributes:
        gpu: which.
        node: where.
        token: of the task that it was recorded beside; empty without one.
        boot: of the machine.
        interval_s: between two samples.
        times: µs since the epoch, ascending.
        values: by the names of `wire.recording.VALUES`, as long as `times`. Gauges are floats, NaN where missing;
            counters and bits are whole numbers, `MISSING` where missing.
        looks: at its processes.
    """

    gpu: Gpu
    node: str
    token: str
    boot: str
    interval_s: float
    times: Ints
    values: Mapping[str, Floats | Ints]
    looks: Looks = field(default_factory=no_looks)

    @property
    def name(self) -> str:
        """For people, where the node is said."""
        return f"GPU {self.gpu.index}"

    @cached_property
    def steps(self) -> Floats:
        """Seconds that each sample stands for: up to the next one, or one period before a gap and at the end."""
        if not len(self.times):
            return np.empty(0)
        steps = np.append(np.diff(self.times) / SECOND_US, self.interval_s)
        return np.where(self._is_gap, self.interval_s, steps)

    @cached_property
    def _is_gap(self) -> NDArray[np.bool_]:
        return np.append(np.diff(self.times) / SECOND_US > max(_GAP_PERIODS * self.interval_s, _GAP_S), [False])

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Where samples lack: times of the last before and of the first after."""
        return [(int(self.times[at]), int(self.times[at + 1])) for at in np.flatnonzero(self._is_gap)]

    def gauge(self, name: str) -> Floats | None:
        """A column in which something is known; None without."""
        column = self.values.get(name)
        return None if column is None or not np.isfinite(column).any() else np.asarray(column, np.float64)

    def counter(self, name: str) -> Ints | None:
        """The same for whole numbers."""
        column = self.values.get(name)
        return None if column is None or not (column != MISSING).any() else np.asarray(column, np.int64)

    def within(self, begin: int, end: int) -> Track:
        """Its part of a span of time (µs since the epoch)."""
        kept = slice(*np.searchsorted(self.times, [begin, end]))
        values = {name: column[kept] for name, column in self.values.items()}
        return replace(self, times=self.times[kept], values=values, looks=self.looks.within(begin, end))


def alone(token: str) -> Attempt:
    """Of a token about which nothing else is known."""
    return Attempt(token)


@dataclass(frozen=True, eq=False)
class Recorded:
    """All that a picture or a table is about: tracks of one or more GPUs, nodes and attempts, on one wall clock.

    Attributes:
        tracks: by node and GPU, then by time.
        name: of the recording; empty for none.
        notes: in order.
        attempt_of: whose a token is.
        unseen: node and GPU of which there is no sample.
    """

    tracks: tuple[Track, ...]
    name: str = ""
    notes: tuple[Said, ...] = ()
    attempt_of: Callable[[str], Attempt] = alone
    unseen: tuple[tuple[str, Gpu], ...] = ()

    @property
    def begin_us(self) -> int:
        """Time of the first sample; 0 where there is none."""
        return min((int(track.times[0]) for track in self.tracks if len(track.times)), default=0)

    @property
    def end_us(self) -> int:
        """Time of the last one, and a period more."""
        ends = (int(one.times[-1]) + round(one.interval_s * SECOND_US) for one in self.tracks if len(one.times))
        return max(ends, default=0)

    @property
    def span_s(self) -> float:
        """From the first sample to the last, gaps and all."""
        return (self.end_us - self.begin_us) / SECOND_US

    def within(self, begin_us: int, end_us: int) -> Recorded:
        """The part of a span of time; tracks of which nothing is left are left out."""
        parts = (track.within(begin_us, end_us) for track in self.tracks)
        notes = tuple(note for note in self.notes if begin_us <= note.at_us < end_us)
        return replace(self, tracks=tuple(part for part in parts if len(part.times)), notes=notes)

    def last(self, seconds: float) -> Recorded:
        """The newest so many seconds."""
        return self.within(self.end_us - round(seconds * SECOND_US), self.end_us + 1)


# One out of many


def join(tracks: Iterable[Track]) -> tuple[Track, ...]:
    """Tracks of the same GPU, boot and token as one, in order of time, so that counters go on where they were.

    A sample that two of them have, as spools of which one was copied, is there once.
    """
    found: dict[tuple[str, str, str, str], list[Track]] = defaultdict(list)
    for track in tracks:
        found[track.node, track.gpu.uuid, track.boot, track.token].append(track)
    whole = [_joined([one for one in mine if len(one.times)] or mine[:1]) for mine in found.values()]
    return tuple(sorted(whole, key=lambda one: (one.node, one.gpu.index, one.times[0] if len(one.times) else 0)))


def _joined(tracks: Sequence[Track]) -> Track:
    if len(tracks) == 1:
        return tracks[0]
    tracks = sorted(tracks, key=lambda track: int(track.times[0]))
    times, first = np.unique(np.concatenate([track.times for track in tracks]), return_index=True)
    names = list(dict.fromkeys(name for track in tracks for name in track.values))
    values = {name: np.concatenate([_column(track, name) for track in tracks])[first] for name in names}
    newest = tracks[-1]
    interval_s = max(track.interval_s for track in tracks)
    return replace(
        newest, interval_s=interval_s, times=times, values=values, looks=_looks([one.looks for one in tracks])
    )


def _column(track: Track, name: str) -> Floats | Ints:
    column = track.values.get(name)
    if column is not None:
        return column
    if name in COUNTERS or name == "limits":
        return np.full(len(track.times), MISSING, np.int64)
    return np.full(len(track.times), np.nan)


def _looks(every: Sequence[Looks]) -> Looks:
    people = list(dict.fromkeys(person for looks in every for person in looks.people))
    places = {person: place for place, person in enumerate(people)}
    at = np.concatenate([looks.at for looks in every])
    who = np.concatenate([
        np.array([places[person] for person in looks.people], np.int64)[looks.who] if len(looks.who) else looks.who
        for looks in every
    ])  # fmt: skip
    memory = np.concatenate([looks.memory for looks in every])
    busy = np.concatenate([looks.busy for looks in every])
    order = np.lexsort((who, at))
    kept = np.append(True, (np.diff(at[order]) != 0) | (np.diff(who[order]) != 0)) if len(at) else order
    order = order[kept] if len(at) else order
    return Looks(at[order], who[order], memory[order], busy[order], tuple(people))

"""What GPUs, processes and tasks did: a row each, of a recording. Pure.

Statistics are over time: a sample counts for as long as it stands for, and where none was taken nothing is known.
Joules of a GPU that several tasks share are split by their shares of its multiprocessors, second by second, so that
they add up.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from remuda.profile.counters import COUNTER, NOTHING, POWER, energy, limited_s, rate, rise
from remuda.profile.stats import Stat, counts, describe
from remuda.wire.recording import LIMITS_HEAT, LIMITS_POWER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from remuda.profile.columns import Attempt, Floats, Ints, Person, Recorded, Said, Track
    from remuda.wire.recording import Gpu

    Mask = NDArray[np.bool_]


class Metric(NamedTuple):
    """A value as people read it."""

    name: str
    column: str
    """Of `wire.recording.VALUES`."""
    factor: float
    """From its unit to this one."""
    unit: str
    about: str
    is_rate: bool = False
    """The column is a counter."""


METRICS: Final = (
    Metric("busy", "busy", 1.0, "%", "share of the driver's last window in which any kernel ran"),
    Metric("memory", "memory", 2.0**-30, "GiB", "memory in use"),
    Metric("memory_percent", "memory_percent", 0.01, "%", "memory in use, where its size is not known"),
    Metric("watts", "power", 1e-3, "W", "power"),
    Metric("temperature", "temperature", 1.0, "°C", "of the GPU"),
    Metric("memory_temperature", "memory_temperature", 1.0, "°C", "of its memory"),
    Metric("sm_clock", "sm_clock", 1.0, "MHz", "clock of the multiprocessors"),
    Metric("memory_clock", "memory_clock", 1.0, "MHz", "clock of the memory"),
    Metric("memory_busy", "memory_busy", 1.0, "%", "share of the window in which memory was read or written"),
    Metric("sm_active", "sm_active", 0.01, "%", "share of the multiprocessors with work"),
    Metric("sm_occupancy", "sm_occupancy", 0.01, "%", "share of the warps that multiprocessors can hold"),
    Metric("tensor_active", "tensor_active", 0.01, "%", "share of the tensor cores' cycles"),
    Metric("dram_active", "dram_active", 0.01, "%", "share of the memory's bandwidth"),
    Metric("pcie_sent", "pcie_sent", 1e-6, "MB/s", "sent over PCIe", is_rate=True),
    Metric("pcie_received", "pcie_received", 1e-6, "MB/s", "received over PCIe", is_rate=True),
    Metric("nvlink_sent", "nvlink_sent", 1.024e-3, "MB/s", "sent over all NVLinks", is_rate=True),
    Metric("nvlink_received", "nvlink_received", 1.024e-3, "MB/s", "received over all NVLinks", is_rate=True),
)
#: Whose joules nobody knows, and processes that the sampler could not assign.
NOBODY, UNKNOWN = "", "unknown"


@dataclass(frozen=True)
class Use:
    """What a GPU, or a task on its GPUs, did.

    Attributes:
        samples: that there are.
        seconds: GPU-seconds that they stand for.
        stats: by the names of `METRICS`; what is not known is not there.
        idle: share of the time with 0 % busy; None where that is not known.
        joules: None where nothing is known.
        source: of the joules: `counter` or `power`; empty for none, `counter, power` where GPUs differ.
        is_shared: others had processes on the same GPU.
    """

    samples: int
    seconds: float
    stats: Mapping[str, Stat]
    idle: float | None
    joules: float | None
    source: str = NOTHING
    is_shared: bool = False


@dataclass(frozen=True)
class GpuRow:
    """One GPU.

    Attributes:
        node, index, uuid, name: which.
        use: what it did.
        expected: samples that were due from its first to its last.
        share: of the time from its first sample to its last in which it was sampled.
        gaps: how often it was not.
        heat_s, power_s: time with clocks lowered; None: not known.
        restarts: how often its energy counter went back.
        errors: uncorrected memory errors; None: not known.
        owners: tasks that were on it.
    """

    node: str
    index: int
    uuid: str
    name: str
    use: Use
    expected: int
    share: float
    gaps: int
    heat_s: float | None
    power_s: float | None
    restarts: int = 0
    errors: int | None = None
    owners: tuple[str, ...] = ()


@dataclass(frozen=True)
class TaskRow:
    """One task over all its attempts and GPUs; `task` is empty for what belongs to nobody.

    Attributes:
        task: its name.
        attempts: numbers of those that were seen.
        nodes: where.
        gpus: how many different ones.
        use: of its GPUs while it was on them; joules are its part.
        own: its part of the multiprocessors in %, where processes were seen; None else.
    """

    task: str
    attempts: tuple[int, ...]
    nodes: tuple[str, ...]
    gpus: int
    use: Use
    own: Stat | None = None


@dataclass(frozen=True)
class ProcessRow:
    """One process on all its GPUs.

    Attributes:
        node, pid, name: which.
        task: whose; `UNKNOWN` where that is not known.
        gpus: indexes.
        seconds: GPU-seconds in which it was seen.
        busy: its part of the multiprocessors in %.
        memory: that it held on one GPU, GiB.
        joules: its part; None where the GPU's are not known.
    """

    node: str
    pid: int
    name: str
    task: str
    gpus: tuple[int, ...]
    seconds: float
    busy: Stat | None
    memory: Stat | None
    joules: float | None


@dataclass(frozen=True)
class Analysis:
    """The rows of a recording."""

    begin_us: int
    end_us: int
    gpus: tuple[GpuRow, ...]
    tasks: tuple[TaskRow, ...]
    processes: tuple[ProcessRow, ...] = ()
    notes: tuple[Said, ...] = ()
    unseen: tuple[tuple[str, Gpu], ...] = ()

    @property
    def joules(self) -> float | None:
        """Of all GPUs; None where none knows."""
        known = [row.use.joules for row in self.gpus if row.use.joules is not None]
        return sum(known) if known else None


def analyse(recorded: Recorded) -> Analysis:
    """Make the rows: GPUs by node and index, tasks by name, processes by joules, the largest first.

    Cost: about 0.6 s for 64 GPUs × one hour × 10 Hz.
    """
    shares = [Shares(track) for track in recorded.tracks]
    return Analysis(
        recorded.begin_us, recorded.end_us, tuple(_gpus(shares, recorded.attempt_of)),
        tuple(_tasks(shares, recorded.attempt_of)), tuple(_processes(shares, recorded.attempt_of)), recorded.notes,
        recorded.unseen,
    )  # fmt: skip


# Who used how much of a GPU


class Shares:
    """One track, and how its time and joules are divided among whoever was on it.

    Args:
        track: of a GPU.
    """

    def __init__(self, track: Track) -> None:
        self.track = track
        self.energy = energy(track)
        looks = track.looks
        self._owner = track.token or NOBODY
        self.owners = list(dict.fromkeys(owner_of(person) for person in looks.people))
        place = {owner: number for number, owner in enumerate(self.owners)}
        self._of_person = np.array([place[owner_of(person)] for person in looks.people], np.int64)
        self.part, self.used = self._parts()

    def _parts(self) -> tuple[Floats, Floats]:
        """Of each row of the looks: its share of the GPU, and joules (all NaN where they are not known)."""
        looks = self.track.looks
        if not len(looks.at):
            return np.empty(0), np.empty(0)
        busy = np.nan_to_num(looks.busy)
        total = np.bincount(looks.look, busy)[looks.look]
        alike = 1.0 / np.bincount(looks.look)[looks.look]  # Nobody computed, or nobody knows: the same for each.
        part = np.divide(busy, total, out=alike, where=total > 0)
        return part, part * self._between(looks.begins, looks.ends)[looks.look]

    def _between(self, begins: Ints, ends: Ints) -> Floats:
        """Joules between times."""
        track = self.track
        if not len(track.times):
            return np.zeros(len(begins))
        return np.interp(ends, track.times, self.energy.joules) - np.interp(begins, track.times, self.energy.joules)

    @property
    def joules(self) -> float | None:
        """Of the GPU; None where nothing is known."""
        known = self.energy.source != NOTHING and len(self.track.times)
        return float(self.energy.joules[-1]) if known else None

    def by_owner(self) -> dict[str, float]:
        """Joules of each owner; what no process can have used is the task's that it is recorded beside, or nobody's."""
        if self.joules is None:
            return {}
        found = {}
        if len(self.used):
            each = np.bincount(self._of_person[self.track.looks.who], self.used, len(self.owners))
            found = {owner: float(each[place]) for place, owner in enumerate(self.owners)}
        rest = self.joules - sum(found.values())
        if rest > 1e-9 * max(1.0, self.joules) or not found:
            found[self._owner] = found.get(self._owner, 0.0) + rest
        return found

    def by_person(self) -> Floats:
        """Joules of each person."""
        looks = self.track.looks
        return np.bincount(looks.who, self.used if len(self.used) else None, len(looks.people)).astype(np.float64)

    def masks(self) -> dict[str, Mask]:
        """Of each owner: samples at which it was on the GPU."""
        looks, times = self.track.looks, self.track.times
        everything = np.ones(len(times), bool)
        if not len(looks.at):
            return {self._owner: everything}
        at = np.searchsorted(looks.begins, times, "right") - 1
        is_seen = (at >= 0) & (times < looks.ends[np.maximum(at, 0)])
        present = np.zeros((len(self.owners), len(looks.begins)), bool)
        present[self._of_person[looks.who], looks.look] = True
        found = {owner: is_seen & present[place][np.maximum(at, 0)] for place, owner in enumerate(self.owners)}
        if not is_seen.all():
            found[self._owner] = found.get(self._owner, ~everything) | ~is_seen
        return {owner: mask for owner, mask in found.items() if mask.any()}

    def own(self, owner: str) -> tuple[Floats, Floats]:
        """Its part of the multiprocessors in % at each look, and how long each holds."""
        looks = self.track.looks
        if owner not in self.owners or not np.isfinite(looks.busy).any():
            return np.empty(0), np.empty(0)
        mine = self._of_person[looks.who] == self.owners.index(owner)
        sums = np.bincount(looks.look[mine], np.nan_to_num(looks.busy[mine]), len(looks.begins))
        seen = np.unique(looks.look[mine])
        return sums[seen], self._seconds()[seen]

    def _seconds(self) -> Floats:
        looks = self.track.looks
        end = int(self.track.times[-1]) if len(self.track.times) else 0
        last = np.maximum(looks.begins + 1, np.minimum(looks.ends, end))
        return (np.where(looks.ends > end, last, looks.ends) - looks.begins) / 1e6

    def seconds_of(self, place: int) -> tuple[Floats, Floats, Floats]:
        """Of one person: busy, memory in bytes, and how long each holds."""
        looks = self.track.looks
        mine = looks.who == place
        return looks.busy[mine], looks.memory[mine], self._seconds()[looks.look[mine]]


def owner_of(person: Person) -> str:
    """The token of its task; `container:ID`; or `UNKNOWN`."""
    return person.owner.removeprefix("task:") or UNKNOWN


# Rows


def _stats(parts: Sequence[tuple[Track, Mask | None]]) -> dict[str, Stat]:
    steps = _together([_kept(track.steps, mask) for track, mask in parts])
    often = counts(steps)
    found = {}
    for metric in METRICS:
        columns = [_column(track, metric) for track, _ in parts]
        if all(column is None for column in columns):
            continue
        values = _together([
            np.full(len(_kept(track.steps, mask)), np.nan) if column is None else _kept(column, mask)
            for column, (track, mask) in zip(columns, parts, strict=True)
        ])  # fmt: skip
        stat = describe(values, steps, often)
        if stat is not None:
            found[metric.name] = Stat(*(number * metric.factor for number in stat))
    return found


def _column(track: Track, metric: Metric) -> Floats | None:
    return rate(track, metric.column) if metric.is_rate else track.gauge(metric.column)


def _kept(column: Floats, mask: Mask | None) -> Floats:
    return column if mask is None else column[mask]


def _together(columns: Sequence[Floats]) -> Floats:
    return columns[0] if len(columns) == 1 else np.concatenate(columns)


def _use(
    parts: Sequence[tuple[Track, Mask | None]], joules: Iterable[float | None], sources: Iterable[str], *, shared: bool
) -> Use:
    known = [one for one in joules if one is not None]
    idle_s = busy_s = 0.0
    for track, mask in parts:
        busy = track.gauge("busy")
        if busy is not None:
            values, steps = _kept(busy, mask), _kept(track.steps, mask)
            idle_s += float(steps[values == 0].sum())
            busy_s += float(steps[values > 0].sum())
    kept = [_kept(track.steps, mask) for track, mask in parts]
    told = set(sources)
    source = ", ".join(one for one in (COUNTER, POWER) if one in told)
    return Use(
        sum(map(len, kept)), float(sum(steps.sum() for steps in kept)), _stats(parts),
        idle_s / (idle_s + busy_s) if idle_s + busy_s > 0 else None, sum(known) if known else None, source, shared,
    )  # fmt: skip


def _gpus(shares: Sequence[Shares], attempt_of: Callable[[str], Attempt]) -> list[GpuRow]:
    found: dict[tuple[str, str], list[Shares]] = defaultdict(list)
    for one in shares:
        if len(one.track.times):
            found[one.track.node, one.track.gpu.uuid].append(one)
    return [_gpu(mine, attempt_of) for _, mine in sorted(found.items(), key=lambda item: _place(item[1]))]


def _place(mine: Sequence[Shares]) -> tuple[str, int, str]:
    track = mine[0].track
    return track.node, track.gpu.index, track.gpu.uuid


def _gpu(mine: Sequence[Shares], attempt_of: Callable[[str], Attempt]) -> GpuRow:
    tracks = [one.track for one in mine]
    owners = dict.fromkeys(owner for one in mine for owner in one.masks())
    tasks = tuple(dict.fromkeys(_task(owner, attempt_of) for owner in owners if owner))
    is_shared = any(len({*one.owners, one.track.token or next(iter(one.owners), "")}) > 1 for one in mine)
    use = _use(
        [(track, None) for track in tracks], (one.joules for one in mine), (one.energy.source for one in mine),
        shared=is_shared,
    )  # fmt: skip
    span = sum((int(track.times[-1]) - int(track.times[0])) / 1e6 + track.interval_s for track in tracks)
    expected = sum(round((int(one.times[-1]) - int(one.times[0])) / 1e6 / one.interval_s) + 1 for one in tracks)
    newest = tracks[-1].gpu
    return GpuRow(
        tracks[0].node, newest.index, newest.uuid, newest.name, use, expected, min(1.0, use.seconds / span),
        sum(len(track.gaps) for track in tracks),
        _sum(limited_s(track, "heat_limited", LIMITS_HEAT) for track in tracks),
        _sum(limited_s(track, "power_limited", LIMITS_POWER) for track in tracks),
        sum(one.energy.restarts for one in mine), _errors(tracks), tasks,
    )  # fmt: skip


def _errors(tracks: Sequence[Track]) -> int | None:
    known = [rise(track, "ecc_uncorrected") for track in tracks]
    return None if all(one is None for one in known) else sum(one or 0 for one in known)


def _sum(every: Iterable[float | None]) -> float | None:
    known = [one for one in every if one is not None]
    return sum(known) if known else None


def _task(owner: str, attempt_of: Callable[[str], Attempt]) -> str:
    return owner if owner in (NOBODY, UNKNOWN) or owner.startswith("container:") else attempt_of(owner).task


def _tasks(shares: Sequence[Shares], attempt_of: Callable[[str], Attempt]) -> list[TaskRow]:
    found: dict[str, list[tuple[Shares, str, Mask]]] = defaultdict(list)
    for one in shares:
        masks = one.masks()
        for owner in {**masks, **one.by_owner()}:  # Joules of a gap may be those of somebody who has no sample.
            found[_task(owner, attempt_of)].append((one, owner, masks.get(owner, np.zeros(len(one.track.times), bool))))
    return [
        _task_row(task, mine, attempt_of) for task, mine in sorted(found.items()) if task != NOBODY or len(found) > 1
    ]


def _task_row(
    task: str, mine: Sequence[tuple[Shares, str, Mask]], attempt_of: Callable[[str], Attempt]
) -> TaskRow:  # fmt: skip
    whole = [(one.track, None if mask.all() else mask) for one, _, mask in mine]
    numbers = {attempt_of(owner).number for _, owner, _ in mine if owner not in (NOBODY, UNKNOWN)}
    own, steps = (np.concatenate(columns) for columns in zip(*(one.own(owner) for one, owner, _ in mine), strict=True))
    use = _use(
        whole, (one.by_owner().get(owner) for one, owner, _ in mine), (one.energy.source for one, _, _ in mine),
        shared=any(bool(set(one.owners) - {owner}) for one, owner, _ in mine),
    )  # fmt: skip
    return TaskRow(
        task, tuple(sorted(numbers - {0})), tuple(dict.fromkeys(one.track.node for one, _, _ in mine)),
        len({(one.track.node, one.track.gpu.uuid) for one, _, _ in mine}), use,
        describe(own, steps, counts(steps)) if len(own) else None,
    )  # fmt: skip


def _processes(shares: Sequence[Shares], attempt_of: Callable[[str], Attempt]) -> list[ProcessRow]:
    found: dict[tuple[str, Person], list[tuple[Shares, int]]] = defaultdict(list)
    for one in shares:
        for place, person in enumerate(one.track.looks.people):
            found[one.track.node, person].append((one, place))
    rows = [_process(node, person, mine, attempt_of) for (node, person), mine in found.items()]
    return sorted(rows, key=lambda row: (-(row.joules or 0.0), row.node, row.pid))


def _process(
    node: str, person: Person, mine: Sequence[tuple[Shares, int]], attempt_of: Callable[[str], Attempt]
) -> ProcessRow:
    seen = [one.seconds_of(place) for one, place in mine]
    busy, memory, steps = (np.concatenate(columns) for columns in zip(*seen, strict=True))
    often = counts(steps)
    known = [float(one.by_person()[place]) for one, place in mine if one.joules is not None]
    return ProcessRow(
        node, person.pid, person.name, _task(owner_of(person), attempt_of),
        tuple(sorted({one.track.gpu.index for one, _ in mine})), float(steps.sum()), describe(busy, steps, often),
        describe(memory * 2.0**-30, steps, often), sum(known) if known else None,
    )  # fmt: skip

"""What an analysis says in sentences, for `explain` and for the top of a page. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from remuda.base.units import show_counted, show_duration, show_energy, show_share
from remuda.profile.analysis import UNKNOWN
from remuda.profile.counters import POWER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from remuda.profile.analysis import Analysis, GpuRow

#: From here on it is said.
_IDLE: Final = 0.5
_LIMITED_S: Final = 60.0
_LIMITED: Final = 0.01
_SEEN: Final = 0.98
_NOTES: Final = 5
#: GPUs that are named one by one; more are counted.
_NAMED: Final = 4
#: Sentences of one kind about one node; more become one.
_APART: Final = 2


def facts(analysis: Analysis, span: str = "") -> list[str]:
    """Sentences about what deserves a look, the gravest first; empty where nothing does and no energy is known.

    Args:
        analysis: of a recording, or of the last hour of one.
        span: how people call its time, as `the last hour`; empty for its length.
    """
    span = span or f"the {show_duration((analysis.end_us - analysis.begin_us) / 1e6)} that were recorded"
    rows = analysis.gpus
    said = [
        *_told(analysis),
        *_errors(rows),
        *_alike(rows, lambda row: _idle(row, span)),
        *_alike(rows, lambda row: _limit(row, row.heat_s, "heat")),
        *_alike(rows, lambda row: _limit(row, row.power_s, "the power limit")),
        *_alike(rows, _seen),
        *_shared(analysis),
        *_energy(analysis, span),
    ]
    nodes = {row.node for row in rows}
    if len(nodes) != 1:
        return said
    node = next(iter(nodes))
    return [one.replace(f" of {node}", "").removeprefix(f"on {node}: ") for one in said]


class _Measure(NamedTuple):
    """What is to be said of a GPU: words in which `{0}` is its name, `{1}` how much, and `{was}` the verb."""

    words: str
    size: float
    text: str


def _alike(rows: Iterable[GpuRow], measure: Callable[[GpuRow], _Measure | None]) -> list[str]:
    """A sentence for those GPUs of a node that have the same; where many differ, one from the least to the most."""
    found: dict[tuple[str, str], dict[str, list[tuple[float, GpuRow]]]] = {}
    for row in rows:
        if (one := measure(row)) is not None:
            of_node = found.setdefault((row.node, one.words), {})
            of_node.setdefault(one.text, []).append((one.size, row))
    return [
        words.format(f"{_names([row for _, row in mine])} of {node}", text, was="was" if len(mine) == 1 else "were")
        for (node, words), by_text in found.items()
        for text, mine in (_together(by_text) if len(by_text) > _APART else by_text).items()
    ]


def _together(by_text: Mapping[str, list[tuple[float, GpuRow]]]) -> dict[str, list[tuple[float, GpuRow]]]:
    least, *_, most = sorted(by_text, key=lambda text: by_text[text][0][0])
    every = [one for mine in by_text.values() for one in mine]
    return {f"{least} to {most}": sorted(every, key=lambda one: one[1].index)}


def _names(rows: Sequence[GpuRow]) -> str:
    if len(rows) > _NAMED:
        return f"{len(rows)} GPUs"
    numbers = [str(row.index) for row in rows]
    return f"GPU {numbers[0]}" if len(rows) == 1 else f"GPUs {', '.join(numbers[:-1])} and {numbers[-1]}"


def _idle(row: GpuRow, span: str) -> _Measure | None:
    if row.use.idle is None or row.use.idle < _IDLE:
        return None
    return _Measure(f"{{0}} {{was}} idle for {{1}} of {span}", row.use.idle, show_share(row.use.idle))


def _limit(row: GpuRow, seconds: float | None, why: str) -> _Measure | None:
    if seconds is None or seconds < min(_LIMITED_S, _LIMITED * row.use.seconds) or seconds <= 0:
        return None
    return _Measure(f"clocks of {{0}} were lowered by {why} for {{1}}", seconds, show_duration(seconds))


def _seen(row: GpuRow) -> _Measure | None:
    if row.share >= _SEEN or not row.gaps:
        return None
    words = f"{{0}} {{was}} not sampled for {{1}} of the time, in {show_counted(row.gaps, 'gap')}"
    return _Measure(words, 1 - row.share, show_share(1 - row.share))


def _told(analysis: Analysis) -> list[str]:
    """What the recorder saw of GPUs that are ill, the newest few, and which ones it did not sample."""
    faults, others = (
        list(dict.fromkeys(f"on {note.node}: {note.text}" for note in analysis.notes if note.kind == kind))
        for kind in ("fault", "gpu")
    )
    faults = faults[-_NOTES:]
    why = (
        (node, gpu, "it is split by MIG" if gpu.is_mig else "the driver told nothing of it")
        for node, gpu in analysis.unseen
    )
    return [
        *faults,  # First, and not displaced by newer words about sampling.
        *others[max(0, len(others) + len(faults) - _NOTES) :],
        *(f"GPU {gpu.index} of {node} was not sampled: {words}" for node, gpu, words in why),
    ]


def _errors(rows: Iterable[GpuRow]) -> list[str]:
    return [
        f"GPU {row.index} of {row.node} had {show_counted(row.errors, 'memory error')} that could not be corrected"
        for row in rows
        if row.errors
    ]


def _shared(analysis: Analysis) -> list[str]:
    shared = [row for row in analysis.gpus if row.use.is_shared]
    if not shared:
        return []
    strangers = any(UNKNOWN in row.owners or any(one.startswith("container:") for one in row.owners) for row in shared)
    who = "processes that belong to no task" if strangers else "several tasks"
    what = f"{_names(shared)} of {shared[0].node}" if len({row.node for row in shared}) == 1 else f"{len(shared)} GPUs"
    return [f"{what} had {who} at the same time; joules are split by their shares"]


def _energy(analysis: Analysis, span: str) -> list[str]:
    if analysis.joules is None:
        return []
    sources = {row.use.source for row in analysis.gpus if row.use.joules is not None}
    part = "" if sources == {POWER} else "in part "
    how = f", {part}as an integral of power" if any(POWER in source for source in sources) else ""
    gpus = show_counted(len(analysis.gpus), "GPU")
    return [f"{gpus} used {show_energy(analysis.joules)} in {span}{how}"]

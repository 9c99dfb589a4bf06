"""What an analysis says in sentences, for `explain` and for the top of a page. Pure."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from remuda.base.units import show_counted, show_duration
from remuda.profile.analysis import UNKNOWN
from remuda.profile.counters import POWER
from remuda.profile.tables import show_energy, show_share

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from remuda.profile.analysis import Analysis, GpuRow

#: From here on it is said.
_IDLE: Final = 0.5
_LIMITED_S: Final = 60.0
_LIMITED: Final = 0.01
_SEEN: Final = 0.98
_NOTES: Final = 5
#: GPUs that are named one by one; more are counted.
_NAMED: Final = 4


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


def _alike(rows: Iterable[GpuRow], say: Callable[[GpuRow], str]) -> list[str]:
    """One sentence for GPUs of which the same is to be said; `say` has `{0}` where their names are, and `{was}`."""
    found: dict[tuple[str, str], list[GpuRow]] = defaultdict(list)
    for row in rows:
        if words := say(row):
            found[row.node, words].append(row)
    return [
        words.format(f"{_names(mine)} of {node}", was="was" if len(mine) == 1 else "were")
        for (node, words), mine in found.items()
    ]


def _names(rows: Sequence[GpuRow]) -> str:
    if len(rows) > _NAMED:
        return f"{len(rows)} GPUs"
    numbers = [str(row.index) for row in rows]
    return f"GPU {numbers[0]}" if len(rows) == 1 else f"GPUs {', '.join(numbers[:-1])} and {numbers[-1]}"


def _idle(row: GpuRow, span: str) -> str:
    if row.use.idle is None or row.use.idle < _IDLE:
        return ""
    return f"{{0}} {{was}} idle for {show_share(row.use.idle)} of {span}"


def _limit(row: GpuRow, seconds: float | None, why: str) -> str:
    if seconds is None or seconds < min(_LIMITED_S, _LIMITED * row.use.seconds) or seconds <= 0:
        return ""
    return f"clocks of {{0}} were lowered by {why} for {_minutes(seconds)}"


def _seen(row: GpuRow) -> str:
    if row.share >= _SEEN or not row.gaps:
        return ""
    return f"{{0}} {{was}} not sampled for {show_share(1 - row.share)} of the time, in {show_counted(row.gaps, 'gap')}"


def _minutes(seconds: float) -> str:
    if seconds < 60:
        return show_counted(max(1, round(seconds)), "second")
    if seconds < 7200:
        return show_counted(round(seconds / 60), "minute")
    return f"{seconds / 3600:.1f} hours"


def _told(analysis: Analysis) -> list[str]:
    """What the recorder saw of GPUs that are ill, the newest few, and which ones it did not sample."""
    notes = [f"on {note.node}: {note.text}" for note in analysis.notes if note.kind in ("gpu", "fault")]
    why = (
        (node, gpu, "it is split by MIG" if gpu.is_mig else "the driver told nothing of it")
        for node, gpu in analysis.unseen
    )
    return [
        *list(dict.fromkeys(notes))[-_NOTES:],
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

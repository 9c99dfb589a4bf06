"""An analysis as cells: for a terminal, a page, CSV and JSON. Pure."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from remuda.base.text import plain_cell
from remuda.base.units import UNKNOWN, show_duration, show_energy, show_share, show_tenths
from remuda.profile.analysis import METRICS
from remuda.profile.counters import POWER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from remuda.profile.analysis import Analysis, GpuRow, ProcessRow, TaskRow, Use
    from remuda.profile.stats import Stat

#: Of GPUs in a table; all others are in JSON and CSV.
_SHOWN: Final = ("busy", "sm_active", "memory", "memory_percent", "watts", "temperature", "sm_clock")
_HEADINGS: Final = {metric.name: f"{metric.name.replace('_', ' ')}, {metric.unit}" for metric in METRICS}
#: Processes in a table.
MOST: Final = 50


class Table(NamedTuple):
    """A table for people.

    Attributes:
        title: what its rows are.
        columns: headings.
        rows: as many cells as columns.
        words: numbers of the columns that are words, not numbers.
        more: rows that were left out.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: frozenset[int] = frozenset({0})
    more: int = 0


def tables(analysis: Analysis) -> list[Table]:
    """GPUs, tasks and processes; without those that have no rows.

    A cell of a metric is `mean · p50 · p95 · max`, or one number where all four are that.
    """
    found = [_gpus(analysis.gpus), _tasks(analysis.tasks), _processes(analysis.processes)]
    return [_known(table) for table in found if table.rows]


def _known(table: Table) -> Table:
    """Without columns of which nothing is known."""
    kept = [at for at in range(len(table.columns)) if any(row[at] != UNKNOWN for row in table.rows)]
    rows = tuple(tuple(row[at] for at in kept) for row in table.rows)
    words = frozenset(number for number, at in enumerate(kept) if at in table.words)
    return table._replace(columns=tuple(table.columns[at] for at in kept), rows=rows, words=words)


def _gpus(rows: Sequence[GpuRow]) -> Table:
    nodes = {row.node for row in rows}
    shown = [name for name in _SHOWN if any(name in row.use.stats for row in rows)]

    def cells(row: GpuRow) -> tuple[str, ...]:
        name = f"{row.node} {row.index}" if len(nodes) > 1 else str(row.index)
        limits = (show_duration(one) if one else "0s" if one == 0 else UNKNOWN for one in (row.heat_s, row.power_s))
        return (
            name + (" (shared)" if row.use.is_shared else ""), show_share(row.use.idle), show_joules(row.use),
            *(show_stat(row.use.stats.get(one)) for one in shown), *limits, f"{row.use.samples:,}",
            show_share(row.share),
        )  # fmt: skip

    headings = (_HEADINGS[one] for one in shown)
    columns = ("GPU", "idle", "energy", *headings, "heat limit", "power limit", "samples", "seen")
    return Table("GPUs", columns, tuple(cells(row) for row in rows))


def _tasks(rows: Sequence[TaskRow]) -> Table:
    def cells(row: TaskRow) -> tuple[str, ...]:
        attempts = ", ".join(map(str, row.attempts)) or UNKNOWN
        shared = " (shared)" if row.use.is_shared else ""
        return (
            (row.task or "nobody") + shared, attempts, ", ".join(row.nodes), str(row.gpus),
            show_duration(row.use.seconds), show_share(row.use.idle), show_joules(row.use),
            show_stat(row.use.stats.get("busy")), show_stat(row.own), show_stat(row.use.stats.get("memory")),
        )  # fmt: skip

    columns = (
        "task", "attempts", "nodes", "GPUs", "GPU time", "idle", "energy", "busy, %", "own part, %", "memory, GiB",
    )  # fmt: skip
    return Table("Tasks", columns, tuple(cells(row) for row in rows), frozenset({0, 1, 2}))


def _processes(rows: Sequence[ProcessRow]) -> Table:
    def cells(row: ProcessRow) -> tuple[str, ...]:
        return (
            row.node, str(row.pid), row.name, row.task or UNKNOWN, ", ".join(map(str, row.gpus)),
            show_duration(row.seconds), show_stat(row.busy), show_stat(row.memory), show_energy(row.joules),
        )  # fmt: skip

    columns = ("node", "pid", "process", "task", "GPUs", "GPU time", "own part, %", "memory, GiB", "energy")
    kept = tuple(cells(row) for row in rows[:MOST])
    return Table("Processes", columns, kept, frozenset({0, 2, 3, 4}), max(0, len(rows) - MOST))


def show_stat(stat: Stat | None) -> str:
    """`mean · p50 · p95 · max`, or one number where all four are that."""
    if stat is None:
        return UNKNOWN
    shown = [show_tenths(value) for value in stat]
    return shown[0] if len(set(shown)) == 1 else " · ".join(shown)


def show_joules(use: Use) -> str:
    """With a mark where they are an integral of power."""
    mark = " (by power)" if use.joules is not None and POWER in use.source else ""
    return show_energy(use.joules) + mark


# For programs


def as_json(analysis: Analysis) -> dict[str, Any]:
    """All rows with all numbers, in the units of `METRICS`; what is not known is null or not there."""
    return {
        "begin": _time(analysis.begin_us), "end": _time(analysis.end_us), "joules": analysis.joules,
        "units": {metric.name: metric.unit for metric in METRICS},
        "gpus": [_gpu_json(row) for row in analysis.gpus], "tasks": [_task_json(row) for row in analysis.tasks],
        "processes": [_process_json(row) for row in analysis.processes],
        "not_sampled": [{"node": node, "index": gpu.index, "uuid": gpu.uuid, "mig": gpu.is_mig}
                        for node, gpu in analysis.unseen],
        "notes": [{"at": _time(note.at_us), "node": note.node, "kind": note.kind, "text": note.text}
                  for note in analysis.notes],
    }  # fmt: skip


def _time(at_us: int) -> str:
    return datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(timespec="milliseconds")


def _stats_json(stats: Mapping[str, Stat | None]) -> dict[str, Any]:
    return {name: None if stat is None else stat._asdict() for name, stat in stats.items()}


def _use_json(use: Use) -> dict[str, Any]:
    return {
        "samples": use.samples, "seconds": use.seconds, "idle": use.idle, "joules": use.joules,
        "joules_from": use.source, "shared": use.is_shared, **_stats_json(use.stats),
    }  # fmt: skip


def _gpu_json(row: GpuRow) -> dict[str, Any]:
    return {
        "node": row.node, "index": row.index, "uuid": row.uuid, "name": row.name, "expected": row.expected,
        "share": row.share, "gaps": row.gaps, "heat_limited_s": row.heat_s, "power_limited_s": row.power_s,
        "counter_restarts": row.restarts, "uncorrected_errors": row.errors, "tasks": list(row.owners),
        **_use_json(row.use),
    }  # fmt: skip


def _task_json(row: TaskRow) -> dict[str, Any]:
    return {
        "task": row.task, "attempts": list(row.attempts), "nodes": list(row.nodes), "gpus": row.gpus,
        **_stats_json({"own": row.own}), **_use_json(row.use),
    }  # fmt: skip


def _process_json(row: ProcessRow) -> dict[str, Any]:
    return {
        "node": row.node, "pid": row.pid, "name": row.name, "task": row.task, "gpus": list(row.gpus),
        "seconds": row.seconds, "joules": row.joules, **_stats_json({"busy": row.busy, "memory": row.memory}),
    }  # fmt: skip


def as_csv(analysis: Analysis) -> str:
    """One table of all rows; `row` says which kind each is, a statistic has a column (`busy_p95`)."""
    kinds: list[tuple[str, Callable[[Any], dict[str, Any]], Sequence[Any]]] = [
        ("gpu", _gpu_json, analysis.gpus), ("task", _task_json, analysis.tasks),
        ("process", _process_json, analysis.processes),
    ]  # fmt: skip
    flat = [{"row": kind, **_flat(of(row))} for kind, of, rows in kinds for row in rows]
    columns = list(dict.fromkeys(name for row in flat for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns or ["row"], restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: plain_cell(value) for name, value in row.items()} for row in flat)
    return out.getvalue()


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            found |= {f"{name}_{part}": number for part, number in value.items()}
        elif isinstance(value, list):
            found[name] = " ".join(map(str, value))
        elif value is not None:
            found[name] = value
    return found

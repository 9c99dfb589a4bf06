"""What there is as flat rows that are ready to show: `h` the host, `w/NAME` workloads, `t/NAME/GROUP/INDEX` tasks.

Nothing in a row changes by itself: no ages, no times of the last report. Tasks, intents and views of routers are
replaced when they change, so a row is made again only where one of them is another object than at the last look.
"""

from __future__ import annotations

from collections import Counter
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any, Final

from remuda.base.units import show_counted, show_figures
from remuda.supervise.model import RUNNING, Phase
from remuda.supervise.summary import ENDED, PAUSED, by_role, current, summarise
from remuda.views.columns import state
from remuda.views.queries import routed
from remuda.wire.report import without_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from remuda.backends.base import TaskKey
    from remuda.supervise.model import Task, Want
    from remuda.supervise.summary import WorkloadSummary
    from remuda.views.queries import Queries
    from remuda.views.workloads import RouterView

Cells = dict[str, Any]
Delta = dict[str, Cells | None]
"""Cells that have changed, by the key of their row; None: the row is gone."""
HEAD: Final = "h"
_WEIGHTY: Final = attrgetter(
    "key", "phase", "attempt", "generation", "node", "since", "submitted_at", "cause", "ending", "yields_at", "never"
)
"""What a row or a summary is made of besides reason and numbers."""
_SUMS: Final = ("tokens_per_s", "gpu_count", "gpu_power")
_WORDS: Final = {5: "running", 4: "starting", 3: "waiting", 1: "in trouble", 6: "ended"}
_GPUS: Final = 32
"""A workload shows the GPUs of so many tasks at most."""


class Board:
    """Rows over one supervisor. Not thread-safe: the host calls it from its event loop."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries
        self.rows: dict[str, Cells] = {}
        """As of the last look."""
        self._seen: dict[str, _Seen] = {}

    def look(self, *, numbers: bool = True) -> Delta:
        """Make rows again whose objects are others; what of them has changed.

        Args:
            numbers: also where nothing but numbers and the last line of an output are others.
        """
        changed: Delta = {}
        supervisor, routers = self._queries.supervisor, self._queries.routers
        for name in [name for name in self._seen if name not in supervisor.wants]:
            self._drop([f"w/{name}", *self._seen.pop(name).keys.values()], changed)
        for name, want in supervisor.wants.items():
            tasks, router = supervisor.tasks(name), routers.get(name)
            silence = supervisor.unreachable.get(want.workload.backend, "")
            seen = self._seen.get(name)
            if seen is None:
                seen = self._seen[name] = _Seen(want)
            if not seen.is_as(want, tasks, router, silence):
                self._take(seen, tasks, changed, numbers=numbers)
        if changed or HEAD not in self.rows:
            self._put(HEAD, _head(self._seen.values(), self.rows), changed)
        return changed

    def _take(self, seen: _Seen, tasks: Mapping[TaskKey, Task], changed: Delta, *, numbers: bool) -> None:
        """Take in what of one workload is another object."""
        moved, is_weighty = seen.moved(tasks, numbers=numbers)
        if not moved and not is_weighty and not seen.is_around:
            return
        if is_weighty:
            before = seen.keys
            seen.sum_up(tasks)
            self._drop([key for task, key in before.items() if task not in seen.keys], changed)
            moved += [tasks[task] for task in seen.keys.keys() - before.keys()]
        for task in moved:
            if key := seen.keys.get(task.key):
                self._put(key, seen.task_row(task), changed)
        levels = [self.rows[key]["gpus"] for key in seen.keys.values()]
        seen.count(tasks)
        self._put(f"w/{seen.name}", seen.row(tasks, levels, self._queries.created.get(seen.name, 0.0)), changed)

    def _put(self, key: str, row: Cells, changed: Delta) -> None:
        old = self.rows.get(key)
        cells = row if old is None else {name: value for name, value in row.items() if old[name] != value}
        if cells:
            self.rows[key] = row
            changed[key] = {**(changed.get(key) or {}), **cells}

    def _drop(self, keys: Sequence[str], changed: Delta) -> None:
        for key in keys:
            if self.rows.pop(key, None) is not None:
                changed[key] = None


class _Seen:
    """One workload as it was last looked at."""

    def __init__(self, want: Want) -> None:
        self.name = want.workload.name
        self.keys: dict[TaskKey, str] = {}
        """Of its tasks that are shown, in their order, with the keys of their rows."""
        self.numbers: dict[str, float] = {}
        """Of all its tasks together."""
        self.is_around = False
        """Its router or its backend are others than at the last look."""
        self._want = want
        self._tasks: list[Task] = []
        self._router: RouterView | None = None
        self._silence = ""
        self._is_new = True
        self._roles: dict[str, str] = {}
        self._summary: WorkloadSummary | None = None
        self._ready = ""

    def is_as(self, want: Want, tasks: Mapping[TaskKey, Task], router: RouterView | None, silence: str) -> bool:
        """Whether nothing is another object; what is around the tasks is taken in."""
        self._is_new |= want is not self._want
        self.is_around = router is not self._router or silence != self._silence
        self._want, self._router, self._silence = want, router, silence
        is_same = len(tasks) == len(self._tasks) and all(map(is_, tasks.values(), self._tasks))
        return is_same and not self._is_new and not self.is_around

    def moved(self, tasks: Mapping[TaskKey, Task], *, numbers: bool) -> tuple[list[Task], bool]:
        """Tasks that are others, and whether the summary may be; those are taken in, and no other ones."""
        if self._is_new or len(tasks) != len(self._tasks):
            self._tasks = list(tasks.values())
            return self._tasks[:], True
        found, is_weighty = [], False
        for number, (task, old) in enumerate(zip(tasks.values(), self._tasks, strict=True)):
            if task is old:
                continue
            is_news = _is_news(old, task, numbers=numbers)
            if is_news or numbers:
                self._tasks[number] = task
                found.append(task)
                is_weighty |= is_news
        return found, is_weighty

    def sum_up(self, tasks: Mapping[TaskKey, Task]) -> None:
        """How it is as a whole."""
        want, self._is_new = self._want, False
        self._roles = {group.name: group.role.value for group in want.workload.groups}
        self._summary = summarise(want, tasks)
        self.keys = {key: f"t/{self.name}/{key.group}/{key.index}" for key in sorted(current(want, tasks))}
        self._ready = f"{self._summary.ready}/{self._summary.wanted}"
        if want.workload.is_array:
            self._ready = f"{sum(tasks[key].phase is Phase.DONE for key in self.keys)}/{self._summary.wanted} done"
        if len({group.role for group in want.workload.groups if group.role.works}) > 1:
            counted = by_role(want, tasks).items()
            self._ready = " · ".join(f"{role.value} {ready}/{wanted}" for role, (ready, wanted) in counted)

    def count(self, tasks: Mapping[TaskKey, Task]) -> None:
        """Add up the numbers of its tasks."""
        found: dict[str, float] = {}
        for key in self.keys:
            task = tasks[key]
            if task.phase in RUNNING:
                for name in _SUMS:
                    if name in task.metrics:
                        found[name] = found.get(name, 0.0) + task.metrics[name]
        self.numbers = found

    def task_row(self, task: Task) -> Cells:
        """The cells of one task."""
        is_new = not task.failures and task.attempt == 0
        word, tone, rank = state(task.phase, is_new=is_new, is_never=bool(task.never), yields=task.yields_at > 0)
        return {
            "name": f"{task.key.group}/{task.key.index}", "of": self.name, "uid": self._want.workload.uid,
            "role": self._roles[task.key.group], "state": word, "tone": tone, "rank": rank, "node": task.node,
            "attempt": task.attempt, "gpus": _level(task), "rate": _rate(task), "since": task.since,
            "reason": task.never or task.reason,
        }  # fmt: skip

    def row(self, tasks: Mapping[TaskKey, Task], levels: Sequence[str], created_at: float) -> Cells:
        """The cells of the workload.

        Args:
            tasks: of it.
            levels: of the GPUs of its tasks.
            created_at: when it was brought up.
        """
        assert self._summary is not None
        want, workload = self._want, self._want.workload
        mine = [tasks[key] for key in self.keys]
        summary = routed(self._summary, want, ((self._roles[one.key.group], one.url) for one in mine), self._router)
        never = any(task.never for task in mine) and not summary.ready
        word, tone, rank = state(summary.phase, is_never=never and summary.phase not in ENDED)
        is_paused = want.paused and want.running
        has_ended = summary.phase in ENDED
        first = _rate(mine[0]) if len(mine) == 1 else ""
        tokens = self.numbers.get("tokens_per_s")
        return {
            "name": self.name, "kind": workload.kind.value, "uid": workload.uid,
            "state": f"{word}, paused" if is_paused and word != "paused" else word, "tone": tone, "rank": rank,
            "ready": "" if has_ended else self._ready, "gpus": "".join(levels)[:_GPUS],
            "rate": first if tokens is None else _tokens(tokens),
            "since": max((task.since for task in mine), default=created_at) if has_ended else created_at,
            "reason": "; ".join(filter(None, (summary.reason or (PAUSED if is_paused else ""), self._silence))),
            "fold": workload.kind.traits.is_its_task or rank > 4,
        }  # fmt: skip


def _is_news(old: Task, task: Task, *, numbers: bool) -> bool:
    """Whether more than numbers is new; the last line of its output is news no more often than these."""
    if _WEIGHTY(old) != _WEIGHTY(task):
        return True
    return old.reason != task.reason and (numbers or without_log(old.reason) != without_log(task.reason))


def _level(task: Task) -> str:
    """How busy its GPUs are in the mean, 0 to 8; empty where nobody tells."""
    busy = task.metrics.get("gpu_busy") if task.phase in RUNNING else None
    return "" if busy is None else str(min(8, max(0, round(busy * 0.08))))


def _rate(task: Task) -> str:
    """What it does: tokens a second, or the steps that it told of."""
    metrics = task.metrics
    if task.phase is Phase.READY and "tokens_per_s" in metrics:
        return _tokens(metrics["tokens_per_s"])
    if "progress_step" not in metrics:
        return ""
    total = metrics.get("progress_total")
    return show_figures(metrics["progress_step"]) + (f"/{show_figures(total)}" if total else "")


def _tokens(number: float) -> str:
    return f"{show_figures(number)} tok/s"


def _head(seen: Iterable[_Seen], rows: Mapping[str, Cells]) -> Cells:
    """What there is in all, in one line."""
    numbers, ranks, count = dict.fromkeys(_SUMS, 0.0), Counter[int](), 0
    for one in seen:
        count += 1
        ranks[max(1, rows[f"w/{one.name}"]["rank"])] += 1
        for name, number in one.numbers.items():
            numbers[name] += number
    tokens, gpus, watts = numbers.values()
    told = ", ".join(f"{ranks[rank]} {word}" for rank, word in _WORDS.items() if ranks[rank])
    return {
        "head": f"{show_counted(count, 'item')}{': ' if told else ''}{told}",
        "rate": _tokens(tokens) if tokens else "",
        "gpus": f"{show_counted(round(gpus), 'GPU')}, {show_figures(watts)} W" if gpus else "",
    }

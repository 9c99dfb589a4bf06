"""Tasks of a workload as people see them: rows of a table, and lines where a table would not fit. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from remuda.base.units import show_count, show_duration
from remuda.cli.show import age
from remuda.specs.places import is_here

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WIDE: Final = 150
"""Characters in a line from which all columns fit."""
MIDDLE: Final = 96
"""From which the most wanted columns fit; below, each task has lines instead of a row."""
_RUNNING: Final = ("starting", "ready", "unhealthy")
_ENDED: Final = ("DONE", "FAILED", "STOPPED", "DOWN")
_ALL: Final = ("task", "phase", "node", "address", "http", "attempt", "restarts", "for", "seen", "queue", "tok/s")
_SOME: Final = ("task", "phase", "node", "restarts", "for", "queue", "tok/s")
_OF_GANG: Final = ("task", "phase", "node", "attempt", "for", "seen", "progress", "reason")


def ready(view: Mapping[str, Any], between: str = "/", word: str = "") -> str:
    """How many tasks are ready, by role where there are several, or of an array done; else empty once it has ended."""
    if is_array(view):
        return f"{sum(task['phase'] == 'done' for task in view['tasks'])}{between}{len(view['tasks'])} done"
    if view["phase"] in _ENDED:
        return ""
    roles = view.get("roles", ())
    if len(roles) > 1:
        return ", ".join(f"{one['role']} {one['ready']}/{one['wanted']}" for one in roles) + word
    return f"{view['ready']}{between}{view['wanted']}{word}"


def is_array(view: Mapping[str, Any]) -> bool:
    """Whether it is an array of runs."""
    return "array" in view.get("labels", ())


def columns(view: Mapping[str, Any], width: int) -> tuple[str, ...]:
    """Names of the columns of a workload's tasks for lines of `width` characters; 0: as many as there are."""
    shown = _columns(view, width)
    has_gpus = any("gpu_count" in task["metrics"] for task in view.get("tasks", ()))
    return (*shown[:-1], "GPU", shown[-1]) if has_gpus else shown


def _columns(view: Mapping[str, Any], width: int) -> tuple[str, ...]:
    if view.get("kind") == "gang" or is_array(view):
        return _OF_GANG
    is_remote = not is_here(view["backend"])
    if not width or width >= WIDE:
        return (*_ALL, *(("job", "ends in") if is_remote else ()), "reason")
    return (*_SOME, *(("ends in",) if is_remote else ()), "reason")


def row(task: Mapping[str, Any], shown: Sequence[str], now: float) -> list[str]:
    """Its cells. `now` is seconds since the epoch."""
    return [cell(task, column, now) for column in shown]


def cell(task: Mapping[str, Any], column: str, now: float) -> str:
    """One cell."""
    match column:
        case "phase":
            return "yields" if task.get("yields_at") and task["phase"] == "ready" else str(task["phase"])
        case "address":
            return str(task["url"]).removeprefix("http://")
        case "http":
            return str(task["http_status"] or "-")
        case "for":
            return age(task["since"], now)
        case "seen":
            return age(task["last_seen"], now)
        case "queue" | "tok/s":
            show = queue if column == "queue" else rate
            return show(task["metrics"]) if task["phase"] == "ready" else ""
        case "progress" | "GPU":
            show = gpu if column == "GPU" else steps
            return show(task["metrics"]) if show is steps or task["phase"] in _RUNNING else ""
        case "job":
            return "" if "/" in task["native"] else str(task["native"])  # the folder of a process of this machine
        case "ends in":
            return show_duration(max(0.0, task["limit_at"] - now)) if task["limit_at"] else ""
        case _:
            return str(task.get(column, ""))


def queue(numbers: Mapping[str, float]) -> str:
    """Requests that are worked on, and those that wait."""
    if "running" not in numbers and "waiting" not in numbers:
        return ""
    waiting = f" +{numbers['waiting']:.0f}" if numbers.get("waiting") else ""
    return f"{numbers.get('running', 0):.0f}{waiting}"


def steps(numbers: Mapping[str, float]) -> str:
    """How many steps a rank told of, and of how many."""
    if "progress_step" not in numbers:
        return ""
    total = f"/{numbers['progress_total']:g}" if numbers.get("progress_total") else ""
    return f"{numbers['progress_step']:g}{total}"


def gpu(numbers: Mapping[str, float]) -> str:
    """What its GPUs do, where they are recorded: mean % busy, memory of all, watts of all."""
    if "gpu_count" not in numbers:
        return ""
    memory, total = (numbers.get(name, 0) / 2**30 for name in ("gpu_memory", "gpu_memory_bytes"))
    known = [
        f"{numbers['gpu_busy']:.0f} %" if "gpu_busy" in numbers else "",
        f"{memory:.0f}/{total:.0f} GiB" if "gpu_memory" in numbers else "",
        f"{numbers['gpu_power']:.0f} W" if "gpu_power" in numbers else "",
    ]
    return " · ".join(part for part in known if part)


def rate(numbers: Mapping[str, float]) -> str:
    """Tokens generated in a second."""
    return show_count(round(numbers["tokens_per_s"])) if "tokens_per_s" in numbers else ""


def load(numbers: Mapping[str, float]) -> str:
    """What a whole swarm does, in one line; empty where no replica tells."""
    parts = []
    if "running" in numbers or "waiting" in numbers:
        parts.append(f"{numbers.get('running', 0):.0f} running, {numbers.get('waiting', 0):.0f} waiting")
    if "tokens_per_s" in numbers:
        parts.append(f"{rate(numbers)} tokens/s")
    return ", ".join(parts)


def lines(task: Mapping[str, Any], now: float, width: int) -> list[str]:
    """A task in words, the first line of what it is and the others indented, none longer than `width`."""
    head = f"{task['task']}  {task['phase']} for {age(task['since'], now)}"
    facts = [f"on {task['node']}" if task["node"] else ""]
    if task["phase"] == "ready":
        facts += [f"{queue(task['metrics'])} requests" if queue(task["metrics"]) else ""]
        facts += [f"{rate(task['metrics'])} tok/s" if rate(task["metrics"]) else ""]
    facts += [f"ends in {cell(task, 'ends in', now)}" if task["limit_at"] else ""]
    facts += [f"restarts {task['restarts']}" if task["restarts"] else ""]
    below = [", ".join(fact for fact in facts if fact), str(task["reason"])]
    return [cut(head, width), *(cut(f"  {text}", width) for text in below if text)]


def progress(task: Mapping[str, Any], now: float, width: int) -> str:
    """What a task that comes up does, in one line of at most `width` characters; 0: as long as it is."""
    facts = [f"on {task['node']}"] if task["node"] and task["phase"] in ("starting", "ready", "unhealthy") else []
    facts += [f"attempt {task['attempt']}"] if task["attempt"] > 1 else []
    what = f" {', '.join(facts)}" if facts else ""
    said = f"  {task['reason']}" if task["reason"] and task["phase"] != "ready" else ""
    since = f" {age(task['since'], now):>6}" if width else ""
    return cut(f"{task['task']:<12} {task['phase']:<10}{since}{what}{said}".rstrip(), width)


def chosen(tasks: Sequence[Mapping[str, Any]], room: int) -> tuple[list[Mapping[str, Any]], str]:
    """The tasks that `room` lines are for, in their order, and a line about the others: ready ones are left out."""
    if len(tasks) <= room:
        return list(tasks), ""
    order = {"ready": 2, "pending": 1}
    ranked = sorted(range(len(tasks)), key=lambda n: (order.get(tasks[n]["phase"], 0), n))
    kept = sorted(ranked[: max(1, room - 1)])
    left = [tasks[n]["phase"] for n in ranked[max(1, room - 1) :]]
    counts = ", ".join(f"{left.count(phase)} {phase}" for phase in dict.fromkeys(left))
    return [tasks[n] for n in kept], f"and {counts}"


def cut(text: str, width: int) -> str:
    """`text` in at most `width` characters; 0: as it is."""
    return text if not width or len(text) <= width else f"{text[: max(0, width - 1)]}…"

"""Watching something come up: one live line a task on a terminal, one line a change when piped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remuda.base.units import show_counted, show_duration
from remuda.cli import taskview
from remuda.cli.show import console, echo, is_terminal, say, style_of, words
from remuda.client import swarms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def until_up(view: dict[str, Any], planned: Mapping[str, Any]) -> dict[str, Any]:
    """Wait until `view`'s workload is up, showing what each task does; returns the last view.

    Args:
        view: as it was accepted.
        planned: its plan, as `client.submission` describes it.

    Raises:
        RemudaError: it failed.
        TimedOut: it took longer than the document allows.
    """
    try:
        views = swarms.wait_up(view["name"], planned["wait_s"], ends_with=planned["ends_with"])
        return _live(views) if is_terminal() else _plain(views)
    except KeyboardInterrupt:
        name = view["name"]
        say(f"{name} is still coming up: remuda status {name} --watch; take it down with remuda down {name}")
        raise


def _plain(views: Iterator[dict[str, Any]]) -> dict[str, Any]:
    """A line whenever a task does something else: its last line of output alone is no news."""
    told: dict[str, str] = {}
    last: dict[str, Any] = {}
    for last in views:
        for task in last["tasks"]:
            news = taskview.progress({**task, "reason": swarms.gist(task["reason"])}, 0.0, 0)
            if told.get(task["task"]) != news:
                told[task["task"]] = news
                say(taskview.progress(task, 0.0, 0))
    return last


def _live(views: Iterator[dict[str, Any]]) -> dict[str, Any]:
    from rich.live import Live
    from rich.spinner import Spinner

    last: dict[str, Any] = {}
    screen, spinner = console(stderr=True), Spinner("dots")

    def drawn() -> Any:
        return _drawing(last, spinner, screen.width, screen.height) if last else ""

    with Live(get_renderable=drawn, console=screen, refresh_per_second=8, transient=True):
        for last in views:  # noqa: B007 - it is drawn
            pass
    return last


def _drawing(view: dict[str, Any], spinner: Any, width: int, height: int) -> Any:
    import time

    from rich.table import Table

    drawn = Table.grid(padding=(0, 2))
    drawn.add_row(spinner, words(_headline(view, time.time(), width - 4), "bold"))
    tasks, more = taskview.chosen(view["tasks"], max(3, height - 2))
    for task in tasks:
        drawn.add_row("", words(taskview.progress(task, time.time(), max(20, width - 4)), style_of(task["phase"])))
    if more:
        drawn.add_row("", words(more))
    return drawn


def _headline(view: dict[str, Any], now: float, width: int) -> str:
    ready = taskview.ready(view, " of ") or f"{view['ready']} of {view['wanted']}"
    text = f"{view['name']}: {ready} ready after {show_duration(now - view['created_at'])}"
    said = view["unreachable"] or (view["reason"] if view["ready"] >= view["wanted"] else "")
    return taskview.cut(f"{text}; {said}" if said else text, width)


def announce(view: dict[str, Any]) -> None:
    """Print the endpoint, and how to use it."""
    if view["phase"] not in swarms.UP:
        say(f"{view['name']} is {view['phase']}: remuda status {view['name']}")
        return
    ready = f"{view['ready']} of {show_counted(view['wanted'], 'replica')}"
    if len(view.get("roles", ())) > 1:
        ready = taskview.ready(view)
    say(f"{view['name']} is up: {ready}, model {view['model']}")
    echo(f"OPENAI_BASE_URL={view['endpoint']}/v1")
    if view["reason"]:
        say(f"  {view['reason']}")

"""Watching something come up: one live line a task on a terminal, one line a change when piped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from remuda.base.units import show_duration
from remuda.cli.show import console, is_terminal, say, style_of
from remuda.control import swarms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from remuda.plan.model import Workload


def until_up(view: dict[str, Any], workload: Workload) -> dict[str, Any]:
    """Wait until `view`'s workload is up, showing what each task does; returns the last view.

    Raises:
        RemudaError: it failed.
        TimedOut: it took longer than the document allows.
    """
    limit = workload.endpoint.wait_s if workload.endpoint else 600.0
    views = swarms.wait_up(view["name"], limit)
    return _live(views) if is_terminal() else _plain(views)


def _plain(views: Iterator[dict[str, Any]]) -> dict[str, Any]:
    told: dict[str, str] = {}
    last: dict[str, Any] = {}
    for last in views:
        for task in last["tasks"]:
            line = _line(task)
            if told.get(task["task"]) != line:
                told[task["task"]] = line
                say(line)
    return last


def _line(task: dict[str, Any]) -> str:
    reason = f"  {task['reason']}" if task["reason"] else ""
    return f"{task['task']:<12} {task['phase']:<10}{reason}"


def _live(views: Iterator[dict[str, Any]]) -> dict[str, Any]:
    from rich.live import Live

    last: dict[str, Any] = {}
    with Live(console=console(stderr=True), refresh_per_second=8, transient=True) as live:
        for last in views:
            live.update(_drawing(last))
    return last


def _drawing(view: dict[str, Any]) -> Any:
    import time

    from rich.spinner import Spinner
    from rich.table import Table
    from rich.text import Text

    drawn = Table.grid(padding=(0, 2))
    drawn.add_row(Spinner("dots"), Text(f"{view['name']}: {view['ready']} of {view['wanted']} ready", style="bold"))
    for task in view["tasks"]:
        since = show_duration(max(0.0, time.time() - task["since"]))
        words = Text(f"{task['task']:<12} {task['phase']:<10} {since:>6}  {task['reason']}"[:110])
        words.stylize(style_of(task["phase"]))
        drawn.add_row("", words)
    return drawn


def announce(view: dict[str, Any]) -> None:
    """Print the endpoint, and how to use it."""
    if view["phase"] not in swarms.UP:
        say(f"{view['name']} is {view['phase']}: remuda status {view['name']}")
        return
    say(f"{view['name']} is up: {view['ready']} of {view['wanted']} replicas, model {view['model']}")
    click.echo(f"OPENAI_BASE_URL={view['endpoint']}/v1")
    if view["reason"]:
        say(f"  {view['reason']}")

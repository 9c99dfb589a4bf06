"""`status`, `logs`, `explain`, `events`: look at what runs."""

from __future__ import annotations

import json
import shutil
import time
from typing import Any

import click

from remuda.base.units import show_count, show_duration
from remuda.cli.show import age, is_terminal, pairs, print_json, table


@click.command()
@click.argument("name", required=False)
@click.option("-a", "--all", "everything", is_flag=True, help="Those that are down, too.")
@click.option("-w", "--watch", is_flag=True, help="Show it again every two seconds.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(name: str | None, everything: bool, watch: bool, as_json: bool) -> None:
    """Show all workloads, or NAME with its tasks, router and endpoint."""
    from remuda.control.client import connect

    client = connect()
    while True:
        if name:
            view = client.get(f"/workloads/{name}", fresh="true")
            print_json(view) if as_json else show_workload(view)
        else:
            views = client.get("/workloads", everything=str(everything).lower())
            print_json(views) if as_json else show_list(views)
        if not watch:
            return
        time.sleep(2.0)
        click.clear()


def show_list(views: list[dict[str, Any]]) -> None:
    """One line a workload."""
    rows = [
        [view["name"], view["kind"], view["backend"], view["phase"], f"{view['ready']}/{view['wanted']}",
         age(view["created_at"]), view["endpoint"], view["reason"][:70]]
        for view in views
    ]  # fmt: skip
    table(["name", "kind", "backend", "phase", "ready", "age", "endpoint", "notes"], rows, empty="nothing runs")


def show_workload(view: dict[str, Any]) -> None:
    """One workload with its tasks."""
    if view["run"]:
        from remuda.cli.runs import show_run

        show_run(view)
        return
    pairs([
        ("name", f"{view['name']} ({view['kind']} on {view['backend']})"),
        ("phase", f"{view['phase']}: {view['ready']} of {view['wanted']} ready"),
        ("reason", view["reason"]),
        ("unreachable", view["unreachable"]),
        ("endpoint", f"{view['endpoint']}/v1" if view["endpoint"] else ""),
        ("model", view["model"]),
        ("router", _router(view)),
        ("age", age(view["created_at"])),
        ("files", view["run_dir"]),
    ])  # fmt: skip
    click.echo("")
    shown = _COLUMNS if not is_terminal() or shutil.get_terminal_size().columns >= _WIDE else _FEW
    if view["backend"] != "local":
        shown = (*shown[:-1], "job", "ends in", shown[-1])
    rows = [[_cell(task, column) for column in shown] for task in view["tasks"]]
    table(shown, rows, empty="no tasks yet")


_COLUMNS = ("task", "phase", "node", "address", "http", "attempt", "restarts", "for", "seen", "load", "reason")
_FEW = ("task", "phase", "address", "for", "reason")
_WIDE = 140


def _cell(task: dict[str, Any], column: str) -> str:
    cells = {
        "address": task["url"].removeprefix("http://"),
        "http": str(task["http_status"] or "-"),
        "for": age(task["since"]),
        "seen": age(task["last_seen"]),
        "load": _load(task["metrics"]),
        "job": task["native"],
        "ends in": show_duration(max(0.0, task["limit_at"] - time.time())) if task["limit_at"] else "",
        "reason": task["reason"][:60],
    }
    return cells.get(column) or str(task.get(column, ""))


def _router(view: dict[str, Any]) -> str:
    router = view["router"]
    if not router:
        return ""
    stats = router["stats"]
    text = f"{len(router['members'])} members"
    if stats.get("requests"):
        text += f", {show_count(stats['requests'])} requests, {show_count(stats.get('errors', 0))} errors"
        text += f", mean {stats.get('mean_s', 0) * 1000:.0f} ms, {stats.get('running', 0):.0f} in flight"
    return text


def _load(metrics: dict[str, float]) -> str:
    if not metrics:
        return ""
    text = f"{metrics.get('running', 0):.0f} run"
    if metrics.get("waiting"):
        text += f" {metrics['waiting']:.0f} wait"
    if "generated_tokens" in metrics:
        text += f" {show_count(metrics['generated_tokens'])} tok"
    return text


@click.command()
@click.argument("name")
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines until the task ends.")
@click.option("-n", "--lines", "tail", default=0, help="Only the last so many lines; 0: all.")
@click.option("--stderr", is_flag=True, help="Standard error, of scripts.")
@click.option("--attempt", default=0, type=click.IntRange(min=0), help="Of an earlier attempt; default: the newest.")
@click.option("--replica", type=click.IntRange(min=0), help="Number of the replica (default 0).")
@click.option("--task", default="", help="Any task, as group/index: router/0, replica/1, driver/0.")
@click.option("--json", "as_json", is_flag=True, help="Print each line as a JSON object of its own.")
def logs(
    name: str, follow: bool, tail: int, stderr: bool, attempt: int, replica: int | None, task: str, as_json: bool
) -> None:
    """Print the output of a task of NAME: of its newest attempt, if no other is named."""
    from remuda.control.client import connect

    if replica is not None and task:
        raise click.UsageError("give --replica or --task, not both")
    chosen = task or (f"replica/{replica}" if replica is not None else "")
    asked = {"follow": str(follow).lower(), "stderr": str(stderr).lower(), "tail": tail, "attempt": attempt}
    lines = connect().lines(f"/workloads/{name}/logs", task=chosen, **asked)
    for line in lines:
        click.echo(json.dumps({"line": line}, ensure_ascii=False) if as_json else line)


@click.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(name: str, as_json: bool) -> None:
    """Say why NAME is as it is: states, reasons, what ended and why, with the evidence."""
    from remuda.control.client import connect

    answer = connect().get(f"/workloads/{name}/explain")
    if as_json:
        print_json(answer)
        return
    for line in answer["text"]:
        click.echo(line)


@click.command()
@click.argument("name")
@click.option("-n", "--lines", "limit", default=50, show_default=True, help="The last so many.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def events(name: str, limit: int, as_json: bool) -> None:
    """Print the story of NAME: every move of its tasks and every change of intent, oldest first."""
    from remuda.control.client import connect

    story = connect().get(f"/workloads/{name}/events", limit=limit)
    if as_json:
        print_json(story)
        return
    rows = [
        [time.strftime("%m-%d %H:%M:%S", time.localtime(line["at"])), line["task"] or "-", str(line["attempt"] or "-"),
         line["phase"] or line["kind"], line["reason"]]
        for line in story
    ]  # fmt: skip
    table(["time", "task", "attempt", "what", "reason"], rows, empty=f"{name} has no story yet")

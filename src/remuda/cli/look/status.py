"""`status`, `logs`, `explain`, `events`: look at what runs."""

from __future__ import annotations

import json
import shutil
import time
from functools import partial
from typing import Any

import click

from remuda.base.ids import api_path
from remuda.base.text import clean_json
from remuda.base.units import show_count, show_duration
from remuda.cli import taskview
from remuda.cli.fleet.head import fleet_line
from remuda.cli.lazy import examples, named
from remuda.cli.show import age, echo, is_terminal, looked, pairs, print_json, prose, say, style_of, table

_AGES_S = 1.0
"""How often ages are shown anew while nothing changes."""


@click.command(epilog=examples("remuda status", "remuda status chat --watch"))
@click.argument("name", required=False, shell_complete=named)
@click.option("-a", "--all", "everything", is_flag=True, help="Include stopped workloads.")
@click.option("-w", "--watch", is_flag=True, help="Redraw whenever something changes.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(name: str | None, everything: bool, watch: bool, as_json: bool) -> None:
    """Show everything you have running, or NAME with its tasks, router and endpoint."""
    from remuda.client import mirror, reconnect
    from remuda.client.http import looking

    client = looking()
    get = partial(reconnect.get, client) if watch else client.get
    path = "/workloads" if name is None else api_path(name)
    seen, notes, at = None, [""], 0.0
    for is_news in mirror.ticks(client, None if name is None else {name}, _AGES_S) if watch else [True]:
        at, before = time.time(), at
        if is_news:
            seen, host = get(path, everything=str(everything).lower(), fresh="true"), get("/host")
            notes = [host.get("note", ""), fleet_line(host.get("fleet") or {}) if name is None else ""]
        elif seen is None or as_json or not is_terminal():
            continue
        elif name is not None:
            for task in seen["tasks"]:  # who was heard is heard still: of whoever falls silent the host would tell
                task["last_seen"] += at - before if task["last_seen"] else 0.0
        if watch:
            click.clear()  # only now, so that the screen is never empty while the host is asked
        if as_json:
            print_json(seen)
        else:
            show_workload(seen) if name is not None else show_list(seen)
        for note in filter(None, notes):
            say(note)


def show_list(views: list[dict[str, Any]]) -> None:
    """One line a workload."""
    rows = [
        [view["name"], view["kind"], view["phase"], taskview.ready(view) or "-", view["backend"], view["endpoint"],
         age(view["created_at"])]
        for view in views
    ]  # fmt: skip
    columns = ["name", "kind", "state", "ready", "where", "endpoint", "age"]
    table(columns, rows, below=[str(view["reason"]) for view in views], rarely=["endpoint"], empty="nothing runs")


def show_workload(view: dict[str, Any]) -> None:
    """One workload with its tasks."""
    if view["run"]:
        from remuda.cli.runs.runs import show_run

        show_run(view)
        return
    from remuda.client.recordings import gpu_views

    ready = taskview.ready(view, " of ", " ready")
    pairs([
        ("name", f"{view['name']} ({view['kind']} on {view['backend']})"),
        ("phase", f"{view['phase']}: {ready}" if ready else view["phase"]),
        ("reason", view["reason"]),
        ("unreachable", view["unreachable"]),
        ("endpoint", f"{view['endpoint']}/v1" if view["endpoint"] else ""),
        ("model", view["model"]),
        ("router", _router(view)),
        ("load", taskview.load(view["load"])),
        ("rendezvous", view["labels"].get("rendezvous", "")),
        ("run id", view["labels"].get("run_id", "")),
        ("age", age(view["created_at"])),
        ("lifetime", _lifetime(view)),
        ("energy", gpu_views.energy(view)),
        ("files", view["run_dir"]),
    ])  # fmt: skip
    echo("")
    _show_tasks(view)


def _show_tasks(view: dict[str, Any]) -> None:
    """A table; on a terminal that is too narrow for one, lines for each task."""
    now = time.time()
    width = shutil.get_terminal_size().columns if is_terminal() else 0
    if 0 < width < taskview.MIDDLE:
        for task in view["tasks"]:
            first, *more = taskview.lines(task, now, width)
            echo(first, colour=style_of(task["phase"]))
            echo("\n".join(more)) if more else None
        return
    shown = taskview.columns(view, width)
    rows = [taskview.row(task, shown, now) for task in view["tasks"]]
    table(shown, rows, empty="no tasks yet")


def _lifetime(view: dict[str, Any]) -> str:
    if not view["ends_at"] or view["phase"] in ("DOWN", "FAILED"):
        return ""
    return f"over in {show_duration(max(0.0, view['ends_at'] - time.time()))}"


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


def _numbered(_ctx: click.Context, option: click.Parameter, number: int | None) -> str:
    """The task that `--replica 1` or `--rank 1` means."""
    return "" if number is None else f"{option.name}/{number}"


@click.command(
    epilog=examples(
        "remuda logs train -f", "remuda logs chat --task router/0 -n 20", "remuda logs chat --role decode -f"
    )
)
@click.argument("name", shell_complete=named)
@click.option("-f", "--follow", is_flag=True, help="Follow new lines until the task ends.")
@click.option(
    "-n", "--lines", "tail", default=0, type=click.IntRange(min=0), help="Show only the last N lines (0: all)."
)
@click.option("--stderr", is_flag=True, help="Show standard error (scripts only).")
@click.option("--attempt", default=0, type=click.IntRange(min=0), help="Number of the attempt; default: the newest.")
@click.option("--replica", type=click.IntRange(min=0), callback=_numbered, help="Number of the replica (default 0).")
@click.option("--rank", type=click.IntRange(min=0), callback=_numbered, help="Number of a gang's rank (default 0).")
@click.option("--task", default="", help="Task as group/index: router/0, replica/1, driver/0, rank/3.")
@click.option("--role", default="", help="Role, such as decode: show all of its tasks; each line begins with its task.")
@click.option("--raw", "form", flag_value="raw", help="Raw output, including ANSI escape codes.")
@click.option("--json", "form", flag_value="json", help="Print each line as a JSON object.")
def logs(name: str, follow: bool, tail: int, stderr: bool, attempt: int, form: str | None, **named: Any) -> None:
    """Print or follow the output of a task of NAME; default: its newest attempt."""
    from remuda.client import reconnect
    from remuda.client.http import looking

    given = [text for text in named.values() if text]
    if len(given) > 1:
        raise click.UsageError("give one of --replica, --rank, --task and --role")
    asked = {"stderr": str(stderr).lower(), "tail": tail, "attempt": attempt}
    if named["role"]:
        from remuda.client.role_logs import lines_of_role

        for task, line in lines_of_role(looking(starts=True), name, named["role"], follow=follow, **asked):
            _print_line(line, form, task)
        return
    client, path, asked = looking(starts=True), api_path(name, "logs"), {**asked, "task": "".join(given)}
    for line in reconnect.follow(client, path, **asked) if follow else client.lines(path, **asked):
        _print_line(line, form)


def _print_line(line: str, form: str | None, task: str = "") -> None:
    """One line of output, and with `task` who wrote it."""
    if form == "json":
        who = {"task": task} if task else {}
        click.echo(clean_json(json.dumps({**who, "line": line}, ensure_ascii=False)))
        return
    text = f"{task}: {line}" if task else line
    click.echo(text, color=True) if form == "raw" else echo(text)


_ALL_LIVES = click.option("--all-lives", is_flag=True, help="Include earlier workloads of the same name.")


@click.command(epilog=examples("remuda explain train", "remuda explain train --json"))
@click.argument("name", shell_complete=named)
@_ALL_LIVES
@click.option("--task", default="", metavar="TASK", help="Task to explain: group/index, or the index in an array.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(name: str, all_lives: bool, task: str, as_json: bool) -> None:
    """Explain why NAME is waiting, failed or was restarted: states, reasons and the evidence."""
    from remuda.client.recordings import gpu_views

    answer = looked(api_path(name, "explain"), all_lives=all_lives, task=task)
    answer["text"] += gpu_views.sentences(name)
    if as_json:
        print_json(answer)
        return
    advice = answer.get("advice", ())
    prose([*answer["text"], *(["what to do next:"] if advice else []), *(f"  {line}" for line in advice)])


@click.command()
@click.argument("name", shell_complete=named)
@click.option(
    "-n", "--lines", "limit", default=50, type=click.IntRange(min=1), show_default="50", help="Show the last N lines."
)
@_ALL_LIVES
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def events(name: str, limit: int, all_lives: bool, as_json: bool) -> None:
    """Show the history of NAME: every state change of its tasks and every request, oldest first."""
    story = looked(api_path(name, "events"), limit=limit, all_lives=all_lives)
    if as_json:
        print_json(story)
        return
    rows = [
        [time.strftime("%m-%d %H:%M:%S", time.localtime(line["at"])), line["task"] or "-", str(line["attempt"] or "-"),
         line["phase"] or line["kind"], line["reason"]]
        for line in story
    ]  # fmt: skip
    table(["time", "task", "attempt", "what", "reason"], rows, empty=f"{name} has no story yet")

"""`list`, `pause`, `unpause`, `pull`: look at supervised runs, change what shall become of them, fetch results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.base.hostlist import compress
from remuda.base.ids import api_path
from remuda.base.units import show_counted
from remuda.cli.lazy import examples, named
from remuda.cli.show import age, looked, pairs, print_json, say, table
from remuda.cli.taskview import is_array, ready

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.command(name="list")
@click.option("-a", "--all", "everything", is_flag=True, help="Include stopped runs.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(everything: bool, as_json: bool) -> None:
    """List your runs and gangs."""
    found = looked("/workloads", everything=str(everything).lower())
    views = [view for view in found if view["kind"] in ("run", "gang")]
    if as_json:
        print_json(views)
        return
    show_runs(views)


def show_runs(views: list[dict[str, Any]]) -> None:
    """A line each, with its reason below."""
    columns = ["name", "state", "where", "restarts", "heartbeat", "progress", "age"]
    rows, reasons = [_row(view) for view in views], [str(view["reason"]) for view in views]
    table(columns, rows, below=reasons, rarely=["restarts", "heartbeat", "progress"],
          empty="no runs; start one: remuda run train.sh")  # fmt: skip


def _row(view: dict[str, Any]) -> list[str]:
    run = view["run"] or _of_tasks(view)
    job, pool = run["job_id"] and f"job {run['job_id']}", run["pool"] and f"({run['pool']})"
    where = " ".join(filter(None, (run["node"], pool, job)))
    return [
        view["name"], _state(view), where or "-", str(run["restarts"] or "-"), age(run["heartbeat_at"]),
        ready(view) if is_array(view) else progress(run["progress"]), age(view["created_at"]),
    ]  # fmt: skip


@click.command(epilog=examples("remuda pull train", "remuda pull train checkpoints/last.pt --to ."))
@click.argument("name", shell_complete=named)
@click.argument("path", default="")
@click.option("--to", "folder", type=click.Path(file_okay=False), help="Folder to write to. [default: NAME-results]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def pull(name: str, path: str, folder: str | None, as_json: bool) -> None:
    """Fetch what NAME wrote on a machine that shares no directory; PATH: one file or folder of it."""
    from remuda.base.disk.paths import state_paths
    from remuda.client.results import pull as fetch

    to = Path(folder or f"{name}-results")
    made = [str(one) for one in fetch(looked(api_path(name)), state_paths().workloads, path, to)]
    if as_json:
        print_json(made)
        return
    say(f"{show_counted(len(made), 'file')} in {to}")


def _of_tasks(view: dict[str, Any]) -> dict[str, Any]:
    """What has several tasks in the columns of a run: the oldest sign of life of them, and all of their restarts."""
    tasks = view["tasks"]
    nodes = {task["node"] for task in tasks if task["node"]}
    signs = [task["last_seen"] for task in tasks if task["phase"] in ("starting", "ready", "unhealthy")]
    return {
        "job_id": "", "node": compress(nodes), "pool": "", "heartbeat_at": min(signs, default=0.0), "progress": {},
        "restarts": sum(max(0, task["attempt"] - 1) for task in tasks),
    }  # fmt: skip


def _state(view: dict[str, Any]) -> str:
    """Its state, and whether it is paused although something runs."""
    state = str(view["phase"])
    return f"{state} (paused)" if view["paused"] and state != "PAUSED" else state


def progress(told: dict[str, Any]) -> str:
    """What a script told of its progress, in few words; `-` for nothing."""
    if not told:
        return "-"
    step, total = told.get("step"), told.get("total")
    words = [f"{step:g}/{total:g}" if total else f"{step:g}"] if step is not None else []
    words += [f"{key}={value:.4g}" for key, value in told.items() if key not in ("step", "total")]
    return " ".join(words)[:40] or "-"


_YEAR_S = 360 * 86400.0
"""What Slurm calls a year is no limit."""


def show_run(view: dict[str, Any]) -> None:
    """One run in detail."""
    import time

    from remuda.base.units import show_duration
    from remuda.client.recordings import gpu_views

    run = view["run"]
    left = run["limit_at"] - time.time() if run["limit_at"] else 0.0
    until = run["keep_until"] - time.time() if run["keep_until"] else 0.0
    pairs([
        ("name", f"{view['name']} (run on {view['backend']}, {run['mode']})"),
        ("state", _state(view)),
        ("reason", view["reason"] or (view["tasks"][0]["reason"] if view["tasks"] else "")),
        ("never", run["never"]),
        ("unreachable", view["unreachable"]),
        ("job id", run["job_id"]),
        ("partition", run["pool"] + (f" (of {' → '.join(run['pools'])})" if len(run["pools"]) > 1 else "")),
        ("node", run["node"]),
        ("heartbeat", f"{age(run['heartbeat_at'])} ago" if run["heartbeat_at"] else ""),
        ("attempt", f"{run['attempt']}, {run['restarts']} restarts"),
        ("running for", age(run["started_at"]) if run["state"] in ("RUNNING", "STARTING") else ""),
        ("time limit in", show_duration(left) if 0 < left < _YEAR_S else ""),
        ("keeps going for", show_duration(until) if until > 0 else ""),
        ("progress", progress(run["progress"]) if run["progress"] else ""),
        ("GPUs", _gpus(view)),
        ("energy", gpu_views.energy(view)),
        ("last cause", run["cause"]),
        ("script", run["script"]),
        ("age", age(view["created_at"])),
        ("files", view["run_dir"]),
    ])  # fmt: skip


def _gpus(view: dict[str, Any]) -> str:
    """What its GPUs do now, where they are recorded."""
    from remuda.cli import taskview

    tasks = view["tasks"] if view["phase"] in ("RUNNING", "STARTING", "UNHEALTHY") else []
    return taskview.gpu(tasks[0]["metrics"]) if tasks else ""


def _verb(verb: str, names: Sequence[str], word: str, *, as_json: bool) -> None:
    from remuda.client import runs

    paused = {view["name"] for view in runs.look_up(names) if view["paused"]} if verb == "restart" else set()
    views = runs.change(verb, names)
    if as_json:
        print_json(views if len(views) > 1 else views[0])
        return
    for view in views:
        state = "" if verb == "restart" else f"; it is {view['phase']}"  # that begins with the host's next step
        more = ", and is no longer paused" if view["name"] in paused and not view["paused"] else ""
        say(f"{view['name']} {word}{more}{state} (remuda status {view['name']})")


@click.command()
@click.argument("names", nargs=-1, required=True, shell_complete=named)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def pause(names: tuple[str, ...], as_json: bool) -> None:
    """Stop restarting NAMES; what is running keeps running."""
    _verb("pause", names, "is paused: it will not be restarted", as_json=as_json)


@click.command()
@click.argument("names", nargs=-1, required=True, shell_complete=named)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def unpause(names: tuple[str, ...], as_json: bool) -> None:
    """Resume restarting NAMES."""
    _verb("unpause", names, "is no longer paused", as_json=as_json)


@click.command(epilog=examples("remuda restart train", "remuda restart chat prefill", "remuda restart sweep 7,9"))
@click.argument("names", nargs=-1, required=True, metavar="NAMES... | NAME GROUP | NAME INDICES", shell_complete=named)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def restart(names: tuple[str, ...], as_json: bool) -> None:
    """Restart NAMES: a run at once, without counting a failure; in a swarm, the tasks that failed or ended.

    NAME GROUP, such as replica or prefill, restarts all tasks of the group, running ones included, and what is one job
    with them. NAME INDICES, such as 7,9, restarts these tasks of an array.
    """
    from remuda.client.http import connect
    from remuda.client.runs import names_group

    if not names_group(names):
        _verb("restart", names, "is being restarted", as_json=as_json)
        return
    name, group = names
    view = connect().post(api_path(name, "restart"), group=group)
    with_it = str(view["labels"].get("pack", "")).split()
    what = f"{', '.join(with_it)} of {name}, which are one job, are" if group in with_it else f"{group} of {name} is"
    print_json(view) if as_json else say(f"{what} being restarted (remuda status {name})")

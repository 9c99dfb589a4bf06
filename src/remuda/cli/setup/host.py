"""`host start | stop | status | logs`."""

from __future__ import annotations

from typing import Any

import click

from remuda.cli.lazy import NearGroup
from remuda.cli.show import age, echo, pairs, print_json, say


@click.group(cls=NearGroup)
def host() -> None:
    """Manage the host, the process that keeps everything running; commands start it when they need it."""


@host.command()
@click.option("--foreground", is_flag=True, help="Run in this terminal, e.g. under systemd.")
@click.option("--wait", default="60s", show_default=True, metavar="TIME",
              help="Time to wait for a start that makes no progress.")  # fmt: skip
def start(foreground: bool, wait: str) -> int:
    """Start the host unless it is running."""
    if foreground:
        from remuda.host.server import main

        return main()
    from remuda.cli import typed
    from remuda.client.http import connect

    view = connect(wait_s=typed.duration(wait, "--wait")).get("/host")
    say(f"host {view['pid']} serves {view['home']}")
    return 0


@host.command()
@click.option("--timeout", default=15.0, show_default=True, help="Seconds to wait for the host's end.")
def stop(timeout: float) -> None:
    """Stop the host. Workloads keep running, unsupervised until a host starts again."""
    from remuda.base.units import show_counted
    from remuda.client.http import HostClient

    client = HostClient()
    if not client.is_up():
        say("no host is running")
        return
    left = client.stop(timeout)
    tasks = show_counted(left, "task", "keeps", "keep")
    say("the host has ended" + (f"; {tasks} running, unwatched" if left else ""))


@host.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(as_json: bool) -> None:
    """Show the host process."""
    from remuda.client.http import connect

    view: dict[str, Any] = connect(start=False).get("/host")
    if as_json:
        print_json(view)
        return
    pairs([
        ("host", f"pid {view['pid']} on {view['node']}, version {view['version']}"),
        ("up for", age(view["started_at"])),
        ("state directory", view["home"]),
        ("database", view["database"]),
        ("lease", str(view["fence"])),
        ("workloads", f"{view['workloads']}, {view['live_tasks']} live tasks"),
        ("reports", ", ".join(f"{count} {name}" for name, count in view["reports"].items())),
    ])  # fmt: skip


@host.command()
@click.option(
    "-n",
    "--lines",
    "tail",
    default=50,
    type=click.IntRange(min=0),
    show_default="50",
    help="Show the last N lines (0: all).",
)
@click.option("-f", "--follow", is_flag=True, help="Follow new lines.")
def logs(tail: int, follow: bool) -> None:
    """Print the host's log."""
    from remuda.base.disk.paths import state_paths
    from remuda.base.errors import NotFound
    from remuda.client import host_log

    path = state_paths().host_log
    if not path.exists():
        raise NotFound(f"there is no {path} yet", hint="remuda host start")
    host_log.read(path, echo, tail=tail, follow=follow)

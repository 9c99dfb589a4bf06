"""`host start | stop | status | logs`."""

from __future__ import annotations

from typing import Any

import click

from remuda.cli.fleet.head import fleet_line, tell_head, token
from remuda.cli.lazy import NearGroup, together
from remuda.cli.show import age, echo, pairs, print_json, say


@click.group(cls=NearGroup)
def host() -> None:
    """Manage the host, the process that keeps everything running; commands start it when they need it."""


host.add_command(token)
_PORT = click.IntRange(1, 65533)
_fleet = together(
    click.option("--port", type=_PORT, help="Make this machine the head of a fleet; its Slurm listens there (8090)."),
    click.option("--http-port", type=_PORT, help="Port of the fleet's HTTPS for clients (default: PORT + 1)."),
    click.option("--model-port", type=_PORT, help="Port where nodes give objects to each other (default: 9010)."),
    click.option("--host", "address", metavar="ADDRESS", help="Address at which nodes reach this machine."),
    click.option("--unpack", is_flag=True, help="Fetch Slurm and munge from Debian's packages, without root."),
    click.option("--lease", metavar="TIME", help="Time for which work on a node goes unheard at most (default: 3m)."),
)


@host.command()
@click.option("--foreground", is_flag=True, help="Run in this terminal, e.g. under systemd.")
@click.option("--wait", default="60s", show_default=True, metavar="TIME",
              help="Time to wait for a start that makes no progress.")  # fmt: skip
@_fleet
def start(foreground: bool, wait: str, lease: str | None, unpack: bool, **asked: Any) -> int:
    """Start the host unless it is running; with --port as the head of a fleet, as later hosts then are."""
    from remuda.base.disk.paths import state_paths
    from remuda.cli import typed

    asked["lease_s"] = None if lease is None else typed.duration(lease, "--lease")
    is_head = unpack or any(value is not None for value in asked.values())
    if foreground:
        if is_head:
            raise click.UsageError("say --port without --foreground once: each later host continues the fleet")
        from remuda.host.server import main

        return main()
    if is_head and asked["port"] is None and not (state_paths().fleet / "head.json").exists():
        raise click.UsageError("this host is not the head of a fleet: to make it one, say --port, too (--port 8090)")
    from remuda.client.http import connect

    if unpack:
        from remuda.fleet.joining import unpack_head

        asked["unpacked"] = unpack_head()
    client = connect(wait_s=typed.duration(wait, "--wait"))
    view = client.get("/host")
    say(f"host {view['pid']} serves {view['home']}")
    if is_head:
        tell_head(client.post("/fleet", asked), client)
    return 0


@host.command()
@click.option("--timeout", default=15.0, show_default=True, help="Seconds to wait for the host's end.")
@click.option("--fleet", is_flag=True, help="End the fleet, too: its nodes get nothing new, its controller ends.")
def stop(timeout: float, fleet: bool) -> None:
    """Stop the host. Workloads keep running, unsupervised until a host starts again."""
    from remuda.base.disk.paths import state_paths
    from remuda.base.units import show_counted
    from remuda.client.http import HostClient, connect

    client = connect() if fleet else HostClient()
    if fleet:
        client.post("/fleet/stop")
        say("the fleet's controller has ended; remuda host start --port begins it again, with the same nodes")
    if not client.is_up():
        say("no host is running")
        return
    left = client.stop(timeout)
    tasks = show_counted(left, "task", "keeps", "keep")
    say("the host has ended" + (f"; {tasks} running, unwatched" if left else ""))
    if state_paths().fleet_environment.exists():
        say("the fleet's controller keeps running, and its nodes their work; to end it, too: remuda host stop --fleet")


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
        ("fleet", fleet_line(view.get("fleet") or {}).removeprefix("fleet at ")),
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
@click.option("--controller", is_flag=True, help="Show the log of the fleet's slurmctld.")
def logs(tail: int, follow: bool, controller: bool) -> None:
    """Print the host's log, or that of its fleet's controller."""
    from remuda.base.disk.paths import state_paths
    from remuda.base.errors import NotFound
    from remuda.client import host_log
    from remuda.fleet.head import no_head

    paths = state_paths()
    path = paths.fleet / "log/slurmctld.log" if controller else paths.host_log
    if not path.exists():
        is_head = (paths.fleet / "head.json").exists()
        raise NotFound(f"there is no {path} yet", hint="remuda host start") if is_head or not controller else no_head()
    host_log.read(path, echo, tail=tail, follow=follow)

"""`sweep`: what the host carries out of a sweep, looked at, waited for and ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from remuda.base.errors import Interrupted
from remuda.base.ids import check_name
from remuda.cli.lazy import NearGroup, together
from remuda.cli.show import print_json, say, table

if TYPE_CHECKING:
    from remuda.client.http import HostClient
    from remuda.client.jobs.pool import Rows

_of_one = together(
    click.argument("name"), click.option("--json", "as_json", is_flag=True, help="Print its deployments as JSON.")
)


@click.group(cls=NearGroup)
def sweep() -> None:
    """Follow or end a sweep. `remuda apply FILE --sweep` begins it; it is called like its deployment."""


@sweep.command()
@_of_one
def status(name: str, as_json: bool) -> None:
    """Show the deployments of sweep NAME. For its points: remuda apply FILE --sweep --dry-run."""
    _show(_asked(name)[1]["rows"], as_json=as_json)


@sweep.command()
@_of_one
def wait(name: str, as_json: bool) -> int:
    """Follow sweep NAME to its end. Exit code 1: a deployment has failed, or lacks a point."""
    host, found = _asked(name)
    _show(rows := follow_sweep(host, found), as_json=as_json)
    return int(any(row["outcome"] == "failed" for row in rows))


@sweep.command()
@_of_one
def cancel(name: str, as_json: bool) -> None:
    """End what is left of sweep NAME. What was measured stays; `apply --sweep` measures the rest."""
    from remuda.client.jobs import pool

    host, _ = _asked(name)
    _show(pool.cancel(host, name), as_json=as_json)


def follow_sweep(host: HostClient, begun: dict[str, Any]) -> Rows:
    """Show how a sweep goes on until it is over, and what has failed; its deployments then."""
    from remuda.cli.jobs.pool import follow
    from remuda.client.jobs import pool

    name = begun["name"]
    try:
        rows = follow(pool.follow(host, name, begun["rows"]))
    except KeyboardInterrupt:
        raise Interrupted(f"sweep {name} keeps running without this terminal", hint=go_on(name)) from None
    for row in rows:
        if row["outcome"] == "failed":
            say(f"{row['name']} has failed: {row['reason']}")
    return rows


def go_on(name: str) -> str:
    """What to type of a sweep that is under way."""
    return f"follow it: remuda sweep wait {name}; end it: remuda sweep cancel {name}"


def _asked(name: str) -> tuple[HostClient, dict[str, Any]]:
    """The host, and a sweep as that has it."""
    from remuda.client import reconnect
    from remuda.client.http import connect

    host = connect()
    return host, reconnect.get(host, f"/campaigns/{check_name(name)}")


def _show(rows: Rows, *, as_json: bool) -> None:
    from remuda.cli.jobs.pool import step_of

    if as_json:
        print_json(rows)
        return
    shown = [[row["name"], step_of(row), row["phase"], row["reason"] or row["told"]] for row in rows]
    table(["deployment", "step", "phase", "reason"], shown)

"""`db upgrade | status | backup | prune`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from remuda.cli.lazy import NearGroup
from remuda.cli.show import pairs, print_json, say


@click.group(cls=NearGroup)
def db() -> None:
    """Manage the state database: SQLite in the state directory, or PostgreSQL by REMUDA_DATABASE_URL."""


@db.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(as_json: bool) -> None:
    """Show the database's location, revision, size and contents."""
    from remuda.client.upkeep import database

    data: dict[str, Any] = database.status()
    if as_json:
        print_json(data)
        return
    pairs([(name.replace("_", " "), _text(value)) for name, value in data.items()])


def _text(value: object) -> str:
    return ", ".join(f"{count} {name}" for name, count in value.items()) if isinstance(value, dict) else str(value)


@db.command()
def upgrade() -> None:
    """Bring the schema up to date, as every start of the host does; safe to run at the same time."""
    from remuda.client.upkeep import database

    say(f"the database is at revision {database.upgrade()}")


@db.command()
@click.argument("to", type=click.Path(path_type=Path))
def backup(to: Path) -> None:
    """Copy the database to TO while it is in use."""
    from remuda.client.upkeep import database

    say(f"{to.absolute()}: {database.backup(to.absolute()):,} bytes")


@db.command()
@click.argument("copy", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def restore(copy: Path) -> None:
    """Replace the database by COPY, made by `db backup`; the old one is kept beside it."""
    from remuda.client.upkeep import database

    aside = database.restore(copy.absolute())
    say("restored" + (f"; the old database is {aside}" if aside else ""))


@db.command()
@click.option("--older-than", default="30d", show_default=True, help="Age, e.g. 12h, 30d.")
def prune(older_than: str) -> None:
    """Delete old history and ended allocations, and workloads and jobs that have been down or done for --older-than."""
    from remuda.cli import typed
    from remuda.client.http import connect

    before = time.time() - typed.duration(older_than, "--older-than")
    gone = connect().post("/database/prune", {"before": before})
    gone["job folders"] = gone.pop("jobs", 0)
    say("forgot " + ", ".join(f"{count} {name}" for name, count in gone.items()))

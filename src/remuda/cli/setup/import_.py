"""`import shepherd`: import runs and bans of another supervisor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from remuda.cli.lazy import NearGroup
from remuda.cli.show import echo, print_json, say


@click.group(name="import", cls=NearGroup)
def import_() -> None:
    """Import runs and bans of another supervisor."""


@import_.command()
@click.argument("folder", default="~/.slurm_shepherd", type=click.Path(path_type=Path), metavar="[DIR]")
@click.option("--start", is_flag=True, help="Start the runs; otherwise they stay down until `remuda restart NAME`.")
@click.option("--dry-run", is_flag=True, help="Show what would be imported, and change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def shepherd(folder: Path, start: bool, dry_run: bool, as_json: bool) -> int:
    """Import runs and bans from Shepherd's state directory DIR (default ~/.slurm_shepherd), which stays unchanged.

    Files that cannot be imported are listed and skipped; the exit code is 1 then.
    """
    from remuda.client.upkeep import shepherd as seed

    found = seed.read(folder)
    result = seed.shown(found) if dry_run else seed.take(found, start=start)
    if as_json:
        print_json(result)
    else:
        _show(result, dry_run=dry_run, start=start)
    return 1 if result["problems"] else 0


def _show(result: dict[str, Any], *, dry_run: bool, start: bool) -> None:
    word = "would be imported" if dry_run else "is imported and started" if start else "is imported, and down"
    for run in result["runs"]:
        echo(f"run {run['name']} {word}" + (", paused" if run["paused"] else ""))
        for note in run.get("notes", []):
            say(f"  note: {note}")
    for ban in result["bans"]:
        node = ban["node"] if isinstance(ban, dict) else ban
        echo(f"node {node} {'would be' if dry_run else 'is'} banned")
    for problem in result["problems"]:
        say(f"not imported: {problem}")
    if result["runs"] and not dry_run and not start:
        say("begin one: remuda restart NAME")

"""`import shepherd | gswarm`: take over what another program has: runs, bans, settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from remuda.cli.lazy import NearGroup
from remuda.cli.show import echo, print_json, say


@click.group(name="import", cls=NearGroup)
def import_() -> None:
    """Take over what another program has: runs and bans, or its settings."""


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


@import_.command()
@click.argument("folder", default="~/.gswarm", type=click.Path(path_type=Path), metavar="[DIR]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def gswarm(folder: Path, as_json: bool) -> int:
    """Say what each key of gswarm's config.yaml in DIR (default ~/.gswarm) is here: a command, a default, or not used.

    Recordings in DIR_profiler_data are named, too. Nothing is changed. Keys that are not known are listed; the exit
    code is 1 then.
    """
    from remuda.client.upkeep import gswarm as seed

    found = seed.read(folder)
    if as_json:
        print_json(found.to_json())
        return 1 if found.problems else 0
    for one in found.keys:
        echo(f"{one.key}: {one.value}\n    {one.here}")
    for path in found.recordings:
        echo(f"{path}\n    remuda profiler analyze --data {path}")
    if found.defaults:
        from remuda.specs.reading.load import defaults_path

        echo(f"\nin {defaults_path()[0]}:\n\n{found.defaults}", nl=False)
    for problem in found.problems:
        say(f"not imported: {problem}")
    return 1 if found.problems else 0


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

"""`doctor`: diagnose problems, and clean up orphans."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from remuda.cli.show import age, agrees, echo, print_json, say, table

if TYPE_CHECKING:
    from remuda.client.upkeep.doctor import Examination

_MARKS = {"ok": "✓", "note": "○", "problem": "✗"}


@click.command()
@click.option("--clean", is_flag=True, help="End leftovers that were started from this state directory.")
@click.option("--gone-homes", is_flag=True, help="Extend --clean to leftovers of state directories that are gone.")
@click.option("--yes", is_flag=True, help="Do not ask before ending leftovers.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(clean: bool, gone_homes: bool, yes: bool, as_json: bool) -> int:
    """Diagnose problems with host, database, files and Slurm, and find every process and job that remuda started.

    Works without a host, and with a broken or newer database. Never touches leftovers of another existing state
    directory. Exit code 1: this state directory has problems or leftovers; those of others are notes.
    """
    from remuda.base.disk.paths import state_paths
    from remuda.client.upkeep import doctor as control
    from remuda.look import run_dirs
    from remuda.views.actions import cleaning

    if gone_homes and not clean:
        raise click.UsageError("--gone-homes goes with --clean")
    paths = state_paths()
    seen = control.examine(paths)
    wanted = control.to_clean(seen, gone_homes=gone_homes) if clean else []
    if clean and (wanted or seen.stale_secrets):
        if not as_json:
            _show(seen)
        if not yes and not agrees(cleaning(len(wanted), len(seen.stale_secrets)), "--yes"):
            say("nothing was ended")
            return 1
        run_dirs.remove_secrets(seen.stale_secrets)
        control.clean(paths, wanted, say)
        seen = control.examine(paths)
        if not as_json:
            echo("\nafterwards:\n")
    if as_json:
        print_json(seen.to_json())
    else:
        _show(seen)
    is_left = clean and bool(control.to_clean(seen, gone_homes=gone_homes))
    return 0 if seen.is_well and not is_left else 1


def _show(seen: Examination) -> None:
    for check in seen.checks:
        echo(f"{_MARKS[check.state]} {check.name}: {check.sentence}")
        if check.todo:
            echo(f"    {check.todo}")
    rows = [
        [finding.backend, finding.stray.native, finding.stray.token, finding.stray.node or "-",
         age(finding.stray.since), finding.verdict.value, finding.sentence]
        for finding in seen.findings
    ]  # fmt: skip
    echo("")
    columns = ["backend", "id", "name", "node", "age", "whose", "why"]
    table(columns, rows, empty="no process and no job carries a name of ours")
    for finding in seen.findings:
        if finding.todo:
            echo(f"{finding.stray.native}: {finding.todo}")

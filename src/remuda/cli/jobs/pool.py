"""`pool`: a queue of swarm+job pairs from one document, N at a time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.cli.lazy import dry
from remuda.cli.show import age, console, echo, is_terminal, print_json, say, table, words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from remuda.client.jobs.pool import PoolMember, Rows
    from remuda.look.facts import Looked

_COLUMNS = ("swarm", "step", "phase", "job", "for", "reason")


@click.command()
@click.option("-c", "--config", "file", required=True, type=click.Path(path_type=Path), help="Pool document (YAML).")
@click.option("--again", is_flag=True, help="Start over, including completed entries.")
@click.option("--wait/--no-wait", default=True, help="Follow it to its end (default), or return at once.")
@click.option("--cancel", is_flag=True, help="End what is left of it.")
@dry("Show what would be started, and start nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def pool(file: Path, again: bool, wait: bool, cancel: bool, dry_run: bool, as_json: bool) -> int:
    """Run a queue of swarm+job pairs from one file, N at a time; each swarm stops when its job ends.

    The host carries it out. Safe to interrupt: re-run the same command to follow it again. That keeps finished jobs and
    retries failed ones. Exit code 1: an entry failed.
    """
    from remuda.base.disk.paths import state_paths
    from remuda.base.errors import Interrupted
    from remuda.client.http import connect
    from remuda.client.jobs import pool as control
    from remuda.look import planning
    from remuda.specs.reading.pools import load_pool

    paths = state_paths()
    loaded = load_pool(file)
    name = control.campaign_name(loaded)
    if cancel:
        rows = control.cancel(connect(), name)
    else:
        facts = planning.facts_of(paths)
        members = control.plan_pool(loaded, facts)
        if dry_run:
            _show_plan(members, loaded.spec.bound, facts, as_json=as_json)
            return 0
        host = connect()
        rows = control.begin(loaded, members, facts, host, again=again)
    if cancel:
        say("its swarms and jobs are being ended")
    elif not wait:
        say(f"follow it: remuda pool -c {file}; end it: remuda pool -c {file} --cancel")
    else:
        try:
            rows = follow(control.follow(host, name, rows))
        except KeyboardInterrupt:
            hint = f"go on: remuda pool -c {file}; or end it: remuda pool -c {file} --cancel"
            raise Interrupted("not waited for; its swarms stay up and their jobs continue", hint=hint) from None
    if as_json:
        print_json(rows)
    else:
        shown = [[row["name"], step_of(row), row["job_id"] or "-", row["reason"]] for row in rows]
        table(["swarm", "outcome", "job", "reason"], shown)
    return 1 if not cancel and any(row["outcome"] == "failed" for row in rows) else 0


def _show_plan(members: Sequence[PoolMember], bound: int, facts: Looked, *, as_json: bool) -> None:
    from remuda.cli import plans
    from remuda.look import planning, rendering

    if as_json:
        print_json([
            {
                "swarm": one.name, "backend": one.planned.workload.backend,
                "job": one.said.job.model_dump() if one.said.job else None, "stays": one.said.stays,
                "tasks": [
                    {"token": item.token, "argv": list(item.argv)}
                    for item in rendering.shown([one.planned.workload], facts)
                ],
            }
            for one in members
        ])  # fmt: skip
        return
    rows = [
        [one.name, one.planned.workload.backend, str(one.planned.spec.replicas), _job(one),
         "stays up" if one.said.stays else "taken down"]
        for one in members
    ]  # fmt: skip
    table(["swarm", "backend", "replicas", "job", "afterwards"], rows)
    echo(f"\nat most {bound} at once\n")
    for one in members:
        plans.tell(planning.answered([one.planned], facts, dry_run=True), dry_run=True)


def _job(member: PoolMember) -> str:
    job = member.said.job
    if job is None:
        return "-"
    return job.script or f"{job.job}: {job.input} -> {job.output}"


def follow(steps: Iterator[Rows]) -> Rows:
    """Show each change; the rows at the end."""
    rows: Rows = []
    if is_terminal():
        from rich.live import Live

        with Live(console=console(stderr=True), refresh_per_second=4, transient=True) as live:
            for rows in steps:
                live.update(_drawing(rows))
        return rows
    told: dict[str, list[str]] = {}
    for rows in steps:
        for row in rows:
            state = [row[name] for name in ("step", "phase", "outcome", "reason")]
            if told.get(row["name"]) != state:
                told[row["name"]] = state
                say(f"{row['name']:<20} {step_of(row):<9} {row['reason'] or row['told']}".rstrip())
    return rows


def step_of(row: Mapping[str, Any]) -> str:
    """How far it is; of what is over, how it ended."""
    return str(row["outcome"] if row["step"] == "over" else row["step"])


def _drawing(rows: Rows) -> Any:
    from rich import box
    from rich.table import Table

    drawn = Table(*_COLUMNS, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        reason = row["reason"] or row["told"]
        cells = (row["name"], step_of(row), row["phase"], row["progress"], age(row["since"]), reason[:70])
        drawn.add_row(*map(words, cells))
    return drawn

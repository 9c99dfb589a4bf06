"""`pool`: a queue of swarm+job pairs from one document, N at a time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.cli.lazy import dry
from remuda.cli.show import age, console, echo, is_terminal, print_json, say, table, words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from remuda.client.jobs.pool import PoolMember
    from remuda.look.facts import Looked

_COLUMNS = ("swarm", "step", "phase", "job", "for", "reason")


@click.command()
@click.option("-c", "--config", "file", required=True, type=click.Path(path_type=Path), help="Pool document (YAML).")
@click.option("--again", is_flag=True, help="Start over, including completed entries.")
@dry("Show what would be started, and start nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def pool(file: Path, again: bool, dry_run: bool, as_json: bool) -> int:
    """Run a queue of swarm+job pairs from one file, N at a time; each swarm stops when its job ends.

    Safe to interrupt: re-run the same command to resume. It takes over running swarms, keeps finished jobs and retries
    failed ones. Exit code 1: an entry failed.
    """
    from remuda.base.disk.paths import state_paths
    from remuda.base.errors import Interrupted
    from remuda.client.jobs import pool as control
    from remuda.look import planning
    from remuda.specs.reading.pools import load_pool

    paths = state_paths()
    loaded = load_pool(file)
    facts = planning.facts_of(paths)
    members = control.plan_pool(loaded, facts)
    if dry_run:
        _show_plan(members, loaded.spec.bound, facts, as_json=as_json)
        return 0
    paths.prepare()
    run = control.PoolRun(loaded, members, paths)
    with run.locked():
        run.resume(again=again)
        try:
            _follow(run.run())
        except KeyboardInterrupt:
            hint = f"go on: remuda pool -c {file}; or end them with remuda down and remuda job cancel"
            raise Interrupted("not waited for; its swarms stay up and their jobs continue", hint=hint) from None
    if as_json:
        print_json(control.to_json(members))
    else:
        rows = [[one.entry.name, one.entry.outcome.value, one.job_id or "-", one.entry.reason] for one in members]
        table(["swarm", "outcome", "job", "reason"], rows)
    return 1 if any(one.entry.outcome == "failed" for one in members) else 0


def _show_plan(members: Sequence[PoolMember], bound: int, facts: Looked, *, as_json: bool) -> None:
    from remuda.cli import plans
    from remuda.look import planning, rendering

    if as_json:
        print_json([
            {
                "swarm": one.entry.name, "backend": one.planned.workload.backend,
                "job": one.said.job.model_dump() if one.said.job else None, "stays": one.said.stays,
                "tasks": [
                    {"token": item.token, "argv": list(item.argv)}
                    for item in rendering.shown([one.planned.workload], facts.paths)
                ],
            }
            for one in members
        ])  # fmt: skip
        return
    rows = [
        [one.entry.name, one.planned.workload.backend, str(one.planned.spec.replicas), _job(one),
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


def _follow(steps: Iterator[Sequence[PoolMember]]) -> None:
    if is_terminal():
        _live(steps)
        return
    told: dict[str, str] = {}
    for members in steps:
        for one in members:
            line = f"{one.entry.name:<20} {_step(one):<9} {one.entry.reason or one.seen.reason}".rstrip()
            state = f"{one.entry.step} {one.seen.phase} {one.entry.outcome} {one.entry.reason}"
            if told.get(one.entry.name) != state:
                told[one.entry.name] = state
                say(line)


def _step(one: PoolMember) -> str:
    return one.entry.outcome.value if one.entry.step == "over" else one.entry.step.value


def _live(steps: Iterator[Sequence[PoolMember]]) -> None:
    from rich.live import Live

    with Live(console=console(stderr=True), refresh_per_second=4, transient=True) as live:
        for members in steps:
            live.update(_drawing(members))


def _drawing(members: Sequence[PoolMember]) -> Any:
    from rich import box
    from rich.table import Table

    drawn = Table(*_COLUMNS, box=box.SIMPLE_HEAD, pad_edge=False)
    for one in members:
        reason = one.entry.reason or one.seen.reason
        cells = (one.entry.name, _step(one), one.seen.phase, one.progress, age(one.entry.since), reason[:70])
        drawn.add_row(*map(words, cells))
    return drawn

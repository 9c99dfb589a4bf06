"""Runs of one command are one job array on a real Slurm, and each of them is looked after by itself."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.conftest import until

from remuda.backends.base import Ending, Handle, Life, Request, make_token
from remuda.base.errors import Rejected

if TYPE_CHECKING:
    from tests.component.slurm.conftest import Bench
    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed

WAITS: dict[str, object] = {"directives": ("--begin=now+1hour",)}
"""Slurm lets it wait, whatever is free."""


def member(bench: Bench, index: int, *argv: str, attempt: int = 1, place: dict[str, object] | None = None) -> Request:
    """The `index`-th run of one command."""
    asked = bench.request(*argv, name=f"run-{index}", place=place)
    uid = f"{bench.uid}-{index}"
    workload = asked.workload.model_copy(update={"uid": uid})
    return replace(asked, attempt=attempt, token=make_token(asked.key, attempt, uid), workload=workload)


def array_of(bench: Bench) -> str:
    return f"runs.script.b.1.{bench.uid}"


async def test_three_runs_are_one_call_and_three_allocations(either: Bench) -> None:
    requests = [member(either, index, "sh", "-c", "echo $REMUDA_WORKLOAD; sleep 3600") for index in (1, 2, 3)]
    handles = await either.submit(*requests)
    assert either.backend.client.commands.calls["sbatch"] == 1
    job = handles[0].native.partition("_")[0]
    assert [handle.native for handle in handles] == [f"{job}_1", f"{job}_2", f"{job}_3"]
    for handle in handles:
        await either.until(handle, lambda seen: seen.life is Life.RUNNING and seen.report is not None)
    for handle in handles:
        name = handle.token.partition(".")[0]
        await either.until_line(handle, name)
        assert await either.lines(handle) == [name]
    assert list((await either.fresh().find([handle.token for handle in handles])).values()) == handles
    await either.backend.cancel(handles[1])
    await either.end(handles[1])
    (again,) = await either.submit(member(either, 2, attempt=2))
    assert again.native.isdigit(), "what is begun again alone is a job of its own"
    await either.until(again, lambda seen: seen.life is Life.RUNNING)
    seen = await either.backend.observe([handles[0], handles[2], again])
    assert {one.life for one in seen.values()} == {Life.RUNNING}


async def test_many_are_ended_by_one_call(bare: Bench) -> None:
    waiting = [member(bare, index, place=WAITS) for index in (1, 2, 3, 4)]
    handles = await bare.submit(*waiting)
    (alone,) = await bare.submit(member(bare, 5, place=WAITS))
    calls = bare.backend.client.commands.calls
    looks = calls["squeue"]
    await asyncio.gather(*(bare.backend.cancel(handle) for handle in (*handles[:3], alone)))
    assert (calls["squeue"] - looks, calls["scancel"]) == (1, 1), "tasks of an array and jobs of their own"
    for handle in (*handles[:3], alone):
        seen = await bare.end(handle)
        assert (seen.life, seen.ending) == (Life.ENDED, Ending.NONE), "our own cancel is no cancel of Slurm's"
    assert (await bare.look(handles[3])).life is Life.PENDING


async def test_one_that_a_person_cancels_in_the_queue_is_cancelled(either: Bench) -> None:
    handles = await either.submit(*(member(either, index, place=WAITS) for index in (1, 2, 3)))
    assert (await either.look(handles[1])).life is Life.PENDING
    either.cluster.run("scancel", handles[1].native)
    # Slurm keeps no record at all of a task of an array that is cancelled before it began.
    await either.until(handles[1], lambda seen: seen.ending is Ending.CANCELLED)
    seen = await either.backend.observe(handles)
    assert [seen[handle.token].life for handle in handles] == [Life.PENDING, Life.ENDED, Life.PENDING]


async def test_an_array_that_is_refused_goes_one_by_one(bench: Bench) -> None:
    requests = [member(bench, index, "true", place={"qos": "limited"} | WAITS) for index in range(1, 7)]
    outcomes = await bench.backend.submit([bench.backend.render(request) for request in requests])
    taken = [outcome for outcome in outcomes if isinstance(outcome, Handle)]
    refused = [outcome for outcome in outcomes if isinstance(outcome, Rejected)]
    assert (len(taken), len(refused)) == (4, 2), outcomes
    assert all(handle.native.isdigit() for handle in taken)
    assert bench.ids(array_of(bench)) == []
    for handle in taken:
        assert bench.ids(handle.token) == [handle.native]


async def test_what_was_submitted_before_a_crash_is_not_submitted_again(either: Bench) -> None:
    requests = [member(either, index) for index in (1, 2, 3)]
    first = await either.submit(*requests[:2], release=False)
    either.backend = either.fresh()
    again = await either.submit(*requests)
    assert again[:2] == first
    assert again[2].native.isdigit()
    assert len(either.ids(array_of(either))) == 2
    for handle in again:
        await either.until(handle, lambda seen: seen.life is Life.RUNNING)


def test_scripts_of_one_command(home: Home, slurm: SlurmBed) -> None:
    home.env |= {**slurm.env(), "REMUDA_SLURM_POLL_S": "0.5"}
    names = ["a", "b", "c"]
    for name in names:
        (home.root / f"{name}.sh").write_text(f"#!/bin/sh\necho I am {name}\nexec sleep 3600\n")
    asked = ("run", *(f"{name}.sh" for name in names), "--backend", "slurm", "--partitions", "cpu")
    (shown,) = json.loads(home.run(*asked, "--dry-run", "--json").stdout)
    assert "--array=1-3" in shown["argv"]
    home.run(*asked)
    until(lambda: all("I am" in home.run("logs", name).stdout for name in names), "they run")
    assert [home.run("logs", name).stdout.strip() for name in names] == ["I am a", "I am b", "I am c"]
    ids = {home.view(name)["run"]["job_id"] for name in names}
    assert len(ids) == 3
    assert len({text.partition("_")[0] for text in ids}) == 1, "one array"

    home.run("restart", "b")
    until(lambda: home.view("b")["run"]["attempt"] == 2, "it is begun again")
    until(lambda: home.view("b")["run"]["state"] == "RUNNING", "it runs again")
    assert home.view("b")["run"]["job_id"].isdigit()
    home.run("stop", *names)
    assert slurm.run("squeue", "-h", "-t", "PD,R,CG", "-o", "%j").stdout.strip() == ""
    shared = list((home.paths.workloads / ".batch").iterdir())
    assert len(shared) == 1
    for name in names:
        home.client.delete(f"/workloads/{name}")
    assert not shared[0].exists()

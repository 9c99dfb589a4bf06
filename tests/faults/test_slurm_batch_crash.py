"""The host is killed at every step while the runs of one command begin and end: one job for each run, never two."""

from __future__ import annotations

import json
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import until
from tests.faults.dying_hosts import LIMIT_S, DyingHosts, several

from remuda.base.errors import RemudaError
from remuda.base.ids import new_suffix
from remuda.plan.model import Command, Group, Kind, Replace, RestartRule, Role, Watch, Workload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.slurm_runs import Runs

    from remuda.testing.slurm import SlurmBed

RUNS = 3
AT_ONCE = 2
BEGIN = tuple(f"{when} {what}" for what in ("add_workloads", "submit", "release") for when in ("before", "after"))
"""Each happens once while runs begin."""
RECORDS = tuple(range(1, 7))
"""The first steps by their number: what is recorded lies between those that have a name."""
END = tuple(f"{when} {what}" for what in ("end_workloads", "end") for when in ("before", "after"))
#: Says that it began; each line is one job that ran.
SCRIPT = """#!/bin/sh
echo "$REMUDA_TOKEN $SLURM_ARRAY_JOB_ID" >> "$OUT/starts"
exec sleep 600
"""


class Batch:
    """The runs of one command, as a client would send them."""

    def __init__(self, runs: Runs, name: str) -> None:
        self.runs = runs
        self.uid = new_suffix(8)
        self.names = [f"{name}-{index}" for index in range(1, RUNS + 1)]

    def body(self) -> dict[str, Any]:
        group = Group(
            name="script", count=1, role=Role.SCRIPT, kill_grace_s=5.0, restart=RestartRule(policy="never"),
            command=Command(argv=(str(self.runs.script(SCRIPT)),), env={"OUT": str(self.runs.out)}),
            replace=Replace(policy="on-failure", backoff_initial_s=0.1, user_cancel="stop"),
            watch=Watch(gpu_check=False, heartbeat_interval_s=1.0, heartbeat_grace_s=120.0, warn_before_s=0.0),
        )  # fmt: skip
        made = [
            Workload(
                name=name, kind=Kind.RUN, uid=f"{self.uid}-{index}", backend="slurm", groups=(group,),
                run_dir=str(self.runs.home.paths.workload(name)),
                place={"partition": "cpu", "workdir": str(self.runs.home.root)},
            )
            for index, name in enumerate(self.names, 1)
        ]  # fmt: skip
        return {"workloads": [{"workload": json.loads(one.model_dump_json()), "spec": ""} for one in made]}

    def phases(self) -> list[str]:
        return [str(self.runs.home.view(name)["phase"]) for name in self.names]

    def begun(self) -> list[str]:
        """Names of the runs whose script began, once for each time."""
        names = [line.partition(".")[0] for line in self.runs.lines("starts")]
        return sorted(name for name in names if name in self.names)

    def jobs(self, *states: str) -> list[str]:
        """Index, state and reason of their jobs, of the array or of their own."""
        lines = self.runs.slurm("squeue", "-h", "-r", *states, "-o", "%j|%K %T %r").splitlines()
        mine = (line.split("|") for line in lines)
        return [f"{name} {rest}" for name, rest in mine if self.uid in name]


def one_life(batch: Batch, hosts: DyingHosts, step: int | str) -> str:
    """A life that ends at `step`, somewhere between beginning them and having ended them. Returns where."""
    client = batch.runs.home.client
    hosts.run(step)
    with suppress(RemudaError):
        client.post("/workloads/batch", batch.body())
        deadline = time.monotonic() + LIMIT_S
        while set(batch.phases()) != {"RUNNING"} or len(batch.begun()) < RUNS:
            assert time.monotonic() < deadline, (step, batch.phases(), batch.jobs("-t", "all"))
            time.sleep(0.05)
        client.post("/workloads/batch/down", {"names": batch.names})
        while set(batch.phases()) != {"DOWN"}:
            assert time.monotonic() < deadline, (step, batch.phases(), batch.jobs("-t", "all"))
            time.sleep(0.05)
    return hosts.death()


def known(batch: Batch) -> list[str]:
    """Those that the host knows."""
    names = {view["name"] for view in batch.runs.home.client.get("/workloads", everything="true")}
    return [name for name in batch.names if name in names]


def next_life(batch: Batch, hosts: DyingHosts, death: str) -> None:
    """The next host finishes what the one before was about to do."""
    hosts.run(1_000_000)
    found = known(batch)
    assert found in ([], batch.names), f"all of them are accepted, or none: {death}"
    if not found:
        batch.runs.home.client.post("/workloads/batch", batch.body())
    intents = {phase in ("DOWN", "STOPPING") for phase in batch.phases()}
    assert len(intents) == 1, f"all of them were to end, or none: {death}"
    if intents == {False}:
        until(lambda: set(batch.phases()) == {"RUNNING"}, f"they run after a death {death}", LIMIT_S)
        until(lambda: batch.begun() == batch.names, f"each has begun once after a death {death}", LIMIT_S)
        alive = batch.jobs()
        assert len(alive) == RUNS, (death, alive)
        assert not [line for line in alive if "JobHeldUser" in line], (death, alive)
        batch.runs.home.client.post("/workloads/batch/down", {"names": batch.names})
    until(lambda: set(batch.phases()) == {"DOWN"}, f"they are down after a death {death}", LIMIT_S)
    until(lambda: not batch.jobs(), f"nothing is left after a death {death}", LIMIT_S)
    assert max(Counter(batch.begun()).values(), default=0) <= 1, (death, batch.begun())
    ever = [tuple(line.split()[:2]) for line in batch.jobs("-t", "all")]
    assert len(ever) == len(set(ever)), (death, "one allocation, two jobs", ever)
    assert hosts.death() == "none"


@pytest.fixture
def lives(slurm: SlurmBed) -> Iterator[list[tuple[Runs, DyingHosts]]]:
    with several(slurm, AT_ONCE) as made:
        yield made


@pytest.mark.timeout(900)
@pytest.mark.parametrize("steps", [BEGIN, RECORDS, END], ids=["begin", "record", "end"])
def test_killed_at_every_step(lives: list[tuple[Runs, DyingHosts]], steps: tuple[int | str, ...]) -> None:
    def die(share: int) -> list[str]:
        runs, hosts = lives[share]
        deaths = []
        for number, step in enumerate(steps[share::AT_ONCE]):
            batch = Batch(runs, f"r{share}{number}")
            deaths.append(one_life(batch, hosts, step))
            next_life(batch, hosts, deaths[-1])
        return deaths

    with ThreadPoolExecutor(AT_ONCE) as pool:
        deaths = [death for share in pool.map(die, range(AT_ONCE)) for death in share]
    named = sorted(step for step in steps if isinstance(step, str))
    assert sorted(deaths) == named if named else "none" not in deaths

"""The host is killed at every step between deciding and recording, on a real cluster: one job, never two, none left."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import until
from tests.faults.dying_hosts import LIMIT_S, DyingHosts, several

from remuda.base.errors import Conflict, RemudaError
from remuda.base.ids import new_suffix
from remuda.plan.model import Command, Group, Kind, Replace, RestartRule, Role, Watch, Workload

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.faults.slurm_runs import Runs

    from remuda.testing.slurm import SlurmBed

MOST_STEPS = 90
TASKS = 3
AT_ONCE = 3
THIRD = 3
"""Of the steps by number: every one is tried on this machine (`test_host_crash`), each kind of them here, too."""
STEPS = ("record", "add_workloads", "end_workloads", "submit", "release", "end")
EXPECTED = {f"{when} {what}" for when in ("before", "after") for what in STEPS}
#: Says that it began; each line is one job that ran.
SCRIPT = """#!/bin/sh
echo "$REMUDA_TOKEN $SLURM_JOB_ID" >> "$OUT/starts"
exec sleep 600
"""


def workload(runs: Runs, name: str) -> dict[str, Any]:
    """What a client would send: one job, and an array of two. A command line for each life would take minutes."""
    common = {
        "role": Role.SCRIPT, "kill_grace_s": 5.0, "restart": RestartRule(policy="never"),
        "command": Command(argv=(str(runs.script(SCRIPT)),), env={"OUT": str(runs.out)}),
        "replace": Replace(policy="on-failure", backoff_initial_s=0.1, user_cancel="stop"),
        "watch": Watch(gpu_check=False, heartbeat_interval_s=1.0, heartbeat_grace_s=120.0, warn_before_s=0.0),
    }  # fmt: skip
    made = Workload(
        name=name, kind=Kind.RUN, uid=new_suffix(8), backend="slurm", run_dir=str(runs.home.paths.workload(name)),
        groups=(Group(name="script", count=1, **common), Group(name="many", count=2, **common)),
        place={"partition": "cpu", "workdir": str(runs.home.root)},
    )  # fmt: skip
    return {"workload": json.loads(made.model_dump_json()), "spec": ""}


def begun(runs: Runs, name: str) -> list[str]:
    """Ids of the jobs of that workload whose script began, as the scripts told."""
    return [line.split()[1] for line in runs.lines("starts") if line.startswith(f"{name}.")]


def jobs(runs: Runs, name: str, *states: str) -> list[str]:
    """Name, index, state and reason of that workload's jobs that wait or run; `-t all`: of those that ended, too."""
    text = runs.slurm("squeue", "-h", "-r", *states, "-o", "%j %K %T %r")
    return [line for line in text.splitlines() if line.startswith(f"{name}.")]


def bring_up(runs: Runs, asked: dict[str, Any]) -> dict[str, Any]:
    """The user types the same again; empty while what is there is on its way down."""
    try:
        view: dict[str, Any] = runs.home.client.post("/workloads", asked)
    except Conflict:
        return {}
    return view


def one_life(runs: Runs, hosts: DyingHosts, step: int | str, asked: dict[str, Any]) -> str:
    """A life that ends at `step`, somewhere between bringing it up and having taken it down. Returns where."""
    home, name = runs.home, asked["workload"]["name"]
    hosts.run(step)
    with suppress(RemudaError):
        home.client.post("/workloads", asked)
        deadline = time.monotonic() + LIMIT_S
        while home.view(name)["ready"] < TASKS or len(begun(runs, name)) < TASKS:
            assert time.monotonic() < deadline, (step, runs.told(name))
            time.sleep(0.05)
        home.client.post(f"/workloads/{name}/down")
        while home.view(name)["phase"] != "DOWN":
            assert time.monotonic() < deadline, (step, runs.told(name))
            time.sleep(0.05)
    return hosts.death()


def is_wanted(runs: Runs, name: str) -> bool:
    """Whether the next host knows it, and does not take it down."""
    try:
        return str(runs.home.view(name)["phase"]) not in ("DOWN", "STOPPING")
    except RemudaError:
        return False


def next_life(runs: Runs, hosts: DyingHosts, asked: dict[str, Any], death: str) -> None:
    """The next host finishes what the one before was about to do; then it is used as if nothing had been."""
    home, name = runs.home, asked["workload"]["name"]
    hosts.run(1_000_000)
    if not is_wanted(runs, name):
        until(lambda: bring_up(runs, asked), f"{name} is accepted after a death {death}", LIMIT_S)
    until(lambda: home.view(name)["ready"] == TASKS, f"{name} is up after a death {death}", LIMIT_S)
    alive = jobs(runs, name)
    assert len(alive) == TASKS, (death, alive)
    assert not [line for line in alive if "JobHeldUser" in line], (death, alive)
    home.client.post(f"/workloads/{name}/down")
    until(lambda: home.view(name)["phase"] == "DOWN", f"{name} is down after a death {death}", LIMIT_S)
    assert not jobs(runs, name), (death, "a job is left")
    ever = [tuple(line.split()[:2]) for line in jobs(runs, name, "-t", "all")]
    assert len(ever) == len(set(ever)), (death, "one allocation, two jobs", ever)
    started = begun(runs, name)
    assert len(started) == len(set(started)) <= len(ever), (death, started)
    assert hosts.death() == "none"


@dataclass
class Lives:
    """One home on the cluster, whose hosts die."""

    runs: Runs
    hosts: DyingHosts

    def die(self, name: str, steps: Iterable[int | str]) -> list[str]:
        """Where they died, step for step, until one was not reached; workloads are called after `name`."""
        deaths = []
        for number, step in enumerate(steps):
            asked = workload(self.runs, f"{name}{number}")
            deaths.append(one_life(self.runs, self.hosts, step, asked))
            next_life(self.runs, self.hosts, asked, deaths[-1])
            if deaths[-1] == "none":
                break
        return deaths


@pytest.fixture
def lives(slurm: SlurmBed) -> Iterator[list[Lives]]:
    with several(slurm, AT_ONCE) as made:
        yield [Lives(runs, hosts) for runs, hosts in made]


@pytest.mark.timeout(1500)
def test_killed_at_each_kind_of_step(lives: list[Lives]) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        by_number = list(pool.map(
            lambda at: lives[at].die(f"n{at}-", range(THIRD * at + 1, MOST_STEPS, THIRD * AT_ONCE)), range(AT_ONCE)
        ))  # fmt: skip
        assert {share[-1] for share in by_number} == {"none"}, "there are more steps than were tried"
        deaths = {death for share in by_number for death in share}
        # How often something is recorded depends on the moment, so a step may have had another number in each life.
        missed = sorted(EXPECTED - deaths)
        by_name = list(pool.map(lambda at: lives[at].die(f"s{at}-", missed[at::AT_ONCE]), range(AT_ONCE)))
    assert [death for share in zip_longest(*by_name) for death in share if death] == missed

"""The host is killed at every step of bringing a swarm up on a real cluster: typed again, it is the same swarm."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from tests import plans
from tests.conftest import until
from tests.faults.dying_hosts import LIMIT_S, DyingHosts, several

from remuda.base.errors import RemudaError
from remuda.client import submission
from remuda.look import planning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.slurm_runs import Runs

    from remuda.testing.slurm import SlurmBed

REPLICAS = 2
AT_ONCE = 2
STEPS = {"first": range(1, 9), "then": range(9, 17)}
"""By number: intent, what is to be submitted, array and router, their ids, their release, and what is recorded then."""
SLURM = {
    "type": "slurm", "partition": "cpu", "account": "inference", "qos": "normal", "endpoint": {"cpus_per_task": 1},
}  # fmt: skip


def bring_up(runs: Runs, name: str) -> dict[str, Any]:
    """What `remuda up` sends each time that it is typed; a command line for each would take minutes."""
    file = runs.home.swarm(name, backend=SLURM, replicas=REPLICAS, gpus_per_replica=0, cpus_per_task=1)
    planned = plans.swarm(str(file), (), runs.home.paths)
    (one,) = planning.answered([planned], checked=False)["plans"]
    view: dict[str, Any] = runs.home.client.post("/workloads", submission.body(one))
    return view


def jobs(runs: Runs, name: str, *states: str) -> list[str]:
    """Name and index of that swarm's jobs that wait or run; `-t all`: of those that ended, too."""
    lines = runs.slurm("squeue", "-h", "-r", *states, "-o", "%j %K %T %r").splitlines()
    return [line for line in lines if line.startswith(f"{name}.")]


def serves(runs: Runs, name: str) -> bool:
    """Whether the router sends to every replica."""
    view = runs.home.view(name)
    members = (view["router"] or {"members": []})["members"]
    return view["phase"] == "RUNNING" and len(members) == REPLICAS


def one_life(runs: Runs, hosts: DyingHosts, step: int, name: str) -> str:
    """A life that ends at `step`, at the latest when the swarm serves. Returns where."""
    hosts.run(step)
    with suppress(RemudaError):
        bring_up(runs, name)
        deadline = time.monotonic() + LIMIT_S
        while not serves(runs, name):
            assert time.monotonic() < deadline, (step, runs.told(name))
            time.sleep(0.05)
    return hosts.death()


def next_life(runs: Runs, hosts: DyingHosts, name: str, death: str) -> None:
    """The user types the same again: what is there is adopted, what is missing is made, and `down` leaves nothing."""
    hosts.run(1_000_000)
    known = [view["uid"] for view in runs.home.client.get("/workloads") if view["name"] == name]
    uid = bring_up(runs, name)["uid"]
    assert known in ([], [uid]), f"another swarm came of it: {death}"
    until(lambda: serves(runs, name), f"{name} serves after a death {death}", LIMIT_S)
    alive = jobs(runs, name)
    assert len(alive) == len(runs.home.view(name)["tasks"]) - local_tasks(runs, name), (death, alive)
    assert sum(line.startswith(f"{name}.replica.") for line in alive) == REPLICAS, (death, alive)
    assert not [line for line in alive if "JobHeldUser" in line], (death, alive)
    runs.home.client.post(f"/workloads/{name}/down")
    until(lambda: runs.home.view(name)["phase"] == "DOWN", f"{name} is down after a death {death}", LIMIT_S)
    until(lambda: not jobs(runs, name), f"nothing is left after a death {death}", LIMIT_S)
    ever = [tuple(line.split()[:2]) for line in jobs(runs, name, "-t", "all")]
    assert len(ever) == len(set(ever)), (death, "one allocation, two jobs", ever)
    assert hosts.death() == "none"


def local_tasks(runs: Runs, name: str) -> int:
    """Tasks that run beside the host."""
    return sum(not task["native"].partition("_")[0].isdigit() for task in runs.home.view(name)["tasks"])


@pytest.fixture
def lives(slurm: SlurmBed, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Runs, DyingHosts]]]:
    monkeypatch.setenv("SLURM_CONF", slurm.env()["SLURM_CONF"])  # `up` looks at the cluster, too
    with several(slurm, AT_ONCE) as made:
        yield made


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
def test_killed_at_every_step_of_up(lives: list[tuple[Runs, DyingHosts]], steps: range) -> None:
    def die(share: int) -> list[str]:
        runs, hosts = lives[share]
        deaths = []
        for step in steps[share::AT_ONCE]:
            name = f"up{step}"
            deaths.append(one_life(runs, hosts, step, name))
            next_life(runs, hosts, name, deaths[-1])
        return deaths

    with ThreadPoolExecutor(AT_ONCE) as pool:
        deaths = {death for share in pool.map(die, range(AT_ONCE)) for death in share}
    assert "none" not in deaths
    if steps.start == 1:
        assert {"before add_workloads", "after add_workloads", "before record", "before submit"} <= deaths

"""A swarm on a real Slurm outlives the time limits of its jobs: nobody who asks it notices."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.component.serving.load import load
from tests.conftest import until

from remuda.supervise.groups.handover import SUCCESSOR

if TYPE_CHECKING:
    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed

LIMIT = "02:00:00"
HANDOVER_S = 1200
SHORTENED = 15
"""Minutes: an operator makes a job's time limit so short while it runs, and its successor is due at once. That one has
its whole limit before it, so that each hands over once, however busy the machine is."""
BACKEND = {
    "type": "slurm", "partition": "gpu-a100", "account": "inference", "qos": "normal", "time_limit": LIMIT,
    "endpoint": {"cpus_per_task": 1, "mem": "200MB", "wall_time": LIMIT},
}  # fmt: skip
MEMBERS = ("replica/0", "replica/1", "router/0")
LONG_S = 240


def queue(slurm: SlurmBed) -> list[str]:
    """Names of the jobs that pend or run."""
    return slurm.run("squeue", "-h", "-r", "-o", "%j").stdout.split()


def taken_over(site: Home) -> set[str]:
    """Tasks that have yielded to their successors."""
    story = json.loads(site.run("events", "herd", "-n", "5000", "--json").stdout)
    return {line["task"] for line in story if "takes over; requests under way are finished" in line["reason"]}


def tasks(site: Home) -> dict[str, dict[str, Any]]:
    return {task["task"]: task for task in site.view("herd")["tasks"]}


def summary(site: Home) -> tuple[str, int, int]:
    view = site.view("herd")
    return view["phase"], view["ready"], view["wanted"]


def successors(site: Home) -> set[str]:
    return {name for name in tasks(site) if int(name.partition("/")[2]) >= SUCCESSOR}


@pytest.mark.timeout(1800)
def test_hand_over_under_load_with_the_host_killed_meanwhile(home: Home, slurm: SlurmBed) -> None:
    home.env |= {**slurm.env(), "REMUDA_SLURM_POLL_S": "0.5"}
    document = home.swarm(
        backend=BACKEND, gpus_per_replica=1, cpus_per_task=1, lifetime="1d", handover=HANDOVER_S, drain=40,
        engine_args=["--token-s", "0.02"],
    )  # fmt: skip
    home.run("up", "-c", str(document))
    address = home.view("herd")["endpoint"]
    first = {name: tasks(home)[name]["native"] for name in MEMBERS}

    def hand_over() -> None:
        for native in first.values():
            slurm.run("scontrol", "update", f"JobId={native}", f"TimeLimit={SHORTENED}")
        until(lambda: len(successors(home)) == len(MEMBERS), "all successors are begun", LONG_S)
        home.kill_host()
        home.run("status")
        until(lambda: taken_over(home) == set(MEMBERS), "all have taken over", LONG_S)
        until(lambda: not set(MEMBERS) & set(tasks(home)), "those that were succeeded are gone", LONG_S)

    try:
        outcome = asyncio.run(load(address, in_flight=4, after=3, action=hand_over, model="herd-1", max_tokens=8))
        assert set(outcome.answers) == {"ok"}, outcome.answers
        until(lambda: summary(home) == ("RUNNING", 2, 2), "the successors serve", LONG_S)
        assert home.view("herd")["endpoint"] == address
        assert successors(home) == {"replica/500", "replica/501", "router/500"}
        until(lambda: len(queue(slurm)) == len(MEMBERS), "one job of each slot is left")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{home.run('explain', 'herd').stdout}\n{home.log()}") from None
    home.run("down", "herd")
    assert queue(slurm) == []

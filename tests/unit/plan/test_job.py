"""Where drivers of jobs run, and what is asked for them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest

from remuda.base.errors import InputError
from remuda.plan.context import Context
from remuda.plan.job import SWARM, Beside, Driver, DriverOptions, compile_job
from remuda.plan.model import Command, Group, Kind, Pool, Resources, Role, Workload
from remuda.specs.backend import SlurmJob

if TYPE_CHECKING:
    from remuda.plan.compile import PlanFacts

DRIVER = Driver(name="answers-1", argv=("python", "-m", "remuda"))
CONTEXT = Context(cwd="/data", state="/state", env={"LANG": "C"})
POOLS = (Pool(name="a", place={"partition": "a", "gres": "gpu:a100:4", "qos": "low"}), Pool(name="b"))
PLACE: dict[str, object] = {
    "partition": "gpu", "account": "us", "qos": "normal", "node_list": "n1", "gres": "gpu:8", "modules": ["cuda"],
    "preamble": ["export A=1"], "exclude_nodes": "n7", "python": "/venv/bin/python", "env": {"LANG": "de"}, "gpus": [0],
}  # fmt: skip


def swarm(*, pools: tuple[Pool, ...] = ()) -> Workload:
    command = Command(argv=("engine",))
    replica = Group(
        name="replica", role=Role.REPLICA, count=2, command=command, pools=pools,
        resources=Resources(gpus=4, cpus=8, time_limit_s=7200.0),
    )  # fmt: skip
    router = Group(name="router", role=Role.ROUTER, count=1, command=command, resources=Resources(cpus=2))
    return Workload(
        name="herd", kind=Kind.SWARM, uid="u0", backend="slurm", groups=(replica, router), run_dir="/state/herd",
        place=PLACE,
    )  # fmt: skip


def plan(driver: Driver) -> Workload:
    return compile_job(driver, CONTEXT, cast("PlanFacts", None)).workload


def beside(swarm: Workload, spec: SlurmJob, asked: DriverOptions) -> Workload:
    return plan(replace(DRIVER, beside=Beside(swarm, spec, asked)))


def test_beside_a_swarm_it_has_its_account_but_not_its_gpus() -> None:
    made = beside(swarm(), SlurmJob(), DriverOptions())
    assert (made.kind, made.backend, made.labels) == (Kind.JOB, "slurm", {SWARM: "herd"})
    assert made.place == {
        "partition": "gpu", "account": "us", "qos": "normal", "modules": ["cuda"], "preamble": ["export A=1"],
        "exclude_nodes": "n7", "python": "/venv/bin/python", "env": {"LANG": "C"}, "workdir": "/data",
    }  # fmt: skip
    (group,) = made.groups
    assert group.resources == Resources(
        gpus=0, cpus=2, mem_bytes=4 * 1024**3, mem_field="backend.job.mem", time_limit_s=7200.0
    )
    assert group.watch is not None, "without it nothing fences an attempt on a lost node"
    assert not group.watch.gpu_check
    assert not group.watch.scan_log, "what models answer is no evidence against a node"
    assert group.replace.policy == "on-failure"
    assert group.replace.user_cancel == "stop"


@pytest.mark.parametrize(
    ("spec", "asked", "expected"),
    [
        (SlurmJob(cpus_per_task=3, mem="1GB", wall_time="01:00:00"), DriverOptions(), (3, 1024**3, 3600.0)),
        (SlurmJob(wall_time="01:00:00"), DriverOptions(1, "512MB", "90"), (1, 512 * 1024**2, 5400.0)),
        (SlurmJob(), DriverOptions(time="2-0"), (2, 4 * 1024**3, 172800.0)),
    ],
)
def test_the_command_line_wins_over_the_document(
    spec: SlurmJob, asked: DriverOptions, expected: tuple[int, int, float]
) -> None:
    resources = beside(swarm(), spec, asked).groups[0].resources
    assert (resources.cpus, resources.mem_bytes, resources.time_limit_s) == expected


@pytest.mark.parametrize(
    ("spec", "asked", "where"),
    [
        (SlurmJob(), DriverOptions(mem="much"), "--mem"),
        (SlurmJob(), DriverOptions(time="soon"), "--time"),
        (SlurmJob(wall_time="soon"), DriverOptions(), "backend.job.wall_time"),
    ],
)
def test_what_is_no_size_or_time_is_told(spec: SlurmJob, asked: DriverOptions, where: str) -> None:
    with pytest.raises(InputError) as caught:
        beside(swarm(), spec, asked)
    assert caught.value.where == where


def test_pools_come_without_what_they_say_of_gpus() -> None:
    pools = beside(swarm(pools=POOLS), SlurmJob(), DriverOptions()).groups[0].pools
    assert pools == (Pool(name="a", place={"partition": "a", "qos": "low"}), Pool(name="b"))


def test_mail_is_asked_for_by_the_command_line() -> None:
    assert beside(swarm(), SlurmJob(), DriverOptions(mail_user="me@x")).place["mail_user"] == "me@x"


def test_here_it_is_a_process() -> None:
    made = plan(DRIVER)
    assert (made.backend, made.place) == ("local", {"env": {"LANG": "C"}})
    assert made.groups[0].watch is None

"""From a batch job or a script to the workload of its driver, on this machine or beside a swarm on a cluster. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from remuda.base.errors import located
from remuda.base.units import parse_size
from remuda.plan.compile import UID, Plan
from remuda.plan.model import (
    Command,
    Group,
    Kind,
    Pool,
    Replace,
    Resources,
    RestartRule,
    Role,
    Secret,
    Watch,
    Workload,
)
from remuda.plan.placing.cluster import seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.plan.compile import PlanFacts
    from remuda.plan.context import Context
    from remuda.specs.backend import SlurmJob

DRIVER: Final = "driver"
SWARM: Final = "swarm"
"""Label of a job: the swarm that it asks."""
_OF_SWARM: Final = ("partition", "account", "qos", "constraint", "reservation", "exclude_nodes", "modules", "preamble",
                    "mail_user", "python", "home")  # fmt: skip
"""What a driver takes over from its swarm's place: not the GPUs, and not the node that was named for replicas."""
ENDPOINT: Final = "__REMUDA_ENDPOINT__"
"""Stands for the URL of a swarm that is not up yet."""
NOW: Final = "__REMUDA_NOW__"
"""Stands in files of a job for the time at which it is sent, a number."""
SLOTS: Final = "__REMUDA_SLOTS__"
"""Stands in them for what `JobRequest.slots` says, another."""
WATCH: Final = Watch(gpu_check=False, scan_log=False, warn_signal="TERM", warn_before_s=60.0)


@dataclass(frozen=True)
class Driver:
    """A driver to be run.

    Attributes:
        name: of the job.
        argv: what is run, from the directory where the user typed.
        env: what its user or we say of its environment.
        secret_env: its secrets, by variable.
        max_failures: consecutive failures before it is given up.
        beside: the swarm that it asks, where it is to run on its cluster; None: it runs on the host's machine.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    secret_env: Mapping[str, Secret] = field(default_factory=dict)
    max_failures: int = 5
    beside: Beside | None = None


@dataclass(frozen=True)
class DriverOptions:
    """What the user said of the driver's job; empty where nothing was said."""

    cpus: int = 0
    mem: str = ""
    time: str = ""
    mail_user: str = ""


@dataclass(frozen=True)
class Beside:
    """A swarm on a cluster, for a driver that is to run there, too."""

    swarm: Workload
    spec: SlurmJob
    """What its document says of drivers."""
    asked: DriverOptions
    """What the command line says; it wins."""


def compile_job(driver: Driver, context: Context, _: PlanFacts) -> Plan:
    """Plan a driver: on the host's machine, or on the cluster of a swarm, in its partition and on its account.

    Raises:
        InputError: a size or a time limit cannot be read.
    """
    group, backend, beside = _group(driver, context), "local", driver.beside
    place: dict[str, object] = {"env": dict(context.env)}
    labels = {}
    if beside is not None:
        swarm, backend = beside.swarm, beside.swarm.backend
        group = group.model_copy(update={
            "resources": _resources(swarm, beside.spec, beside.asked), "pools": _pools(swarm), "watch": WATCH,
            # A person who cancels the driver with the scheduler's own tools wants it to be over.
            "replace": group.replace.model_copy(update={"user_cancel": "stop"}),
        })  # fmt: skip
        mail = {"mail_user": beside.asked.mail_user} if beside.asked.mail_user else {}
        of_swarm = {name: value for name, value in swarm.place.items() if name in _OF_SWARM}
        place, labels = {**of_swarm, **mail, **place, "workdir": context.cwd}, {SWARM: swarm.name}
    workload = Workload(
        name=driver.name, kind=Kind.JOB, uid=UID, backend=backend, groups=(group,), place=place,
        run_dir=context.run_dir(driver.name), labels=labels,
    )  # fmt: skip
    return Plan(workload)


def _group(driver: Driver, context: Context) -> Group:
    return Group(
        name=DRIVER,
        role=Role.DRIVER,
        count=1,
        command=Command(argv=driver.argv, env=dict(driver.env), secret_env=dict(driver.secret_env), cwd=context.cwd),
        restart=RestartRule(policy="never"),
        replace=Replace(
            policy="on-failure", max_failures=driver.max_failures, backoff_initial_s=2.0, backoff_max_s=60.0
        ),
        kill_grace_s=30.0,
    )


def _resources(swarm: Workload, spec: SlurmJob, asked: DriverOptions) -> Resources:
    limit = seconds(asked.time, "--time") if asked.time else 0.0
    if not limit and spec.wall_time:
        limit = seconds(spec.wall_time, "backend.job.wall_time")
    replicas = next((group for group in swarm.groups if group.role.serves), None)
    return Resources(
        cpus=asked.cpus or spec.cpus_per_task,
        mem_bytes=_bytes(asked.mem) if asked.mem else parse_size(spec.mem),
        mem_field="--mem" if asked.mem else "backend.job.mem",
        time_limit_s=limit or (replicas.resources.time_limit_s if replicas else 0.0),
    )


def _bytes(text: str) -> int:
    with located("--mem"):
        return parse_size(text)


def _pools(swarm: Workload) -> tuple[Pool, ...]:
    """Those of the router, else of the replicas, without what they say of GPUs."""
    routers = [group for group in swarm.groups if group.role.routes]
    groups = [*routers, *(group for group in swarm.groups if group.role.serves)]
    pools = next((group.pools for group in groups if group.pools), ())
    return tuple(
        pool.model_copy(update={"place": {name: text for name, text in pool.place.items() if name in _OF_SWARM}})
        for pool in pools
    )


def filled(job: Workload, endpoint: str, uids: tuple[str, str], now: float, slots: int) -> Workload:
    """A job that was planned before its swarm was up, with what is known then.

    Args:
        job: its workload, with marks.
        endpoint: URL of the swarm.
        uids: of the swarm, as it was planned and as it is: another one was up already, with other files of secrets.
        now: seconds since the epoch.
        slots: requests that its servers work on at once.
    """

    def fill(text: str) -> str:
        numbers = text.replace(f'"{NOW}"', str(now)).replace(f'"{SLOTS}"', str(slots))
        return numbers.replace(ENDPOINT, endpoint).replace(*uids)

    bare = job.model_copy(update={"files": {}}).model_dump_json()
    files = {path: fill(text) for path, text in job.files.items()}
    return Workload.model_validate_json(fill(bare)).model_copy(update={"files": files})

"""From a batch job or a script to the workload of its driver, on this machine or beside a swarm on a cluster. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from remuda.base.errors import InputError
from remuda.base.units import parse_size
from remuda.plan.model import (
    Command,
    Group,
    Kind,
    NodeRestart,
    Pool,
    Replace,
    Resources,
    Role,
    Watch,
    Workload,
)
from remuda.specs.sbatch import slurm_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.specs.backend import SlurmJob

DRIVER: Final = "driver"
SWARM: Final = "swarm"
"""Label of a job: the swarm that it asks."""
_OF_SWARM: Final = ("partition", "account", "qos", "constraint", "reservation", "exclude_nodes", "modules", "preamble",
                    "mail_user", "python", "home")  # fmt: skip
"""What a driver takes over from its swarm's place: not the GPUs, and not the node that was named for replicas."""
WATCH: Final = Watch(gpu_check=False, scan_log=False, warn_signal="TERM", warn_before_s=60.0)


@dataclass(frozen=True)
class Driver:
    """A driver to be run.

    Attributes:
        name: of the job.
        uid: random, new for every creation.
        run_dir: absolute directory for everything its tasks write.
        command: what is run, from the directory where the user typed.
        max_failures: consecutive failures before it is given up.
        env: what is kept of the user's environment.
    """

    name: str
    uid: str
    run_dir: str
    command: Command
    max_failures: int
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    """What the user said of the driver's job; empty where nothing was said."""

    cpus: int = 0
    mem: str = ""
    time: str = ""
    mail_user: str = ""


def plan_here(driver: Driver) -> Workload:
    """A driver on the host's machine."""
    return Workload(
        name=driver.name, kind=Kind.JOB, uid=driver.uid, backend="local", groups=(_group(driver),),
        place={"env": dict(driver.env)}, run_dir=driver.run_dir,
    )  # fmt: skip


def plan_beside(driver: Driver, swarm: Workload, spec: SlurmJob, asked: Asked) -> Workload:
    """A driver on the cluster of `swarm`, in its partition and on its account.

    Args:
        driver: what runs.
        swarm: that is asked.
        spec: what the swarm's document says of drivers.
        asked: what the command line says; it wins.

    Raises:
        InputError: a size or a time limit is none.
    """
    place = {name: value for name, value in swarm.place.items() if name in _OF_SWARM}
    if asked.mail_user:
        place["mail_user"] = asked.mail_user
    group = _group(driver).model_copy(
        update={"resources": _resources(swarm, spec, asked), "pools": _pools(swarm), "watch": WATCH}
    )
    # A person who cancels the driver with the scheduler's own tools wants it to be over.
    group = group.model_copy(update={"replace": group.replace.model_copy(update={"user_cancel": "stop"})})
    return Workload(
        name=driver.name, kind=Kind.JOB, uid=driver.uid, backend=swarm.backend, groups=(group,),
        place={**place, "env": dict(driver.env), "workdir": driver.command.cwd}, run_dir=driver.run_dir,
        labels={SWARM: swarm.name},
    )  # fmt: skip


def _group(driver: Driver) -> Group:
    return Group(
        name=DRIVER,
        role=Role.DRIVER,
        count=1,
        command=driver.command,
        restart=NodeRestart(policy="never"),
        replace=Replace(
            policy="on-failure", max_failures=driver.max_failures, backoff_initial_s=2.0, backoff_max_s=60.0
        ),
        kill_grace_s=30.0,
    )


def _resources(swarm: Workload, spec: SlurmJob, asked: Asked) -> Resources:
    limit = _seconds(asked.time, "--time") if asked.time else 0.0
    if not limit and spec.wall_time:
        limit = _seconds(spec.wall_time, "backend.job.wall_time")
    replicas = next((group for group in swarm.groups if group.role.serves), None)
    return Resources(
        cpus=asked.cpus or spec.cpus_per_task,
        mem_bytes=_bytes(asked.mem) if asked.mem else parse_size(spec.mem),
        mem_field="--mem" if asked.mem else "backend.job.mem",
        time_limit_s=limit or (replicas.resources.time_limit_s if replicas else 0.0),
    )


def _bytes(text: str) -> int:
    try:
        return parse_size(text)
    except InputError as error:
        raise InputError(error.message, hint=error.hint, where="--mem") from error


def _seconds(text: str, where: str) -> float:
    try:
        return slurm_seconds(text)
    except InputError as error:
        raise InputError(error.message, hint=error.hint, where=where) from error


def _pools(swarm: Workload) -> tuple[Pool, ...]:
    """Those of the router, else of the replicas, without what they say of GPUs."""
    routers = [group for group in swarm.groups if group.role.routes]
    groups = [*routers, *(group for group in swarm.groups if group.role.serves)]
    pools = next((group.pools for group in groups if group.pools), ())
    return tuple(
        pool.model_copy(update={"place": {name: text for name, text in pool.place.items() if name in _OF_SWARM}})
        for pool in pools
    )

"""Small workloads and tasks for the supervisor's tests."""

from __future__ import annotations

from remuda.backends.base import Life, Observed, TaskKey
from remuda.plan.model import Command, Endpoint, Group, HealthProbe, Kind, Listen, Pool, Replace, Role, Workload
from remuda.supervise.model import Want
from remuda.wire.report import Report

NAME = "w"
UID = "u1"


def group(name: str = "replica", count: int = 2, *, replace: Replace | None = None, role: Role = Role.REPLICA) -> Group:
    return Group(
        name=name,
        role=role,
        count=count,
        command=Command(argv=("server",)),
        listen=Listen(port=8000),
        probe=HealthProbe(),
        replace=replace or Replace(max_failures=3, backoff_initial_s=10, backoff_max_s=60, heal_after_s=600),
    )


def workload(*groups: Group, endpoint: Endpoint | None = None, name: str = NAME) -> Workload:
    return Workload(
        name=name,
        kind=Kind.SWARM,
        uid=UID,
        backend="fake",
        groups=groups or (group(),),
        endpoint=endpoint,
        run_dir=f"/run/{name}",
    )


def want(*groups: Group, running: bool = True, generation: int = 1, endpoint: Endpoint | None = None) -> Want:
    return Want(workload(*groups, endpoint=endpoint), running=running, generation=generation)


def key(index: int = 0, group_name: str = "replica") -> TaskKey:
    return TaskKey(NAME, group_name, index)


def report(token: str, state: str, seq: int, *, attempt: int = 1, url: str = "http://127.0.0.1:8000") -> Report:
    return Report(token=token, attempt=attempt, seq=seq, at=0.0, state=state, node="n1", url=url, reason=f"is {state}")


RULE = Replace(policy="on-failure", max_failures=3, backoff_initial_s=10, backoff_max_s=60, user_cancel="stop")


def script(**changes: object) -> Group:
    return group("script", 1, replace=RULE, role=Role.SCRIPT).model_copy(update={"probe": None, **changes})


def pools(*names: str) -> tuple[Pool, ...]:
    return tuple(Pool(name=name) for name in names)


RUNS = Observed(Life.RUNNING, "1", "running", "n1")
ENDED_0 = Observed(Life.ENDED, exit_code=0)
ENDED_1 = Observed(Life.ENDED, exit_code=1)
GONE = Observed(Life.GONE)

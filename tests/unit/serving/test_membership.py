"""Who is a member."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from remuda.backends.base import TaskKey
from remuda.plan.model import Command, Endpoint, Group, Kind, Role, Workload
from remuda.serving.membership import front, members, ready_fronts
from remuda.serving.router import Member
from remuda.supervise.model import Phase, Task

WORKLOAD = Workload(
    name="herd",
    kind=Kind.SWARM,
    uid="u",
    backend="local",
    run_dir="/run",
    groups=(
        Group(name="replica", role=Role.REPLICA, count=3, command=Command(argv=("engine",))),
        Group(name="router", role=Role.ROUTER, count=1, command=Command(argv=("router",))),
    ),
    endpoint=Endpoint(port=8000, router="router", model="tiny"),
)


@st.composite
def tasks(draw: st.DrawFn) -> list[Task]:
    keys = draw(
        st.lists(
            st.builds(
                TaskKey,
                st.sampled_from(["herd", "other"]),
                st.sampled_from(["replica", "router"]),
                st.integers(0, 4),
            ),
            unique=True,
        )
    )
    return [
        Task(
            key=key,
            backend="local",
            phase=draw(st.sampled_from(Phase)),
            yields_at=draw(st.sampled_from([0.0, 5.0])),
            submitted_at=draw(st.sampled_from([1.0, 2.0])),
            url=draw(st.sampled_from(["", f"http://127.0.0.1:{8000 + index}", f"http://127.0.0.1:{8000 + index}/"])),
        )
        for index, key in enumerate(keys)
    ]


@given(tasks())
def test_members_are_exactly_the_ready_replicas_with_an_address(seen: list[Task]) -> None:
    expected = {
        Member(task.url.rstrip("/"))
        for task in seen
        if (task.key.workload, task.key.group, task.phase) == ("herd", "replica", Phase.READY) and task.url
        and not task.yields_at
    }  # fmt: skip
    assert members(WORKLOAD, seen) == expected


@given(tasks(), st.randoms())
def test_the_order_of_tasks_means_nothing(seen: list[Task], random: object) -> None:
    before = members(WORKLOAD, seen)
    random.shuffle(seen)  # type: ignore[attr-defined]
    assert members(WORKLOAD, seen) == before


@given(tasks())
def test_a_router_never_sends_to_itself(seen: list[Task]) -> None:
    router = front(WORKLOAD, seen)
    assert router is None or router.url.rstrip("/") not in {member.url for member in members(WORKLOAD, seen)}


def test_who_is_in_front() -> None:
    """The ready router of the lowest index; without a router the replica."""
    url = "http://127.0.0.1:8000"
    first, second = (Task(TaskKey("herd", "router", index), "local", Phase.READY, url=url) for index in (0, 1))
    replica = Task(TaskKey("herd", "replica", 0), "local", Phase.READY, url=url)
    assert front(WORKLOAD, [replica, second, first]) == first
    assert front(WORKLOAD, [replica, second]) == second
    assert front(WORKLOAD, [replica]) is None
    alone = WORKLOAD.model_copy(update={"endpoint": Endpoint(port=8000)})
    assert front(alone, [first, replica]) == replica
    assert front(WORKLOAD.model_copy(update={"endpoint": None}), [first, replica]) is None


def test_while_routers_follow_each_other_the_older_one_is_in_front_until_it_yields() -> None:
    url = "http://127.0.0.1:8000"
    old = Task(TaskKey("herd", "router", 500), "slurm", Phase.READY, url=url, submitted_at=1.0)
    new = Task(TaskKey("herd", "router", 0), "slurm", Phase.READY, url=url, submitted_at=2.0)
    assert ready_fronts(WORKLOAD, [new, old]) == [old, new]
    leaving = replace(old, yields_at=3.0)
    assert ready_fronts(WORKLOAD, [leaving, new]) == [new, leaving]
    assert front(WORKLOAD, [leaving, replace(new, phase=Phase.UNHEALTHY)]) == leaving


def test_prefill_and_decode_are_members_as_such_and_answer_for_nobody() -> None:
    groups = tuple(
        Group(name=role.value, role=role, count=1, command=Command(argv=("engine",)))
        for role in (Role.PREFILL, Role.DECODE)
    )
    apart = WORKLOAD.model_copy(update={"groups": groups, "endpoint": Endpoint(port=8000, model="tiny")})
    url = "http://127.0.0.1:9"
    ports = {"prefill": {"bootstrap": 8998}, "decode": {"other": 1}}
    seen = [Task(TaskKey("herd", role, 0), "local", Phase.READY, url=url, ports=ports[role]) for role in ports]
    assert members(apart, seen) == {Member(url, Role.PREFILL, 8998), Member(url, Role.DECODE)}
    assert front(apart, seen) is None

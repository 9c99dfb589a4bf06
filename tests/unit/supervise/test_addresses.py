"""Services: what is told their address waits for it, and is begun again when they come back elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.unit.supervise.build import group, key, want, workload

from remuda.backends.base import Rendered, make_token, pack_token
from remuda.plan.model import Group, Listen, NodeSpan, Role, address_mark
from remuda.supervise.groups import addresses
from remuda.supervise.model import Cause, Phase, Task
from remuda.supervise.submit import _whole
from remuda.supervise.summary import summarise

if TYPE_CHECKING:
    from tests.unit.supervise.bed import Bed

SERVICE = group("etcd", 1, role=Role.SERVICE)
HERE = "http://127.0.0.1:2379"


def worker(name: str = "decode", **changes: object) -> Group:
    made = group(name, 1, role=Role.DECODE)
    env = {"ETCD_ENDPOINTS": f"http://{address_mark('etcd')}"}
    command = made.command.model_copy(update={"env": env})
    return made.model_copy(update={"command": command, "after": ("etcd",), **changes})


def service(phase: Phase = Phase.READY, url: str = HERE, **changes: object) -> Task:
    return replace(Task(key(0, "etcd"), "fake", phase, attempt=1, token="t", url=url), **changes)  # type: ignore[arg-type]


def test_an_address_is_told_wherever_it_stands() -> None:
    spread = NodeSpan(nodes=2, member=["m", address_mark("etcd")])
    made = addresses.told(worker(spread=spread), {key(0, "etcd"): service(url="http://n1:2379/")})
    assert made.command.env == {"ETCD_ENDPOINTS": "http://n1:2379"}
    assert made.spread is not None
    assert made.spread.member == ["m", "n1:2379"]
    assert addresses.told(SERVICE, {}) is SERVICE
    odd = addresses.told(worker(), {key(0, "etcd"): service(url='http://a","b":"c')})
    assert odd.command.env == {"ETCD_ENDPOINTS": 'http://a","b":"c'}, "whatever a node says is one word"


@pytest.mark.parametrize(
    ("task", "known"),
    [
        (service(), True),
        (service(Phase.UNHEALTHY), True),
        (service(Phase.STARTING), False),
        (service(Phase.WAITING), False),
        (service(url=""), False),
    ],
)
def test_who_does_not_answer_has_no_address(task: Task, *, known: bool) -> None:
    if known:
        assert addresses.told(worker(), {task.key: task}).command.env == {"ETCD_ENDPOINTS": HERE}
        return
    with pytest.raises(addresses.NotYet, match="waits for the address of etcd"):
        addresses.told(worker(), {task.key: task})


@pytest.mark.parametrize(
    ("url", "failures", "expected"),
    [
        pytest.param("", 0, Listen(port=8000), id="the first time"),
        pytest.param(HERE, 0, Listen(port=2379, fixed=True), id="again"),
        pytest.param(HERE, 2, Listen(port=2379, fixed=True), id="somebody else has it"),
        pytest.param(HERE, 3, Listen(port=8000), id="somebody else has it and keeps it"),
        pytest.param("http://n1:2379", 0, Listen(port=8000), id="another node may be given next"),
    ],
)
def test_a_service_of_this_machine_keeps_its_port(url: str, failures: int, expected: Listen) -> None:
    assert addresses.kept(SERVICE, service(url=url, pool_failures=failures)).listen == expected


MOVED = service(url="http://n2:1")


@pytest.mark.parametrize(
    ("before", "after", "phase", "is_misled"),
    [
        (service(), MOVED, Phase.READY, True),
        (service(), MOVED, Phase.PENDING, True),
        (service(), MOVED, Phase.SUBMITTING, True),
        (service(), MOVED, Phase.WAITING, False),
        (service(), MOVED, Phase.STOPPING, False),
        (service(), service(), Phase.READY, False),
        (service(url=""), MOVED, Phase.READY, False),
        (service(), service(url=""), Phase.READY, False),
    ],
)
def test_who_was_told_another_address(before: Task, after: Task, phase: Phase, *, is_misled: bool) -> None:
    told, other = (Task(key(0, name), "fake", phase, attempt=1, token=name) for name in ("decode", "other"))
    groups = workload(SERVICE, worker(), group("other", 1))
    found = addresses.misled(groups, before, after, [before, told, other])
    assert [task.key.group for task in found] == (["decode"] if is_misled else [])
    why = "etcd has another address: it was 127.0.0.1:2379, and is n2:1"
    assert [(task.ending, task.reason) for task in found] == ([(Cause.USER, why)] if is_misled else [])


def test_another_address_of_what_is_no_service_is_nothing() -> None:
    task = Task(key(), "fake", Phase.READY, url=HERE)
    groups = workload(group(), worker())
    assert addresses.misled(groups, task, replace(task, url="http://n2:1"), [task]) == []


async def says(bed: Bed, name: str, url: str) -> None:
    """A task of that group is ready at an address."""
    bed.host.take(replace(bed.backend.report(bed.task(group=name).token), url=url))
    await bed.go(1)


async def up(bed: Bed) -> None:
    bed.up(SERVICE, worker())
    await bed.go(1)
    await says(bed, "etcd", HERE)
    await says(bed, "decode", "http://127.0.0.1:9")
    assert bed.phases() == [Phase.READY, Phase.READY]


async def test_a_service_that_comes_back_where_it_was_is_nobodys_business(bed: Bed) -> None:
    await up(bed)
    bed.backend.end(bed.task(group="etcd").token, 1)
    await bed.go(20)
    asked = bed.backend.requests[bed.task(group="etcd").token].group.listen
    assert asked == Listen(port=2379, fixed=True)
    await says(bed, "etcd", HERE)
    assert (bed.task(group="etcd").attempt, bed.task(group="decode").attempt) == (2, 1)


async def test_a_service_that_comes_back_elsewhere_has_others_begun_again(bed: Bed) -> None:
    await up(bed)
    bed.backend.end(bed.task(group="etcd").token, 1)
    await bed.go(20)
    await says(bed, "etcd", "http://n2:7")
    await bed.go(20)
    decode = bed.task(group="decode")
    assert (decode.attempt, decode.failures) == (2, 0)
    assert bed.backend.requests[decode.token].group.command.env == {"ETCD_ENDPOINTS": "http://n2:7"}
    assert any("etcd has another address" in line.reason for line in bed.story())


async def test_what_is_replaced_meanwhile_waits_for_the_address(bed: Bed) -> None:
    await up(bed)
    for name in ("etcd", "decode"):
        bed.backend.end(bed.task(group=name).token, 1)
    await bed.go(30)
    etcd, decode = bed.task(group="etcd"), bed.task(group="decode")
    assert etcd.phase is Phase.STARTING
    assert (decode.phase, decode.reason) == (Phase.SUBMITTING, "waits for the address of etcd")
    assert decode.token not in bed.backend.made
    await says(bed, "etcd", HERE)
    await bed.go(10)
    assert bed.task(group="decode").phase is Phase.STARTING
    assert bed.bugs() == []


@pytest.mark.parametrize(
    ("etcd", "decode", "phase"),
    [
        (Phase.READY, Phase.READY, "RUNNING"),
        (Phase.STARTING, Phase.READY, "DEGRADED"),
        (Phase.FAILED, Phase.READY, "DEGRADED"),
        (Phase.FAILED, Phase.WAITING, "FAILED"),
        (Phase.STARTING, Phase.WAITING, "STARTING"),
    ],
)
def test_how_a_deployment_is_with_its_services(etcd: Phase, decode: Phase, phase: str) -> None:
    tasks = {
        key(0, "etcd"): service(etcd, reason="as it is"),
        key(0, "decode"): Task(key(0, "decode"), "fake", decode, attempt=1, reason="held"),
    }
    summary = summarise(want(SERVICE, worker()), tasks)
    assert summary.phase == phase
    assert (summary.reason == "etcd/0: as it is") == (phase in ("DEGRADED", "FAILED"))


def test_a_service_that_nobody_waits_for_is_not_missed() -> None:
    tasks = {
        key(0, "etcd"): service(Phase.FAILED),
        key(0, "decode"): Task(key(0, "decode"), "fake", Phase.READY, attempt=1),
    }
    assert summarise(want(SERVICE, worker(after=())), tasks).phase == "RUNNING"


def test_of_a_pack_nothing_is_sent_where_one_task_waits_for_an_address() -> None:
    names = ("decode", "frontend", "etcd", "relay")
    mine = [replace(service(), key=key(0, name), token=make_token(key(0, name), 1, "u1")) for name in names]
    wait, other = addresses.NotYet("waits"), addresses.NotYet("other")
    pack = pack_token(mine[0].token)
    front, alone = Rendered(mine[1].token, (), pack=pack), Rendered(mine[3].token, ())
    assert _whole(mine, [wait, front, other, alone]) == [wait, wait, other, alone]
    assert _whole(mine[1:], [front, other, alone]) == [front, other, alone], "a service that waits holds nobody up"

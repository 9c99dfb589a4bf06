"""Which router is named in an endpoint's files, and when they are written."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.unit.supervise.build import group, key, workload

from remuda.batch.address import ENDPOINT_FILE
from remuda.host.reconcilers.endpoint_files import (
    ROUTER_FILE,
    EndpointFiles,
    answering,
    endpoint_document,
    life,
    router_document,
)
from remuda.plan.model import Endpoint, Role
from remuda.supervise.model import Phase, Task, Want
from remuda.supervise.reconciler import Moment
from remuda.views.workloads import RouterView

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.backends.base import TaskKey

ENDPOINT = Endpoint(host="127.0.0.1", port=9000, router="router", relay="relay", model="m")
SWARM = workload(group(), group("router", 1, role=Role.ROUTER), group("relay", 1, role=Role.RELAY), endpoint=ENDPOINT)
ALONE = workload(group(count=1), group("relay", 1, role=Role.RELAY), endpoint=Endpoint(port=9000, relay="relay"))
URL = "http://n1:9001"
TOLD = RouterView(url=URL, members=["http://n2:8000"], stats={})

NO_MEMBERS = RouterView(url=URL, members=[], stats={})


def task(phase: Phase, name: str = "router", index: int = 0, url: str = URL, attempt: int = 1) -> Task:
    return Task(key(index, name), "slurm", phase, attempt=attempt, token=f"{name}-{index}-{attempt}", url=url)


def by_key(*tasks: Task) -> dict[TaskKey, Task]:
    return {item.key: item for item in tasks}


@pytest.mark.parametrize(
    ("router", "told", "before", "expected"),
    [
        pytest.param(Phase.READY, TOLD, "", URL, id="ready and told"),
        pytest.param(Phase.READY, None, "", "", id="not told yet"),
        pytest.param(Phase.READY, NO_MEMBERS, "", "", id="told that there is no replica"),
        pytest.param(Phase.READY, TOLD.model_copy(update={"url": "http://n1:1"}), "", "", id="another one was told"),
        pytest.param(Phase.READY, None, "router-0-1/0", URL, id="told by the host before"),
        pytest.param(Phase.READY, None, "router-0-0/0", "", id="another attempt was told"),
        pytest.param(Phase.UNHEALTHY, None, "", URL, id="better than none"),
        pytest.param(Phase.STARTING, TOLD, "", "", id="starting"),
        pytest.param(Phase.WAITING, TOLD, "router-0-1/0", "", id="lost"),
    ],
)
def test_who_is_asked(router: Phase, told: RouterView | None, before: str, expected: str) -> None:
    chosen = answering(SWARM, by_key(task(router)), told, before)
    assert (chosen.url if chosen else "") == expected


def test_without_a_router_the_replica_is_asked_at_once() -> None:
    replica = task(Phase.READY, "replica")
    assert answering(ALONE, by_key(replica)) == replica
    assert answering(ALONE, by_key(task(Phase.PENDING, "replica"))) is None


def test_a_router_that_ends_may_still_answer() -> None:
    """Two starts at one address are told apart; what is lost for sure is in no list."""
    old, new = task(Phase.STOPPING), task(Phase.READY, index=1)
    said = router_document(SWARM, by_key(old, new, task(Phase.WAITING, index=2)), new)
    assert said == {
        "router": {"url": URL, "id": "router-1-1/0"},
        "alive": [{"url": URL, "id": "router-0-1/0"}, {"url": URL, "id": "router-1-1/0"}],
    }
    assert life(replace(new, restarts=1)) != life(new)
    assert router_document(SWARM, {}, None) == {"router": None, "alive": []}


def test_programs_read_both_addresses() -> None:
    said = endpoint_document(SWARM, {}, task(Phase.READY, url=f"{URL}/"))
    assert said == {"url": "http://127.0.0.1:9000", "router": URL, "model": "m"}
    assert endpoint_document(SWARM, {}, None)["router"] == ""


async def test_files_follow_and_a_new_host_does_not_take_them_back(tmp_path: Path) -> None:
    want = Want(SWARM.model_copy(update={"run_dir": str(tmp_path)}), running=True)
    tasks, views = by_key(task(Phase.READY)), dict[str, RouterView]()
    files = EndpointFiles(views)

    async def said() -> tuple[str, str]:
        await files.close()
        router, endpoint = (json.loads((tmp_path / name).read_text()) for name in (ROUTER_FILE, ENDPOINT_FILE))
        assert endpoint["at"] > 0
        return (router["router"] or {"url": ""})["url"], endpoint["router"]

    files.step(Moment(want, tasks))
    assert await said() == ("", "")
    views["w"] = TOLD
    files.changed("w")
    assert await said() == (URL, URL)
    before = (tmp_path / ENDPOINT_FILE).stat().st_mtime_ns
    files = EndpointFiles({})
    files.step(Moment(want, tasks))
    assert await said() == (URL, URL)
    assert (tmp_path / ENDPOINT_FILE).stat().st_mtime_ns == before, "it says the same"
    files.step(Moment(want, by_key(task(Phase.PENDING, url=""))))
    assert await said() == ("", "")


async def test_a_directory_that_is_gone_is_no_error(tmp_path: Path) -> None:
    files = EndpointFiles({})
    files.step(Moment(Want(SWARM.model_copy(update={"run_dir": str(tmp_path / "gone")}), running=True), {}))
    await files.close()
    assert not (tmp_path / "gone").exists()


def test_a_successor_is_asked_only_when_it_was_told_of_a_replica() -> None:
    old = replace(task(Phase.READY), yields_at=5.0)
    new = task(Phase.READY, index=500, url="http://n3:9001")
    ignorant = RouterView(url=new.url, members=[], stats={}, beside=[TOLD])
    assert answering(SWARM, by_key(old, new), ignorant) == old
    told = TOLD.model_copy(update={"url": new.url, "beside": [TOLD]})
    assert answering(SWARM, by_key(old, new), told) == new
    stays = replace(old, yields_at=0.0)
    assert answering(SWARM, by_key(stays, new), told) == stays, "the new one settles in first"


async def test_drivers_can_read_that_their_swarm_was_taken_down(tmp_path: Path) -> None:
    swarm = SWARM.model_copy(update={"run_dir": str(tmp_path / "herd")})
    mark = tmp_path / "herd" / "down.json"

    async def followed(want: Want) -> None:
        files = EndpointFiles({})
        for _ in range(2):
            files.step(Moment(want, {}))
        await files.close()

    idle = Want(swarm, running=False, generation=2, note="idle for 1h")
    await followed(idle)
    assert not mark.parent.exists(), "nothing is made for a swarm that is gone"
    mark.parent.mkdir()
    await followed(idle)
    assert json.loads(mark.read_text())["reason"] == "idle for 1h"
    await followed(replace(idle, note="taken down"))
    assert json.loads(mark.read_text())["reason"] == "", "somebody just did"
    await followed(Want(swarm, running=True, generation=3))
    assert not mark.exists(), "by the next host, too"

"""Whom a router is told of, and its numbers, asked for by a view."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.unit.supervise.build import group, key, workload

from remuda.base.errors import RemudaError
from remuda.host.reconcilers import router_members
from remuda.host.reconcilers.router_members import RouterMembers
from remuda.plan.model import Endpoint, Front, Role
from remuda.serving.router import MemberChanges
from remuda.supervise.model import Phase, Task, Want
from remuda.supervise.reconciler import Moment
from remuda.views.workloads import RouterView

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remuda.backends.base import TaskKey
    from remuda.serving.router import Member


@pytest.mark.parametrize("router", ["none", "of a newer version"])
async def test_where_no_router_is_followed_none_is_asked(router: str) -> None:
    bare = workload(endpoint=Endpoint(host="127.0.0.1", port=8000, model="m"))
    fronted = bare.model_copy(update={"front": Front(router=router, engine="command")})
    await RouterMembers({}).refresh(fronted.name, fronted)


class Told:
    """A router that writes down whom it was told of."""

    def __init__(self) -> None:
        self.members = asyncio.Queue[list[str]]()

    async def sync(self, _: str, members: Iterable[Member], __: object) -> MemberChanges:
        self.members.put_nowait(sorted(member.url for member in members))
        return MemberChanges(added=frozenset(), removed=frozenset(), pending=frozenset())

    async def stats(self, *_: object) -> None:
        raise RemudaError("it does not count")


async def test_a_router_is_told_when_its_members_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    told, changed, views = Told(), list[str](), dict[str, RouterView]()
    monkeypatch.setattr(router_members, "router_named", lambda *_: told)
    made = workload(group(), group("router", 1, role=Role.ROUTER), endpoint=Endpoint(router="router"))
    want = Want(made.model_copy(update={"front": Front()}), running=True)
    one = RouterMembers(views, changed.append)

    def tasks(*up: str, router: int = 1) -> dict[TaskKey, Task]:
        keys = {f"http://r{index}": key(index) for index in range(2)}
        found = {keys[url]: Task(keys[url], "fake", Phase.READY, url=url, token=url) for url in up}
        front = key(0, "router")
        return found | {front: Task(front, "fake", Phase.READY, url="http://front", token="t", restarts=router)}

    assert one.due(Moment(want, {})).actions == {}
    one.step(Moment(want, tasks("http://r0")))
    assert await told.members.get() == ["http://r0"]
    assert one.due(Moment(want, tasks("http://r0"))).actions == {}, "it was told"
    one.step(Moment(want, tasks("http://r0", "http://r1")))
    assert await told.members.get() == ["http://r0", "http://r1"]
    one.step(Moment(want, tasks("http://r1", router=2)))
    assert await told.members.get() == ["http://r1"], "another life is told anew"
    assert views["w"].url == "http://front"
    one.step(Moment(want, {}))
    assert (views, one.due(Moment(want, {})).actions) == ({}, {})
    assert set(changed) == {"w"}
    await one.close()

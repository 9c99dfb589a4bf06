"""A replica in a pod or a fleet is ready when this machine has met it; where none is met, its swarm is over."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from remuda.backends.base import TaskKey
from remuda.host.reconcilers import reach as module
from remuda.host.reconcilers.reach import Reach
from remuda.wire.report import Report

if TYPE_CHECKING:
    from collections.abc import Callable

TOKENS = {"pods": "w.replica.0.1.abcdefgh", "other": "w.replica.1.1.abcdefgh", "here": "w.router.0.1.abcdefgh"}


@dataclass
class Site:
    """A service with one swarm, and what a `Reach` before it did."""

    backend: str = "kubernetes"
    is_asked_here: bool = True
    taken: list[tuple[str, str, str]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    announced: bool = False

    def service(self) -> Any:
        roles = {"replica": (True, ""), "router": (False, "local")}

        def group(name: str) -> Any:
            serves, backend = roles[name]
            return SimpleNamespace(role=SimpleNamespace(serves=serves), backend=backend)

        workload = SimpleNamespace(name="w", backend=self.backend, group=group, is_asked_here=self.is_asked_here)
        want = SimpleNamespace(workload=workload, running=True, announced=self.announced)
        tasks = {TaskKey("w", token.split(".")[1], int(token.split(".")[2])): token for token in TOKENS.values()}
        supervisor = SimpleNamespace(
            wants={"w": want},
            tasks=lambda _: {key: SimpleNamespace(token=token) for key, token in tasks.items()},
            take=lambda report: self.taken.append((report.token, report.state, report.reason)),
        )
        return SimpleNamespace(supervisor=supervisor, down=lambda _, why: self.ended.append(why))


def ready(token: str, seq: int = 1) -> Report:
    return Report(token, 1, seq, 1.0, "ready", url="http://10.0.0.7:8000")


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAUSE_S", 0.0)


def answers(monkeypatch: pytest.MonkeyPatch, say: Callable[[int], str]) -> list[str]:
    """Let each try be answered by what `say` makes of its number."""
    asked: list[str] = []

    async def why_not(url: str) -> str:
        asked.append(url)
        await asyncio.sleep(0)
        return say(len(asked))

    monkeypatch.setattr(module, "_why_not", why_not)
    return asked


async def settled(reach: Reach) -> None:
    while reach._asking:
        await asyncio.sleep(0)


async def test_the_newest_report_counts_once_it_is_met(monkeypatch: pytest.MonkeyPatch) -> None:
    site, asked = Site(), answers(monkeypatch, lambda number: "" if number == 2 else "no route")
    reach = Reach(site.service())
    reach.take(ready(TOKENS["pods"]))
    assert site.taken == []
    reach.take(replace(ready(TOKENS["pods"], 2), reason="newer"))
    await settled(reach)
    reach.take(ready(TOKENS["pods"], 3))
    assert site.taken == [(TOKENS["pods"], "ready", "newer"), (TOKENS["pods"], "ready", "")]
    assert (len(asked), site.ended) == (2, [])


async def test_what_is_not_met_is_not_ready_and_ends_its_swarm(monkeypatch: pytest.MonkeyPatch) -> None:
    site, asked = Site(), answers(monkeypatch, lambda _: "no route")
    reach = Reach(site.service())
    reach.take(ready(TOKENS["pods"]))
    await settled(reach)
    ((_, state, reason),) = site.taken
    assert state == "starting"
    assert reason.startswith("well by its own report, and not reached from ")
    assert " at http://10.0.0.7:8000 (no route): run the host in the cluster, or on a machine that " in reason
    assert site.ended == [f"it failed: replica/0: {reason}"]
    assert len(asked) == 3
    reach.take(ready(TOKENS["pods"], 2))
    await settled(reach)
    assert len(asked) == 6, "it is asked again when it says again that it is well"


async def test_in_a_fleet_it_is_told_what_to_do_there(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site("slurm")
    answers(monkeypatch, lambda _: "no route")
    reach = Reach(site.service())
    reach.take(ready(TOKENS["pods"]))
    await settled(reach)
    ((_, _, reason),) = site.taken
    assert reason.endswith(" (no route): let this machine reach the ports of that one: a firewall is between them")


async def test_where_the_router_is_on_the_cluster_this_machine_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    site, asked = Site("slurm", is_asked_here=False), answers(monkeypatch, lambda _: "no route")
    Reach(site.service()).take(ready(TOKENS["pods"]))
    assert ([(TOKENS["pods"], "ready", "")], []) == (site.taken, asked)


@pytest.mark.parametrize("announced", [True, False])
async def test_one_of_several_ends_nothing(monkeypatch: pytest.MonkeyPatch, *, announced: bool) -> None:
    site = Site(announced=announced)
    answers(monkeypatch, lambda number: "" if number == 1 and not announced else "no route")
    reach = Reach(site.service())
    for token in (TOKENS["pods"], TOKENS["other"]):
        reach.take(ready(token))
        await settled(reach)
    assert [state for _, state, _ in site.taken] == ["starting" if announced else "ready", "starting"]
    assert site.ended == []


@pytest.mark.parametrize("report", [
    ready(TOKENS["here"]), ready("w.replica.0.2.abcdefgh"), ready("gone.replica.0.1.abcdefgh"), ready("no token"),
    replace(ready(TOKENS["pods"]), state="starting"), replace(ready(TOKENS["pods"]), url=""),
])  # fmt: skip
async def test_nothing_else_is_held(monkeypatch: pytest.MonkeyPatch, report: Report) -> None:
    site, asked = Site(), answers(monkeypatch, lambda _: "no route")
    Reach(site.service()).take(report)
    assert ([(report.token, report.state, "")], []) == (site.taken, asked)


async def test_addresses_are_met_or_not() -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    assert await module._why_not(f"http://127.0.0.1:{port}") == ""
    server.close()
    await server.wait_closed()
    assert await module._why_not(f"http://127.0.0.1:{port}") == "Connection refused"

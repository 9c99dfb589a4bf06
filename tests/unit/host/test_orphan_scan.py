"""What is left of a workload that is down is found by its name, and nothing else is touched."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.fakes.backend import FakeBackend, Made
from tests.fakes.clock import FakeClock

from remuda.backends.base import Life, Observed, TaskKey, make_token
from remuda.base.errors import BackendUnreachable
from remuda.host.orphan_scan import endings, sweep
from remuda.plan.model import Command, Group, Kind, RestartRule, Role, Workload
from remuda.supervise.model import Phase, Task, Want

UID = "k3f9a1xq"


def bed(*, running: bool = False, phase: Phase = Phase.STOPPED) -> tuple[Any, FakeBackend]:
    backend = FakeBackend(FakeClock())
    group = Group(name="script", role=Role.SCRIPT, count=1, command=Command(argv=("x",)),
                  restart=RestartRule(policy="never"))  # fmt: skip
    workload = Workload(name="train", kind=Kind.RUN, uid=UID, backend="fake", groups=(group,), run_dir="/r")
    key = TaskKey("train", "script", 0)
    tasks = {key: Task(key, "fake", phase)}
    supervisor = SimpleNamespace(
        wants={"train": Want(workload, running)}, backends={"fake": backend}, tasks=lambda _: tasks
    )
    return supervisor, backend


def put(backend: FakeBackend, name: str = "train", attempt: int = 1, uid: str = UID) -> str:
    token = make_token(TaskKey(name, "script", 0), attempt, uid)
    backend.made[token] = Made(Observed(Life.RUNNING, native=f"job-{len(backend.made)}", node="n1"))
    return token


async def test_only_its_own_are_ended() -> None:
    supervisor, backend = bed()
    mine, other, older = put(backend), put(backend, "other"), put(backend, uid="zzzzzzzz")
    (left,) = await sweep(supervisor, "train", force=False)
    assert (left.token, left.task, left.native) == (mine, "script/0", "job-0")
    assert backend.living() == [other, older]
    assert await sweep(supervisor, "train", force=False) == []


async def test_what_does_not_listen_is_killed_by_force() -> None:
    supervisor, backend = bed()
    token = put(backend)
    backend.made[token].is_stubborn = True
    assert len(await sweep(supervisor, "train", force=False)) == 1
    assert backend.living() == [token]
    await sweep(supervisor, "train", force=True)
    assert backend.living() == []


@pytest.mark.parametrize(("running", "phase"), [(True, Phase.READY), (False, Phase.STOPPING)])
async def test_what_is_wanted_or_still_ends_is_the_supervisors(running: bool, phase: Phase) -> None:
    supervisor, backend = bed(running=running, phase=phase)
    token = put(backend)
    assert await sweep(supervisor, "train", force=True) == []
    assert backend.living() == [token]


async def test_brought_up_again_meanwhile_it_is_left_alone() -> None:
    supervisor, backend = bed()
    token = put(backend)

    def up_again(step: str) -> None:
        if step == "after list_all":
            supervisor.wants["train"] = replace(supervisor.wants["train"], running=True)

    backend.hook = up_again
    assert await sweep(supervisor, "train", force=True) == []
    assert backend.living() == [token]


async def test_of_what_was_done_no_backend_is_asked() -> None:
    """So it is down at once, also where its cluster is gone."""
    supervisor, backend = bed(phase=Phase.DONE)
    supervisor.unreachable = {"fake": "no answer"}
    backend.silent = {"list_all"}
    (view,) = await endings(supervisor, ["train"], swept=True)
    assert (view.over, backend.count("list_all")) == (True, 0)


async def test_silence_is_no_answer() -> None:
    supervisor, backend = bed()
    backend.silent = {"list_all"}
    with pytest.raises(BackendUnreachable):
        await sweep(supervisor, "train", force=False)


def many(count: int) -> tuple[Any, FakeBackend, list[str]]:
    """Runs that are down, and of each of which something is left."""
    supervisor, backend = bed()
    supervisor.unreachable = {}
    want = supervisor.wants.pop("train")
    for number in range(count):
        name, uid = f"run-{number}", f"{number:08}"
        workload = want.workload.model_copy(update={"name": name, "uid": uid})
        supervisor.wants[name] = replace(want, workload=workload)
        put(backend, name, uid=uid)
    return supervisor, backend, list(supervisor.wants)


async def test_one_look_for_all_that_end() -> None:
    supervisor, backend, names = many(200)
    other = put(backend, "other")
    first = await endings(supervisor, names, swept=False)
    assert [(len(view.strays), view.over) for view in first] == [(1, False)] * 200
    assert [view.over for view in await endings(supervisor, names, swept=False)] == [True] * 200
    assert backend.count("list_all") == 2
    assert backend.living() == [other]


async def test_only_those_that_are_down_are_swept_and_only_when_it_is_time() -> None:
    supervisor, backend, names = many(2)
    supervisor.wants[names[0]] = replace(supervisor.wants[names[0]], running=True)
    await endings(supervisor, names, swept=False)
    assert backend.count("list_all") == 0
    views = await endings(supervisor, names, swept=True)
    assert [len(view.strays) for view in views] == [0, 1]
    assert [view.over for view in await endings(supervisor, names, swept=True)] == [False, True]
    assert len(backend.living()) == 1


async def test_one_that_was_removed_meanwhile_is_over() -> None:
    supervisor, _, _ = many(0)
    (view,) = await endings(supervisor, ["gone"], swept=False)
    assert view.over


async def test_silence_is_told_of_each() -> None:
    supervisor, backend, names = many(3)
    backend.silent = {"list_all"}
    views = await endings(supervisor, names, swept=False)
    assert [(view.over, view.silence) for view in views] == [(False, "fake does not answer list_all")] * 3


async def test_the_host_waits_until_all_are_down_but_not_for_ever() -> None:
    supervisor, backend, names = many(3)
    stays = supervisor.wants[names[1]]
    supervisor.wants[names[1]] = replace(stays, running=True)
    assert [view.name for view in await endings(supervisor, names, told=False, wait_s=0.03)] == [names[0], names[2]]
    waiting = asyncio.ensure_future(endings(supervisor, names, wait_s=60.0))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    supervisor.wants[names[1]] = stays
    async with asyncio.timeout(20):
        assert [len(view.strays) for view in await waiting] == [1, 1, 1]
    assert backend.count("list_all") == 1

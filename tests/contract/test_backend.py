"""What every backend promises. Each backend passes this suite unchanged."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from remuda.backends.base import Backend, Feature, Handle, Life, Observed, Request, Stray
from remuda.base.errors import BackendUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.contract.conftest import Bed

SLEEPS = ("sleep", "600")


async def submit(backend: Backend, *requests: Request) -> list[Handle]:
    outcomes = await backend.submit([backend.render(request) for request in requests])
    handles = []
    for outcome in outcomes:
        assert isinstance(outcome, Handle), outcome
        handles.append(outcome)
    return handles


async def until(backend: Backend, handle: Handle, wanted: Callable[[Observed], bool], limit_s: float = 180) -> Observed:
    deadline = time.monotonic() + limit_s
    seen: Observed | None = None
    while True:
        # A scheduler that stands still for a moment lets one look fail, as any other.
        with suppress(BackendUnreachable):
            seen = (await backend.observe([handle]))[handle.token]
            if wanted(seen):
                return seen
        assert time.monotonic() < deadline, seen
        await asyncio.sleep(0.02)


async def until_line(backend: Backend, handle: Handle, text: str) -> None:
    """Wait until the task has printed that line."""
    async with asyncio.timeout(180):
        while text not in [line async for line in backend.logs(handle)]:
            await asyncio.sleep(0.02)


def is_running(seen: Observed) -> bool:
    return seen.life is Life.RUNNING


def is_over(seen: Observed) -> bool:
    return seen.life in (Life.ENDED, Life.GONE)


def test_it_says_what_it_can_do(bed: Bed) -> None:
    backend = bed.make()
    assert backend.name
    assert backend.poll_s > 0
    assert all(isinstance(feature, Feature) for feature in backend.features)


def test_render_is_pure_and_complete(bed: Bed) -> None:
    backend = bed.make()
    request = bed.request("echo", "hi")
    first, second = backend.render(request), backend.render(request)
    assert first == second
    assert first.token == request.token
    assert first.argv


async def test_a_task_runs_and_its_exit_code_is_seen(bed: Bed) -> None:
    backend = bed.make()
    (good,) = await submit(backend, bed.request("true"))
    (bad,) = await submit(backend, bed.request("sh", "-c", "exit 3", name="w2"))
    assert (await until(backend, good, is_over)).exit_code == 0
    assert (await until(backend, bad, is_over)).exit_code == 3


async def test_everything_arrives_verbatim(bed: Bed) -> None:
    backend = bed.make()
    nasty = "$(touch /tmp/remuda-x) ; `id` \\ \"q\" 'a' \t é"
    script = 'printf "%s|%s" "$1" "$GREETING"'
    (handle,) = await submit(backend, bed.request("sh", "-c", script, "name", nasty))
    await until(backend, handle, is_over)
    text = "\n".join([line async for line in backend.logs(handle)])
    assert text == f"{nasty}|$(touch /tmp/x) `id` \"quoted\" 'it'"


async def test_many_are_observed_in_one_call(bed: Bed) -> None:
    backend = bed.make()
    handles = await submit(backend, *[bed.request("true", name=f"w{number}") for number in range(5)])
    for handle in handles:
        await until(backend, handle, is_over)
    seen = await backend.observe([*handles, Handle("w99.script.0.1.zzzzz")])
    assert len(seen) == 6
    assert seen["w99.script.0.1.zzzzz"].life is Life.GONE


async def test_the_same_token_is_the_same_allocation(bed: Bed) -> None:
    backend = bed.make()
    request = bed.request("sh", "-c", "echo begun; sleep 600")
    (first,) = await submit(backend, request)
    await until_line(backend, first, "begun")
    (second,) = await submit(backend, request)
    (third,) = await submit(bed.make(), request)
    assert first.token == second.token == third.token
    await asyncio.sleep(0.3)
    assert [line async for line in backend.logs(first)] == ["begun"]


async def test_two_hosts_at_once_make_one_allocation(bed: Bed) -> None:
    request = bed.request("sh", "-c", "echo begun; sleep 600")
    backends = [bed.make() for _ in range(4)]
    outcomes = await asyncio.gather(*(submit(backend, request) for backend in backends))
    await until_line(backends[0], outcomes[0][0], "begun")
    await asyncio.sleep(0.5)
    assert [line async for line in backends[0].logs(outcomes[0][0])] == ["begun"]


async def test_a_new_host_finds_what_the_old_one_started(bed: Bed) -> None:
    old = bed.make()
    request = bed.request(*SLEEPS)
    (_handle,) = await submit(old, request)
    new = bed.make()
    async with asyncio.timeout(180):
        # A program that is just being started has no environment to be found by for a moment.
        while not (found := await new.find([request.token, "w.script.0.9.other"])):
            await asyncio.sleep(0.01)
    assert list(found) == [request.token]
    await until(new, found[request.token], is_running)
    await new.cancel(found[request.token])
    await until(new, found[request.token], is_over)
    assert await bed.has_gone(request.token)


async def test_a_new_host_learns_how_it_ended_without_it(bed: Bed) -> None:
    old = bed.make()
    (handle,) = await submit(old, bed.request("sh", "-c", "exit 5"))
    await until(old, handle, is_over)
    assert (await bed.make().observe([handle]))[handle.token].exit_code == 5


async def test_cancel_ends_it_and_may_be_repeated(bed: Bed) -> None:
    backend = bed.make()
    (handle,) = await submit(backend, bed.request(*SLEEPS))
    await until(backend, handle, is_running)
    await backend.cancel(handle)
    await backend.cancel(handle)
    await until(backend, handle, is_over)
    await backend.cancel(handle)
    await backend.cancel(handle, force=True)
    assert await bed.has_gone(handle.token)


async def test_cancel_gives_the_task_time_to_finish(bed: Bed) -> None:
    backend = bed.make()
    script = "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    (handle,) = await submit(backend, bed.request("sh", "-c", script))
    await until_line(backend, handle, "ready")
    await backend.cancel(handle)
    await until(backend, handle, is_over)
    lines = [line async for line in backend.logs(handle)]
    assert (lines[0], lines[-1]) == ("ready", "saved")


async def test_force_ends_what_does_not_listen(bed: Bed) -> None:
    backend = bed.make()
    script = "trap '' TERM; sleep 600 & while :; do sleep 1; done"
    (handle,) = await submit(backend, bed.request("sh", "-c", script))
    await until(backend, handle, is_running)
    await backend.cancel(handle, force=True)
    await until(backend, handle, is_over)
    assert await bed.has_gone(handle.token)


async def test_cancel_before_it_ran_means_that_it_never_runs(bed: Bed) -> None:
    backend = bed.make()
    request = bed.request("sh", "-c", "echo begun; sleep 600")
    await backend.cancel(Handle(request.token))
    (handle,) = await submit(backend, request)
    await until(backend, handle, is_over)
    assert [line async for line in backend.logs(handle)] == []
    assert await bed.has_gone(request.token)


async def test_attempts_are_different_allocations(bed: Bed) -> None:
    backend = bed.make()
    (first,) = await submit(backend, bed.request("sh", "-c", "exit 1"))
    await until(backend, first, is_over)
    (second,) = await submit(backend, bed.request("sh", "-c", "exit 2", attempt=2))
    assert (await until(backend, second, is_over)).exit_code == 2
    assert (await backend.observe([first]))[first.token].exit_code == 1


async def test_logs_follow_until_the_end(bed: Bed) -> None:
    backend = bed.make()
    script = "for i in 1 2 3; do echo line $i; sleep 0.1; done; printf end"
    (handle,) = await submit(backend, bed.request("sh", "-c", script))
    async with asyncio.timeout(180):
        lines = [line async for line in backend.logs(handle, follow=True)]
    assert lines == ["line 1", "line 2", "line 3", "end"]
    assert [line async for line in backend.logs(handle, tail=2)] == ["line 3", "end"]


@pytest.mark.parametrize("argv", [("/no/such/program",), ("sh", "-c", "kill -9 $$")])
async def test_the_reason_of_an_end_is_told(bed: Bed, argv: tuple[str, ...]) -> None:
    backend = bed.make()
    (handle,) = await submit(backend, bed.request(*argv))
    seen = await until(backend, handle, is_over)
    assert seen.reason
    assert seen.exit_code != 0


async def find_stray(backend: Backend, token: str) -> Stray:
    """Wait until a look at all there is names it."""
    async with asyncio.timeout(180):
        while True:
            for stray in await backend.list_all():
                if stray.token == token and stray.home:
                    return stray
            await asyncio.sleep(0.05)


async def test_what_nobody_remembers_is_found_by_its_name_and_removed(bed: Bed) -> None:
    old = bed.make()
    first, second = await submit(old, bed.request(*SLEEPS), bed.request(*SLEEPS, name="w2"))
    for handle in (first, second):
        await until(old, handle, is_running)
    new = bed.make()
    strays = [await find_stray(new, handle.token) for handle in (first, second)]
    assert all(stray.native and stray.life is Life.RUNNING for stray in strays)
    assert {stray.home for stray in strays} == {str(bed.root)}
    await new.remove(strays[0])
    await new.remove(strays[0])
    await until(old, first, is_over)
    await new.remove(strays[0], force=True)
    assert await bed.has_gone(first.token)
    left = [stray.token for stray in await new.list_all()]
    assert first.token not in left
    assert second.token in left, "nothing else is touched"


async def test_a_stray_that_does_not_listen_is_killed(bed: Bed) -> None:
    backend = bed.make()
    script = "trap '' TERM; echo deaf; sleep 600 & while :; do sleep 1; done"
    (handle,) = await submit(backend, bed.request("sh", "-c", script))
    await until_line(backend, handle, "deaf")
    stray = await find_stray(backend, handle.token)
    await backend.remove(stray)
    listed = [one.token for one in await backend.list_all()]
    seen = (await backend.observe([handle]))[handle.token]
    assert is_over(seen) or handle.token in listed, "it has been asked to end, and lives"
    await backend.remove(stray, force=True)
    await until(backend, handle, is_over)
    assert await bed.has_gone(handle.token)


async def test_what_has_ended_is_not_listed(bed: Bed) -> None:
    backend = bed.make()
    (handle,) = await submit(backend, bed.request("true"))
    await until(backend, handle, is_over)
    async with asyncio.timeout(180):
        while handle.token in [stray.token for stray in await backend.list_all()]:
            await asyncio.sleep(0.05)

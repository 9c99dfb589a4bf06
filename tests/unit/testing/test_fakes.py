"""The fakes keep the promises that a backend and a clock make."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.fakes.backend import FakeBackend
from tests.fakes.clock import FakeClock
from tests.unit.supervise.build import group, workload

from remuda.backends.base import Feature, Handle, Life, Request, TaskKey, make_token
from remuda.base.errors import BackendUnreachable, Rejected

if TYPE_CHECKING:
    from remuda.backends.base import Backend
    from remuda.base.clock import Clock


def request(index: int = 0, attempt: int = 1) -> Request:
    key = TaskKey("w", "replica", index)
    return Request(key, attempt, make_token(key, attempt, "u1"), workload(), group())


@pytest.fixture
def fake() -> FakeBackend:
    return FakeBackend(FakeClock())


async def submit(backend: Backend, *requests: Request) -> list[Handle]:
    outcomes = await backend.submit([backend.render(one) for one in requests])
    handles = [outcome for outcome in outcomes if isinstance(outcome, Handle)]
    assert len(handles) == len(requests), outcomes
    return handles


async def life(backend: Backend, handle: Handle) -> Life:
    return (await backend.observe([handle]))[handle.token].life


async def test_it_is_a_backend(fake: FakeBackend) -> None:
    backend: Backend = fake
    assert backend.render(request()) == backend.render(request())
    assert all(isinstance(feature, Feature) for feature in backend.features)
    assert (backend.name, backend.poll_s) == ("fake", 1.0)


async def test_the_same_token_is_the_same_allocation(fake: FakeBackend) -> None:
    (first,), (second,) = await submit(fake, request()), await submit(fake, request())
    assert first == second
    assert fake.living() == [first.token]


async def test_it_finds_what_exists_only(fake: FakeBackend) -> None:
    (handle,) = await submit(fake, request())
    assert await fake.find([handle.token, "w.replica.9.9.u1"]) == {handle.token: handle}
    fake.lose(handle.token)
    assert await fake.find([handle.token]) == {}


async def test_every_handle_gets_an_answer(fake: FakeBackend) -> None:
    handles = await submit(fake, request(0), request(1))
    fake.end(handles[1].token, 3)
    seen = await fake.observe([*handles, Handle("w.replica.9.9.u1")])
    assert [one.life for one in seen.values()] == [Life.RUNNING, Life.ENDED, Life.GONE]
    assert seen[handles[1].token].exit_code == 3


async def test_cancel_may_be_repeated_and_comes_before_a_start(fake: FakeBackend) -> None:
    token = request().token
    await fake.cancel(Handle(token))
    await fake.cancel(Handle(token), force=True)
    (handle,) = await submit(fake, request())
    assert await life(fake, handle) is Life.ENDED
    assert fake.living() == []


async def test_force_ends_what_does_not_listen(fake: FakeBackend) -> None:
    (handle,) = await submit(fake, request())
    fake.made[handle.token].is_stubborn = True
    await fake.cancel(handle)
    assert await life(fake, handle) is Life.RUNNING
    await fake.cancel(handle, force=True)
    assert await life(fake, handle) is Life.ENDED


async def test_silence_does_nothing_and_a_lost_answer_does_it(fake: FakeBackend) -> None:
    fake.silent = {"submit"}
    with pytest.raises(BackendUnreachable):
        await submit(fake, request())
    assert fake.made == {}
    fake.silent, fake.lose_answers = set(), {"submit"}
    with pytest.raises(BackendUnreachable):
        await submit(fake, request())
    assert fake.living() == [request().token]


async def test_a_refusal_is_an_outcome(fake: FakeBackend) -> None:
    fake.refuse[request().token] = "no such partition"
    (outcome,) = await fake.submit([fake.render(request())])
    assert isinstance(outcome, Rejected)
    assert fake.made == {}


async def test_pending_runs_when_it_is_started(fake: FakeBackend) -> None:
    fake.starts_at_once = False
    (handle,) = await submit(fake, request())
    assert await life(fake, handle) is Life.PENDING
    fake.start(handle.token)
    assert await life(fake, handle) is Life.RUNNING


async def test_reports_rise_and_logs_are_kept(fake: FakeBackend) -> None:
    (handle,) = await submit(fake, request(attempt=4))
    assert [fake.report(handle.token).seq for _ in range(3)] == [1, 2, 3]
    assert fake.report(handle.token).attempt == 4
    fake.made[handle.token].lines = ["a", "b", "c"]
    assert [line async for line in fake.logs(handle, follow=True)] == ["a", "b", "c"]
    assert [line async for line in fake.logs(handle, tail=1)] == ["c"]
    assert [line async for line in fake.logs(Handle("w.replica.9.9.u1"))] == []


async def test_a_sleep_is_a_jump() -> None:
    fake = FakeClock(5.0)
    clock: Clock = fake
    await clock.sleep(7200)
    assert clock.now() == 7205.0
    with pytest.raises(ValueError, match="does not go back"):
        fake.advance(-1)

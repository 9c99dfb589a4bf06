"""Who is asked again, how many requests go out at first, and what the kernel knows of a connection."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.batch.pipeline.opening import FIRST, Opening
from remuda.batch.pipeline.unheard import ReplyTimes, Silence, silence_of


def heard(answers: int, latency_s: float) -> ReplyTimes:
    """After so many answers, each of which took so long."""
    made = ReplyTimes()
    made.sent = answers
    for _ in range(answers):
        made.on_answer(latency_s)
    return made


@pytest.mark.parametrize(
    ("silence", "answers", "latency_s", "waited_s", "again"),
    [
        (Silence.UNSENT, 1, 0.01, 1.0, True),
        (Silence.UNHEARD, 1, 60.0, 1.0, True),
        (Silence.UNHEARD, 1, 0.01, 0.9, False),
        (Silence.UNSENT, 0, 0.0, 100.0, False),
        (Silence.SILENT, 100, 0.01, 1.9, False),
        (Silence.SILENT, 100, 0.01, 2.0, True),
        (Silence.SILENT, 100, 1.0, 9.0, False),
        (Silence.SILENT, 100, 1.0, 10.0, True),
        (Silence.SILENT, 3, 0.01, 100.0, False),
        (Silence.HEARD, 100, 0.01, 500.0, False),
    ],
)
def test_who_is_asked_again(silence: Silence, answers: int, latency_s: float, waited_s: float, again: bool) -> None:
    hearing = heard(answers, latency_s)
    assert hearing.ask_again(silence, waited_s) is again
    assert hearing.again == int(again)


def test_an_answer_that_took_long_counts_for_a_while() -> None:
    hearing = heard(10, 0.01)
    hearing.on_answer(5.0)
    assert not hearing.ask_again(Silence.SILENT, 10.0)
    for _ in range(256):
        hearing.on_answer(0.01)
    assert hearing.ask_again(Silence.SILENT, 10.0)


@given(st.integers(4, 5000))
def test_few_are_asked_twice_where_it_may_cost_tokens(answers: int) -> None:
    hearing = heard(answers, 0.001)
    asked = sum(hearing.ask_again(Silence.SILENT, 1000.0) for _ in range(answers))
    assert asked <= 8 + answers // 50
    # What never reached anybody costs nothing and has no such bound.
    assert all(hearing.ask_again(Silence.UNHEARD, 1000.0) for _ in range(100))


def test_what_the_kernel_knows() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=5) as listening:
        with socket.create_connection(listening.getsockname()) as client:
            client.sendall(b"hello")
            assert silence_of(client.fileno()) is Silence.SILENT
            other, _ = listening.accept()
            with other:
                other.sendall(b"back")
                assert client.recv(4) == b"back"
                assert silence_of(client.fileno()) is Silence.HEARD
        assert silence_of(listening.fileno()) is not Silence.UNHEARD
    assert silence_of(10_000) is Silence.HEARD


def test_what_a_full_queue_has_dropped_is_not_confirmed() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listening:
        made = []
        for _ in range(6):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(listening.getsockname())
            made.append(one)
        deadline, found = time.monotonic() + 120, set()
        while Silence.UNHEARD not in found and time.monotonic() < deadline:
            found = {silence_of(one.fileno()) for one in made}
            time.sleep(0.05)
        for one in made:
            one.close()
    assert Silence.UNHEARD in found


async def _hold(opening: Opening, go: asyncio.Event) -> None:
    await opening.enter()
    await go.wait()
    opening.leave(heard=True)


def test_few_go_out_at_first_and_all_of_them_in_the_end() -> None:
    async def play() -> None:
        opening, go = Opening(), asyncio.Event()
        tasks = [asyncio.create_task(_hold(opening, go)) for _ in range(100)]
        await asyncio.sleep(0)
        assert opening.active == FIRST
        async with asyncio.timeout(120):
            while opening.active < 100:
                await asyncio.sleep(0.005)
            go.set()
            await asyncio.gather(*tasks)
        assert opening.active == 0

    asyncio.run(play())


def test_whoever_gives_up_waiting_takes_no_place() -> None:
    async def play() -> None:
        opening, go = Opening(), asyncio.Event()
        tasks = [asyncio.create_task(_hold(opening, go)) for _ in range(20)]
        await asyncio.sleep(0)
        for task in tasks[FIRST:]:
            task.cancel()
        await asyncio.gather(*tasks[FIRST:], return_exceptions=True)
        go.set()
        await asyncio.gather(*tasks[:FIRST])
        assert opening.active == 0

    asyncio.run(play())


def test_lost_connections_are_opened_slowly_again() -> None:
    async def play() -> None:
        opening = Opening()
        opening.allowed = 50
        for _ in range(50):
            await opening.enter()
        for _ in range(50):
            opening.leave(lost=True)
        assert (opening.active, opening.allowed) == (0, FIRST)

    asyncio.run(play())

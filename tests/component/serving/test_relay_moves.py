"""The relay when routers come and go: what is sent again, what is not, and what the client sees."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from tests.component.serving.relaying import ScriptedRouter, Talk, get, on_both_loops, plain, post, relaying, until

if TYPE_CHECKING:
    from pathlib import Path

OTHER = "/v1/responses"
"""A path at which a request may do more than be answered."""


@on_both_loops
async def test_a_connection_moves_between_two_requests(tmp_path: Path) -> None:
    async with relaying(tmp_path) as bench:
        first = await bench.front(plain("a"))
        talk = await bench.client()
        await talk.say(post())
        assert (await talk.message())[1] == b"a"
        second = await bench.start(plain("b"))
        bench.name(second, first)
        await bench.until_current(second)
        await talk.say(post())
        assert (await talk.message())[1] == b"b"
        assert len(first.requests) == 1
        talk.close()


@on_both_loops
async def test_what_a_router_has_begun_it_may_end(tmp_path: Path) -> None:
    """New requests go to the next one meanwhile."""
    go_on, heard = asyncio.Event(), []

    async def handle(talk: Talk) -> None:
        heard.append(await talk.message())
        await go_on.wait()
        await talk.answer("late")

    async with relaying(tmp_path) as bench:
        first = await bench.front(ScriptedRouter(handle))
        early = await bench.client()
        await early.say(post())
        await until(lambda: len(heard) == 1)
        second = await bench.start(plain("b"))
        bench.name(second, first)
        await bench.until_current(second)
        assert (await bench.ask(post()))[1] == b"b"
        go_on.set()
        assert (await early.message())[1] == b"late"
        assert bench.counters.resent == 0
        early.close()


@on_both_loops
async def test_without_a_router_a_request_waits(tmp_path: Path) -> None:
    async with relaying(tmp_path) as bench:
        waiting = asyncio.create_task(bench.ask(post("x" * 100)))
        await until(lambda: bench.counters.in_flight == 1)
        router = await bench.start(plain("a"))
        bench.name(router)
        assert (await waiting)[1] == b"a"
        assert router.requests[0][1] == b"x" * 100
        assert bench.counters.held == 1


@on_both_loops
async def test_it_does_not_wait_for_ever(tmp_path: Path) -> None:
    async with relaying(tmp_path, hold_s=0.3) as bench:
        talk = await bench.client()
        for text in (post(), get()):
            await talk.say(text)
            head, body = await talk.message()
            assert head.startswith("HTTP/1.1 503 Service Unavailable\r\n")
            assert "Retry-After: 2\r\n" in head
            assert json.loads(body)["error"] == {
                "message": "there is no router: not within 0.3 s; ask again",
                "type": "server_error", "param": None, "code": "no_router",
            }  # fmt: skip
        await bench.front(plain("a"))
        await talk.say(post())
        assert (await talk.message())[1] == b"a", "the connection goes on"
        talk.close()


@on_both_loops
async def test_a_router_that_does_not_listen_yet_is_tried_again(tmp_path: Path) -> None:
    async with relaying(tmp_path) as bench:
        router = await bench.front(plain("a"))
        router.stop()
        waiting = asyncio.create_task(bench.ask(post(path=OTHER)))
        await asyncio.sleep(0.3)
        await router.start()
        assert (await waiting)[1] == b"a"
        assert len(router.requests) == 1


@on_both_loops
async def test_a_router_that_closes_its_idle_connections_costs_no_request(tmp_path: Path) -> None:
    """It closes without a word just when the next request is on its way."""

    async def handle(talk: Talk) -> None:
        await talk.message()
        await talk.answer("a")
        await talk.reader.readexactly(1)
        talk.close()

    async with relaying(tmp_path) as bench:
        await bench.front(ScriptedRouter(handle))
        talk = await bench.client()
        for number in range(5):
            await talk.say(post(str(number), path=OTHER))
            assert (await talk.message())[1] == b"a"
        assert bench.counters.resent == 4
        talk.close()


@on_both_loops
@pytest.mark.parametrize(
    ("text", "sends"),
    [
        pytest.param(post(path=OTHER), 1, id="might be done twice"),
        pytest.param(post(), 4, id="is only answered"),
        pytest.param(get(), 4, id="only looks"),
        pytest.param(post(method="DELETE", path="/v1/files/1"), 1, id="deletes"),
    ],
)
async def test_how_often_a_request_is_sent_that_its_router_got(tmp_path: Path, text: str, sends: int) -> None:
    async def handle(talk: Talk) -> None:
        router.requests.append(await talk.message())

    async with relaying(tmp_path) as bench:
        router = await bench.front(ScriptedRouter(handle))
        head, body = await bench.ask(text)
        assert head.startswith("HTTP/1.1 502 Bad Gateway\r\n")
        assert json.loads(body)["error"]["code"] == "router_lost"
        assert len(router.requests) == sends
        assert (bench.counters.resent, bench.counters.failed) == (sends - 1, 1)


@on_both_loops
async def test_a_lost_routers_requests_go_to_the_next_one(tmp_path: Path) -> None:
    """Its machine is gone without a word: nothing closes the connections, only the file says it."""

    heard = []

    async def silent(talk: Talk) -> None:
        heard.append(await talk.message())
        await talk.rest()

    async with relaying(tmp_path) as bench:
        await bench.front(ScriptedRouter(silent))
        asked = [asyncio.create_task(bench.ask(post(str(n)))) for n in range(10)]
        other = asyncio.create_task(bench.ask(post(path=OTHER)))
        await until(lambda: len(heard) == 11)
        bench.name(None)
        assert (await other)[0].startswith("HTTP/1.1 502 "), "nobody knows what became of it"
        second = await bench.start(plain("b"))
        bench.name(second)
        assert [(await task)[1] for task in asked] == [b"b"] * 10
        assert sorted(int(body) for _, body in second.requests) == list(range(10))


@on_both_loops
async def test_an_answer_that_is_cut_is_not_made_whole(tmp_path: Path) -> None:
    """The client sees that something is missing; it is not asked for again."""

    async def handle(talk: Talk) -> None:
        router.requests.append(await talk.message())
        await talk.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await asyncio.sleep(0.05)

    async with relaying(tmp_path) as bench:
        router = await bench.front(ScriptedRouter(handle))
        talk = await bench.client()
        await talk.say(post())
        await talk.head()
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await talk.reader.readuntil(b"0\r\n\r\n")
        assert len(router.requests) == 1
        assert bench.counters.failed == 1
        talk.close()


@on_both_loops
async def test_the_same_address_in_another_life_is_another_router(tmp_path: Path) -> None:
    """What was asked of the first life is asked of the second."""
    answers, heard = asyncio.Event(), []

    async def handle(talk: Talk) -> None:
        heard.append(await talk.message())
        if not answers.is_set():
            await talk.rest()
        await talk.answer("a")

    async with relaying(tmp_path) as bench:
        router = await bench.front(ScriptedRouter(handle))
        waiting = asyncio.create_task(bench.ask(post()))
        await until(lambda: len(heard) == 1)
        answers.set()
        bench.name(router, life=2)
        assert (await waiting)[1] == b"a"
        assert bench.counters.resent == 1


@on_both_loops
@pytest.mark.parametrize("text", ["", "{", "[]", '{"router": {"url": "ftp://x"}, "alive": []}', '{"router": null}'])
async def test_a_file_that_says_nothing_changes_nothing(tmp_path: Path, text: str) -> None:
    async with relaying(tmp_path) as bench:
        await bench.front(plain("a"))
        bench.file.write_text(text)
        await asyncio.sleep(0.15)
        assert (await bench.ask(post()))[1] == b"a"
        bench.file.unlink()
        await asyncio.sleep(0.15)
        assert (await bench.ask(post()))[1] == b"a"


@on_both_loops
async def test_nothing_fails_while_routers_take_turns(tmp_path: Path) -> None:
    """Many clients; every router goes away as soon as the next one is in front."""
    async with relaying(tmp_path) as bench:
        old = await bench.front(plain("0", wait_s=0.005))
        stop = asyncio.Event()
        answers: list[str] = []

        async def keep_asking() -> None:
            talk = await bench.client()
            while not stop.is_set():
                await talk.say(post())
                head, body = await talk.message()
                answers.append(f"{head.split(' ')[1]} {body.decode()}")
            talk.close()

        clients = [asyncio.create_task(keep_asking()) for _ in range(16)]
        for number in range(1, 8):
            before = len(answers)
            await until(lambda: len(answers) > before + 50)  # noqa: B023 - called before the next turn
            new = await bench.start(plain(str(number), wait_s=0.005))
            if number % 2:
                old.stop()
                bench.name(new)
            else:
                bench.name(new, old)
                await bench.until_current(new)
                old.stop()
            old = new
        await until(lambda: "200 7" in answers)
        stop.set()
        await asyncio.gather(*clients)
        assert {answer[:3] for answer in answers} == {"200"}
        assert {answer[4:] for answer in answers} == set("01234567")
        assert bench.counters.failed == 0

"""Every kind of request and answer, byte by byte, and mutants of them: a client is told of what its router saw."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest
from tests.relaycases import ANSWERS, CUT_OFF, NEXT, OK, REQUESTS, Case, Reply, get
from tests.relaysim import Message, Sim, read_requests, say_ok

if TYPE_CHECKING:
    from collections.abc import Sequence

SIZES = (0, 1, 7)
MUTANTS = 1500
PARTS = (
    b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b";", b",", b"0", b"1", b"f", b"\r\n\r\n", b"0\r\n\r\n",
    b"GET /evil HTTP/1.1\r\nHost: h\r\n\r\n", b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n",
    b"Connection: close\r\n", b"Connection: Upgrade\r\nUpgrade: h2c\r\n", b"Expect: 100-continue\r\n", b"HTTP/1.0",
)  # fmt: skip


def told(sim: Sim) -> tuple[int, ...]:
    return tuple(int(answer.first[0]) for answer in sim.answers)


def seen(sim: Sim) -> tuple[bytes, ...]:
    return tuple(b" ".join((message.first[1], message.body)).strip() for message in sim.seen)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", REQUESTS, ids=lambda case: case.name)
async def test_a_request(case: Case, size: int) -> None:
    sim = Sim()
    sim.say(case.data, size)
    sim.say(case.later, size)
    assert (told(sim), seen(sim)) == (case.told, case.seen)
    if case.closes:
        assert sim.wire.is_closed
        assert sim.answers[-1].headers[b"connection"] == b"close"
    sim.end()


@pytest.mark.parametrize("what", [NEXT, NEXT * 5000, b"\0", b"GET", b"POST / HTTP/1.1\r\nContent-Length: 9"])
@pytest.mark.parametrize("at_once", [True, False])
async def test_what_follows_a_request_under_way_is_its_last_word(what: bytes, at_once: bool) -> None:
    """Nothing of it is read or kept, and the connection ends with the answer, which says so."""
    sim = Sim(lambda _, __: b"")
    for piece in (get(after=b"") + what,) if at_once else (get(after=b""), what[:1], what[1:]):
        sim.say(piece)
    assert len(sim.seen) == 1
    assert not sim.client._reader.events
    [upstream] = sim.pool.opened_all
    upstream.data_received(say_ok(0, sim.seen[0]))
    [answer] = sim.answers
    assert (answer.first[0], answer.headers[b"connection"], sim.wire.is_closed) == (b"200", b"close", True)
    assert upstream.is_open, "the router's connection serves the next client"
    sim.end()


@pytest.mark.parametrize("body", [b"", b"Content-Length: 1\r\n"])
async def test_who_has_said_all_is_read_whether_the_router_takes_it_or_not(body: bytes) -> None:
    """Nothing else tells that a client is gone."""
    sim = Sim(lambda _, __: b"")
    sim.say(b"POST /p HTTP/1.1\r\nHost: h\r\n" + body + b"\r\n")
    [upstream] = sim.pool.opened_all
    upstream.pause_writing()
    assert sim.client._is_held is bool(body)
    sim.say(b"x" if body else b"")
    assert not sim.client._is_held
    sim.end()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", ANSWERS, ids=lambda case: case.name)
async def test_an_answer(case: Reply, size: int) -> None:
    sim = Sim(lambda number, _: b"" if not number else OK + b"Content-Length: 1\r\n\r\n2")
    sim.say(b"%s /p HTTP/1.1\r\nHost: h\r\n\r\n" % case.method)
    [upstream] = sim.pool.opened_all
    say(sim, case.data, size)
    [answer] = sim.answers
    assert case.told is not None
    status, body = case.told
    assert int(answer.first[0]) == status
    if status != 502:
        assert answer.body == body
        assert upstream.is_open is case.keeps
    sim.say(b"GET /n HTTP/1.1\r\nHost: h\r\n\r\n")
    assert sim.answers[1].body == b"2", "the client's connection goes on"
    assert (sim.pool.opened_all == [upstream]) is case.keeps
    sim.end()


@pytest.mark.parametrize("case", CUT_OFF, ids=lambda case: case.name)
async def test_an_answer_that_breaks_after_its_head(case: Reply) -> None:
    sim = Sim(lambda _, __: b"")
    sim.say(b"GET /p HTTP/1.1\r\nHost: h\r\n\r\n")
    say(sim, case.data, 1)
    assert sim.wire.was_cut
    assert not sim.wire.data.endswith(b"0\r\n\r\n")
    assert sim.counters.failed == 1


def say(sim: Sim, data: bytes, size: int) -> None:
    """The router says this on its only connection, until that is closed."""
    [upstream] = sim.pool.opened_all
    for at in range(0, len(data), size or len(data)):
        if upstream.is_open and upstream.waiter is not None:
            upstream.data_received(data[at : at + (size or len(data))])
        elif upstream.is_open:
            upstream.data_received(data[at:])
            return


def mutant(chance: random.Random, data: bytes) -> bytes:
    """Some bytes changed, dropped, doubled, or put in."""
    found = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(found) + 1)
        match chance.randrange(5):
            case 0:
                found[at:at] = chance.choice(PARTS)
            case 1:
                del found[at : at + chance.randint(1, 4)]
            case 2:
                found[at : at + 1] = bytes([chance.randrange(256)])
            case 3:
                found[at:at] = found[at : at + chance.randint(1, 30)]
            case _:
                found[at : at + 1] = chance.choice(PARTS)
    return bytes(found)


def check(sim: Sim, data: bytes) -> None:
    """What the router saw is what a strict reader sees, and the client was told of just that."""
    expected, state = read_requests(data)
    got = [(message.first[:2], message.body) for message in sim.seen]
    assert got == [(message.first[:2], message.body) for message in expected[: len(got)]], "something was smuggled"
    answers = sim.answers
    relayed = [answer for answer in answers if b"x-number" in answer.headers]
    assert [int(answer.headers[b"x-number"]) for answer in relayed] == list(range(len(got)))
    assert answers[: len(relayed)] == relayed
    assert len(answers) - len(relayed) <= 1
    if len(answers) > len(relayed):
        assert sim.wire.is_closed, "after a refusal nothing is read any more"
    elif len(got) < len(expected) or state == "bad":
        assert sim.wire.is_closed or sim.client.owes, "nobody is told anything, and nobody is waited for"
    assert len(sim.client._reader.events) <= 1


def corpus() -> Sequence[bytes]:
    return [case.data + case.later for case in REQUESTS if len(case.data) < 2000]


async def test_mutants_of_requests() -> None:
    """Always the same ones."""
    chance, seeds = random.Random(9), corpus()
    for number in range(MUTANTS):
        data = mutant(chance, chance.choice(seeds))
        sim = Sim()
        try:
            sim.say(data, chance.choice((0, 1, 5, 40)))
            check(sim, data)
        except AssertionError as error:
            raise AssertionError(f"mutant {number}: {data!r}: {error}") from error
        sim.end()
        if number % 100 == 0:
            await asyncio.sleep(0)


async def test_mutants_of_answers() -> None:
    """A router that says anything at all makes no client believe in an answer of its own."""
    chance, seeds = random.Random(9), [case for case in (*ANSWERS, *CUT_OFF) if len(case.data) < 2000]
    for number in range(MUTANTS):
        case = chance.choice(seeds)
        data = mutant(chance, case.data)
        sim = Sim(lambda _, __: b"")
        sim.say(b"%s /p HTTP/1.1\r\nHost: h\r\n\r\n" % case.method)
        upstream = sim.pool.opened_all[0]
        say(sim, data, chance.choice((0, 1, 5, 40)))
        waits = upstream.waiter is not None
        if waits:
            upstream.eof_received()
            upstream.connection_lost(None)
        whole = bytes(sim.wire.data)
        try:
            if not sim.wire.was_cut:
                sim.serve()
                # Sent again, as it was only looked at, or told of, strictly once.
                assert len(sim.answers) <= 1, whole
                assert sim.answers or sim.counters.in_flight, whole
        except AssertionError as error:
            raise AssertionError(f"mutant {number}: {data!r}: {error}") from error
        sim.end()


def test_the_strict_reader_is_strict() -> None:
    """It agrees with the table: where the relay refuses, it does."""
    for case in REQUESTS:
        found, state = read_requests(case.data + case.later)
        assert isinstance(found, list)
        ends = [
            b" ".join((message.first[1], message.body)).strip() for message in found if isinstance(message, Message)
        ]
        assert ends[: len(case.seen)] == list(case.seen), case.name
        assert state in ("bad", "more", "end")

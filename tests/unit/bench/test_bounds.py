"""An endpoint that answers without end, or drips: what is asked beside a load takes neither memory nor for ever."""

from __future__ import annotations

import asyncio
import tracemalloc
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, cast

import orjson
import pytest

from remuda.base.endpoint import pick_model
from remuda.base.errors import InputError, Unavailable
from remuda.bench import probe
from remuda.bench.generator import tokenizer
from remuda.bench.generator.http_stream import RequestTarget
from remuda.bench.load import Load
from remuda.client.bench import benchmarks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

MODELS = orjson.dumps({"data": [{"id": "m"}]})
ENDLESS, DRIPPING = b"endless", b"dripping"


@asynccontextmanager
async def serving(answers: Mapping[str, bytes]) -> AsyncIterator[RequestTarget]:
    """A server with these bodies by path; other paths are not found."""

    under_way: set[asyncio.Task[None]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        under_way.add(task)
        task.add_done_callback(under_way.discard)
        try:
            await say(reader, writer)
        finally:
            writer.transport.abort()

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
            body = answers.get(path)
            status = b"404 Not Found" if body is None else b"200 OK"
            length = b"" if body in (ENDLESS, DRIPPING) else b"Content-Length: %d\r\n" % len(body or b"")
            writer.write(b"HTTP/1.1 %s\r\n%s\r\n" % (status, length))
            while body == ENDLESS:
                writer.write(b"x" * 65536)
                await writer.drain()
            while body == DRIPPING:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.05)
            writer.write(body or b"")
            await writer.drain()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield RequestTarget(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    finally:
        server.close()
        for task in [*under_way]:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        await asyncio.sleep(0.05)  # Transports of both sides close in the next turns of the loop.


async def test_a_list_without_end_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_WAIT_S", 0.0)
    async with serving({"/v1/models": ENDLESS}) as place:
        with pytest.raises(Unavailable, match="the answer is longer than 1,024 KB"):
            await probe.look(place)


async def test_names_and_lists_are_cut_and_metrics_without_end_are_none() -> None:
    many = [{"id": f"{number}-{'m' * 400}", "owned_by": f"{number}{'o' * 50}"} for number in range(2000)]
    async with serving({"/v1/models": orjson.dumps({"data": many}), "/metrics": ENDLESS}) as place:
        tracemalloc.start()
        try:
            seen = await probe.look(place)
            assert tracemalloc.get_traced_memory()[1] < 64 << 20
        finally:
            tracemalloc.stop()
    assert seen.models is not None
    assert (len(seen.models), max(map(len, seen.models)), len(seen.identity)) == (1000, 300, 300)
    assert seen.counters is None
    with pytest.raises(InputError) as told:
        pick_model(list(seen.models), place.base)
    assert len(str(told.value)) < 8000


async def test_questions_beside_a_load_have_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_ALL_S", 0.3)
    async with serving({"/v1/models": MODELS, "/metrics": DRIPPING, "/v1/completions": DRIPPING}) as place:
        with pytest.raises(Unavailable, match=r"did not answer all that is asked beside a load in 0.3 s"):
            await probe.look(place)
        load = Load(api="completions", timeout_s=0.5)
        with pytest.raises(Unavailable, match=r"in 0.8 s"):
            await asyncio.wait_for(probe.fit(place, Load.from_json({**load.to_json(), "timeout_s": 0.5}), "m"), 60)


async def test_a_tokenizer_that_gives_millions_is_none() -> None:
    body = orjson.dumps({"tokens": [1] * 4_000_000})
    async with serving({"/tokenize": body}) as place:
        tracemalloc.start()
        try:
            assert await tokenizer.candidates(place, "chat", "m") == []
            assert tracemalloc.get_traced_memory()[1] < 24 << 20
        finally:
            tracemalloc.stop()


def test_a_trace_that_never_ends_is_refused_unread() -> None:
    with pytest.raises(InputError, match="/dev/zero cannot be read: it is a pipe, a socket or a device"):
        benchmarks._read("/dev/zero", "--trace")

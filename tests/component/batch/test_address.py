"""An endpoint that moves is followed, and one that was taken down is told from one that is away."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conftest import until
from tests.fakes.stub_process import StubProcess

from remuda.base.errors import Unavailable
from remuda.batch.address import EndpointAddress, EndpointGone, FollowingTransport
from remuda.batch.driver import run_job
from remuda.batch.endpoint import ask_models
from remuda.batch.pipeline.answer import Transient
from remuda.batch.pipeline.breaker import Breaker
from remuda.batch.pipeline.concurrency import Limiter
from remuda.batch.pipeline.pipeline import Pipeline, PipelineLimits
from remuda.batch.pipeline.transport import Reply
from remuda.batch.prepare import open_connection
from remuda.batch.request import JobRequest

if TYPE_CHECKING:
    from pathlib import Path


def say(path: Path, **data: str) -> None:
    path.with_suffix(".new").write_text(json.dumps(data))
    path.with_suffix(".new").rename(path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"url": "http://a:1", "router": "http://b:2"}', "http://b:2"),
        ('{"url": "http://a:1/v1"}', "http://a:1"),
        ('{"url": "http://a:1/v1", "router": ""}', ""),
        ('{"router": "no address at all://"}', "http://old:9"),
        ('{"router": 7}', "http://old:9"),
        ("[]", "http://old:9"),
        ("{torn", "http://old:9"),
        (None, "http://old:9"),
    ],
)
def test_what_the_file_says(tmp_path: Path, text: str | None, expected: str) -> None:
    file = tmp_path / "endpoint.json"
    if text is not None:
        file.write_text(text)
    assert EndpointAddress(str(file), "http://old:9/v1").read() == expected
    assert EndpointAddress(str(file)).read() == ("" if expected == "http://old:9" else expected)


def test_taken_down_is_told_from_away(tmp_path: Path) -> None:
    folder = tmp_path / "herd"
    folder.mkdir()
    request = JobRequest(endpoint="", model="m", input="i", output="o", endpoint_file=str(folder / "endpoint.json"))
    address = EndpointAddress(request.endpoint_file)
    assert address.gone() == ""
    (folder / "down.json").write_text('{"reason": "idle for 1h"}')
    assert address.gone() == "the swarm was taken down: idle for 1h"

    async def check() -> None:
        connection = open_connection(request)
        assert connection is not None
        with pytest.raises(EndpointGone, match="idle for 1h"):
            await connection.models()
        await connection.transport.close()

    asyncio.run(check())
    (folder / "down.json").unlink()
    folder.rmdir()
    assert "was removed" in address.gone()


class Place:
    """A transport to one place that answers, hangs, or is dead."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.state = "well"
        self.asked: list[str] = []
        self.closed = asyncio.Event()

    async def post(self, path: str, body: bytes) -> Reply:
        self.asked.append(body.decode())
        if self.state == "hangs":
            await self.closed.wait()
            raise Transient("connection lost")
        return await self.get(path)

    async def get(self, path: str) -> Reply:
        if self.state in ("dead", "hangs"):
            raise Transient(f"no connection for {path}", sent=False)
        return Reply(503 if self.state == "empty" else 200, self.url.encode())

    async def close(self) -> None:
        self.closed.set()


class Places:
    """All places, by URL, and a transport that follows a file among them."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.all: dict[str, Place] = {}
        self.moves: list[str] = []
        self.transport = FollowingTransport(EndpointAddress(str(file)), make=self._make, watch_s=0.05)
        self.transport.on_move = self.moves.append

    def _make(self, url: str) -> Place:
        return self.all.setdefault(url, Place(url))

    async def answer(self) -> bytes:
        """Ask until somebody answers."""
        async with asyncio.timeout(120):
            while True:
                try:
                    reply = await self.transport.post("/v1/x", b"row")
                except Transient:
                    await asyncio.sleep(0.02)
                    continue
                if reply.status == 200:
                    return reply.body
                await asyncio.sleep(0.02)


@pytest.mark.parametrize("ends", ["dead", "empty"])
async def test_it_is_followed_when_it_fails(tmp_path: Path, ends: str) -> None:
    places = Places(tmp_path / "endpoint.json")
    with pytest.raises(Transient, match="does not say where"):
        await places.transport.get("/v1/models")
    say(places.file, router="http://a:1")
    assert await places.answer() == b"http://a:1"
    places.all["http://a:1"].state = ends
    say(places.file, router="http://b:1")
    assert await places.answer() == b"http://b:1"
    assert places.moves == ["http://a:1", "http://b:1"]
    await places.all["http://a:1"].closed.wait()
    await places.transport.close()
    assert places.all["http://b:1"].closed.is_set()


async def test_what_hangs_at_a_place_that_vanished_is_asked_again_elsewhere(tmp_path: Path) -> None:
    places = Places(tmp_path / "endpoint.json")
    say(places.file, router="http://a:1")
    assert await places.answer() == b"http://a:1"
    places.all["http://a:1"].state = "hangs"
    hanging = asyncio.create_task(places.answer())
    await asyncio.sleep(0.1)
    say(places.file, router="http://b:1")
    assert await hanging == b"http://b:1"
    await places.transport.close()


async def test_what_is_under_way_at_a_place_that_answers_is_left_to_end(tmp_path: Path) -> None:
    places = Places(tmp_path / "endpoint.json")
    say(places.file, router="http://a:1")
    assert await places.answer() == b"http://a:1"
    old = places.all["http://a:1"]
    slow = asyncio.Event()

    async def post(path: str, body: bytes) -> Reply:
        await slow.wait()
        return Reply(200, b"late, but whole" if path and body else b"")

    old.post = post  # type: ignore[method-assign]
    asked = asyncio.create_task(places.transport.post("/v1/x", b"row"))
    await asyncio.sleep(0.05)
    say(places.file, router="http://b:1")
    async with asyncio.timeout(120):
        while places.moves != ["http://a:1", "http://b:1"]:
            await asyncio.sleep(0.02)
    assert not old.closed.is_set()
    slow.set()
    assert (await asked).body == b"late, but whole"
    async with asyncio.timeout(120):
        await old.closed.wait()
    await places.transport.close()


@pytest.mark.parametrize("moves", [True, False])
async def test_of_what_was_taken_down_nothing_more_is_asked(tmp_path: Path, *, moves: bool) -> None:
    """Its port is another swarm's a moment later, which would answer."""
    folder = tmp_path / "herd"
    folder.mkdir()
    say(folder / "endpoint.json", url="http://a:1" if moves else "http://elsewhere:1")
    place = Place("http://a:1")
    address = EndpointAddress(str(folder / "endpoint.json"), "http://a:1", moves=moves)
    transport = FollowingTransport(address, make=lambda url: {place.url: place}[url])
    assert (await transport.post("/v1/x", b"row 1")).status == 200
    (folder / "down.json").write_text("{}")
    with pytest.raises(Transient, match="taken down") as caught:
        await transport.post("/v1/x", b"row 2")
    (folder / "down.json").unlink()
    folder.rename(tmp_path / "removed")
    with pytest.raises(Transient, match="taken down"):
        await transport.post("/v1/x", b"row 3")
    assert (place.asked, caught.value.sent) == (["row 1"], False)
    await transport.close()


def test_a_job_goes_on_where_the_endpoint_went(tmp_path: Path) -> None:
    """The first place is killed while rows are under way; the file names the second a moment later."""
    rows = 400
    pq.write_table(pa.table({"prompt": [f"row {number}" for number in range(rows)]}), tmp_path / "in.parquet")
    file = tmp_path / "endpoint.json"
    with StubProcess() as first, StubProcess() as second:
        first.set(leave_after=40)
        say(file, router=first.url)
        request = JobRequest(
            endpoint="", model="stub", input=str(tmp_path / "in.parquet"), output=str(tmp_path / "out.parquet"),
            job="completion", endpoint_file=str(file), max_concurrency=8,
        )  # fmt: skip
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(run_job, request)
            until(lambda: running.done() or first.stats()["requests"] > 40, "rows are under way", 120)
            first.kill()
            say(file, router=second.url)
            summary = running.result(timeout=120)
        assert summary.failed == 0
        assert second.stats()["requests"] >= rows - 60
    assert pq.read_table(tmp_path / "out.parquet")["prompt"].to_pylist() == [f"row {n}" for n in range(rows)]


def test_who_waits_for_a_swarm_in_a_queue_waits_as_long_as_its_supervisor(tmp_path: Path) -> None:
    """A job that nobody looks at; in the foreground it says that the endpoint is away, and ends."""
    pq.write_table(pa.table({"prompt": [f"row {number}" for number in range(100)]}), tmp_path / "in.parquet")
    file = tmp_path / "endpoint.json"
    asked = JobRequest(
        endpoint="", model="stub", input=str(tmp_path / "in.parquet"), output=str(tmp_path / "out.parquet"),
        job="completion", endpoint_file=str(file), endpoint_wait_s=1.0, owner="job.1",
    )  # fmt: skip
    say(file, router="")
    with pytest.raises(Unavailable):
        run_job(dataclasses.replace(asked, owner="", output=str(tmp_path / "other.parquet")))
    with StubProcess() as stub, ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_job, asked)
        with pytest.raises(TimeoutError):
            running.result(timeout=3.0)
        say(file, router=stub.url)
        assert running.result(timeout=120).failed == 0


def test_rows_wait_as_long_as_the_swarm_is_coming_back() -> None:
    checkpoint: Any = SimpleNamespace(flush=lambda: None)
    nobody: Any = None
    breaker = Breaker()
    pipeline = Pipeline(nobody, checkpoint, nobody, PipelineLimits(1, 60.0, 600.0, 16), Limiter(1), breaker)
    breaker.on_failure(0.0, "gone", connected=False)
    coming = True
    pipeline.is_coming = lambda: coming
    for now in (600.0, 601.0, 1200.0, 1201.5, 1801.0):
        pipeline._give_up(now)
    coming = False
    pipeline._give_up(1801.5)
    with pytest.raises(Unavailable, match="has been away for 1802 s: gone"):
        pipeline._give_up(1802.0)


class Arriving:
    """A place where nobody listens when it is asked first; meanwhile its address is told."""

    def __init__(self) -> None:
        self.is_coming = True
        self.asked = 0

    async def get(self, _: str) -> Reply:
        self.asked += 1
        if self.is_coming:
            self.is_coming = False
            raise Transient("connection refused")
        return Reply(200, b'{"data": [{"id": "m"}]}')


async def test_an_address_that_is_told_while_a_question_fails_is_asked() -> None:
    place: Any = Arriving()
    assert await ask_models(place, "http://a:1", wait_s=0.0, is_coming=lambda: place.is_coming) == ["m"]
    assert place.asked == 2


async def test_who_has_come_is_waited_for_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes when the patience with which the wait began is almost over, and needs some of it for itself."""
    now = 0.0

    async def sleep(pause_s: float) -> None:
        nonlocal now
        now += pause_s

    async def answer(path: str) -> Reply:
        if now < 2.0:
            raise Transient(f"no connection for {path}", sent=False)
        return Reply(200, b'{"data": [{"id": "m"}]}')

    clock = SimpleNamespace(time=lambda: now)
    patched = SimpleNamespace(get_running_loop=lambda: clock, sleep=sleep, timeout=asyncio.timeout)
    monkeypatch.setattr("remuda.batch.endpoint.asyncio", patched)
    place = Place("http://a:1")
    monkeypatch.setattr(place, "get", answer)
    assert await ask_models(place, place.url, wait_s=1.5, is_coming=lambda: now < 1.0) == ["m"]

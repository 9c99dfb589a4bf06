"""The default router with real and misbehaving engines behind it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.component.serving.conftest import Server, replicas, status_of
from tests.component.serving.load import Outcome, both_answer, chat, load
from tests.ports import free_port

from remuda.base.errors import Rejected, Unavailable
from remuda.plan.model import Role
from remuda.serving.client import call
from remuda.serving.router import NO_KEYS, Keys, Member, MemberChanges
from remuda.serving.smg import SmgRouter

Start = Callable[..., Server]
smg = SmgRouter()
pytestmark = pytest.mark.real
#: The default policy, which minds caches, sends few requests at once all to one replica.
FAIR = "round_robin"


def post(url: str, body: dict[str, Any], *, key: str = "") -> tuple[int, dict[str, Any]]:
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status), json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read() or b"{}")


def ask(url: str, **more: Any) -> tuple[int, dict[str, Any]]:
    key = more.pop("key", "")
    return post(f"{url}/v1/chat/completions", chat("hello", **more), key=key)


def urls(*servers: Server) -> frozenset[str]:
    return frozenset(server.url for server in servers)


def secret_mark() -> str:
    """Part of each key of a test, and of no command of another test that runs beside it."""
    return f"s3cr3t-{secrets.token_hex(4)}"


def read_proc(name: str) -> list[str]:
    """That file of every process that lives."""
    found = []
    for path in Path("/proc").glob(f"[0-9]*/{name}"):
        with contextlib.suppress(OSError):
            found.append(path.read_text(errors="replace"))
    return found


async def until(check: Callable[[], bool], *, timeout_s: float) -> float:
    """Seconds until `check` holds."""
    start = time.monotonic()
    while not await asyncio.to_thread(check):
        assert time.monotonic() - start < timeout_s
        await asyncio.sleep(0.02)
    return time.monotonic() - start


async def sync(url: str, members: frozenset[str], keys: Keys = NO_KEYS) -> MemberChanges:
    """Make them the members, and wait until all of them serve, however busy the machine is."""
    changes = await smg.sync(url, replicas(members), keys, wait_s=60.0)
    assert not changes.pending
    return changes


async def running(server: Server) -> int:
    """Requests that an engine works on."""
    text = (await call("GET", f"{server.url}/metrics", timeout_s=60)).body.decode()
    return int(next(line for line in text.splitlines() if "num_requests_running" in line).split()[-1])


async def until_true(check: Callable[[], Awaitable[bool]]) -> bool:
    while not await check():
        await asyncio.sleep(0.05)
    return True


async def test_without_members_it_is_healthy_and_answers_503_at_once(router: Start) -> None:
    server = router()
    await until(lambda: ask(server.url)[0] == 503, timeout_s=60)
    await until(lambda: "All workers" in str(ask(server.url)), timeout_s=60)

    def answers_at_once() -> bool:
        start = time.monotonic()
        assert ask(server.url)[0] == 503
        return time.monotonic() - start < 1.0

    await until(answers_at_once, timeout_s=60)  # the machine may be busy for a while, smg never is
    assert status_of(f"{server.url}/health") == 200
    with urllib.request.urlopen(f"{server.url}/v1/models", timeout=60) as answer:
        assert [model["id"] for model in json.load(answer)["data"]] == ["tiny"]


async def test_members_follow_and_a_second_sync_changes_nothing(router: Start, engine: Start) -> None:
    server, first, second = router(), engine(), engine()
    assert await sync(server.url, urls(first)) == MemberChanges(added=urls(first))
    assert ask(server.url)[0] == 200
    assert await sync(server.url, urls(first)) == MemberChanges()
    assert await sync(server.url, urls(second)) == MemberChanges(added=urls(second), removed=urls(first))
    assert ask(server.url)[1]["system_fingerprint"].endswith(second.url.rpartition(":")[2])
    assert await sync(server.url, frozenset()) == MemberChanges(removed=urls(second))
    assert ask(server.url)[0] == 503
    changes = await sync(server.url, urls(first, second))
    assert changes.added == urls(first, second)
    assert ask(server.url)[0] == 200


class Mute(BaseHTTPRequestHandler):
    """A server that does not say what it serves, as that of Transformers."""

    def do_GET(self) -> None:
        self._answer(200 if self.path == "/health" else 500, {})

    def do_POST(self) -> None:
        self.hear(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        choice = {"index": 0, "message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}
        self._answer(200, {"id": "1", "object": "chat.completion", "created": 1, "model": "tiny", "choices": [choice]})

    def hear(self, _: dict[str, Any]) -> None:
        pass

    def _answer(self, status: int, document: dict[str, object]) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


async def test_a_member_that_does_not_name_its_model_is_named(router: Start) -> None:
    server = router()
    with ThreadingHTTPServer(("127.0.0.1", free_port()), Mute) as mute:
        threading.Thread(target=mute.serve_forever, daemon=True).start()
        member = frozenset({f"http://127.0.0.1:{mute.server_address[1]}"})
        await until(lambda: status_of(f"{server.url}/health") == 200, timeout_s=60)
        changes = await SmgRouter("tiny").sync(server.url, replicas(member), wait_s=60)
        assert changes.added == member
        status, answer = await asyncio.to_thread(ask, server.url)
        assert (status, answer["choices"][0]["message"]["content"]) == (200, "yes")
        assert not await SmgRouter("tiny").sync(server.url, replicas(member))
        mute.shutdown()


def half(heard: list[dict[str, Any]]) -> type[Mute]:
    """A server that does its half of a request, and writes down what it was asked."""

    class Half(Mute):
        def do_GET(self) -> None:
            # What else it would answer, smg would take it for another engine, whose halves meet in another way.
            known = self.path in ("/health", "/v1/models")
            self._answer(200 if known else 404, {"object": "list", "data": [{"id": "tiny", "object": "model"}]})

        def hear(self, body: dict[str, Any]) -> None:
            heard.append(body)

    return Half


async def test_prefill_and_decode_are_members_as_such(router: Start) -> None:
    apart = router(apart=True)
    first: list[dict[str, Any]] = []
    second: list[dict[str, Any]] = []
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), half(first)) as prefill,
        ThreadingHTTPServer(("127.0.0.1", 0), half(second)) as decode,
    ):
        for server in (prefill, decode):
            threading.Thread(target=server.serve_forever, daemon=True).start()
        one, other = (f"http://127.0.0.1:{server.server_address[1]}" for server in (prefill, decode))

        async def members(port: int) -> frozenset[str]:
            both = frozenset({Member(one, Role.PREFILL, port), Member(other, Role.DECODE)})
            while (changes := await smg.sync(apart.url, both, wait_s=60)).pending:
                await asyncio.sleep(0.05)
            assert not await smg.sync(apart.url, both)
            return changes.added

        for port, added in ((8998, {one, other}), (8999, {one})):  # begun again, it has another port
            assert await members(port) == added
            assert (await asyncio.to_thread(ask, apart.url))[0] == 200
            assert first[-1]["bootstrap_port"] == port
        assert [body["bootstrap_room"] for body in first] == [body["bootstrap_room"] for body in second]
        for server in (prefill, decode):
            server.shutdown()


async def test_a_member_that_never_answers_stays_pending_and_harms_nobody(router: Start, engine: Start) -> None:
    server, good, deaf = router(), engine(), engine("--deaf", wait=False)
    await sync(server.url, urls(good))
    assert await smg.sync(server.url, replicas(urls(good, deaf)), wait_s=0.5) == MemberChanges(pending=urls(deaf))
    assert {ask(server.url)[0] for _ in range(4)} == {200}
    assert await sync(server.url, urls(good)) == MemberChanges()


async def test_a_replica_killed_under_load_fails_no_request(router: Start, engine: Start) -> None:
    server, first, second = router(), engine("--token-s", "0.01"), engine("--token-s", "0.01")
    await sync(server.url, urls(first, second))
    outcome = await load(server.url, in_flight=64, after=16, when=both_answer, action=second.kill)
    assert outcome.answers.keys() == {"ok"}, outcome


async def test_a_stream_cut_by_a_dead_replica_ends_with_an_error(router: Start, engine: Start) -> None:
    # Streams of the second stop halfway, so that none has ended before it is killed.
    pace = ("--token-s", "0.1")
    server, first, second = router(policy=FAIR), engine(*pace), engine(*pace, "--hang-mid-stream")
    await sync(server.url, urls(first, second))

    def one_began(outcome: Outcome) -> bool:
        return outcome.begun[f"engine-{second.url.rpartition(':')[2]}"] > 0

    outcome = await load(
        server.url, in_flight=16, after=1, when=one_began, action=second.kill, stream=True, max_tokens=20
    )
    cut = {text for text in outcome.answers if text != "ok"}
    assert outcome.answers["ok"] > 0
    assert cut
    assert all('"error"' in text for text in cut), cut


async def test_a_removed_member_finishes_what_it_has(router: Start, engine: Start) -> None:
    server, first, second = router(policy=FAIR), engine("--slow", "2.0"), engine("--slow", "2.0")
    await sync(server.url, urls(first, second))

    async def both_work() -> bool:
        return bool(await running(first) and await running(second))

    async def remove() -> None:
        await asyncio.wait_for(until_true(both_work), 180)
        await sync(server.url, urls(first))

    outcome = await load(server.url, in_flight=8, after=1, action=lambda: asyncio.run(remove()))
    assert outcome.answers.keys() == {"ok"}, outcome
    assert len(outcome.engines) == 2


async def test_a_replica_that_answers_500_is_left_out(router: Start, engine: Start, tmp_path: Path) -> None:
    control = tmp_path / "control.json"
    server, good, bad = router(policy=FAIR), engine(), engine("--control", str(control))
    await sync(server.url, urls(good, bad))

    def fail() -> None:
        control.write_text('{"mode": "500"}')

    outcome = await load(server.url, in_flight=16, after=100, when=both_answer, action=fail)
    assert outcome.answers.keys() == {"ok"}, outcome

    async def left_out() -> bool:
        return [worker.url for worker in (await smg.stats(server.url)).workers if worker.healthy] == [good.url]

    assert await asyncio.wait_for(until_true(left_out), 180)
    control.write_text("{}")

    async def both() -> bool:
        return all(worker.healthy for worker in (await smg.stats(server.url)).workers)

    assert await asyncio.wait_for(until_true(both), 180)


async def test_a_replica_that_falls_silent_is_left_out(router: Start, engine: Start, tmp_path: Path) -> None:
    control = tmp_path / "control.json"
    server, good, bad = router(is_patient=False), engine(), engine("--control", str(control))
    await sync(server.url, urls(good, bad))
    control.write_text('{"mode": "deaf"}')

    async def left_out() -> bool:
        return [worker.url for worker in (await smg.stats(server.url)).workers if worker.healthy] == [good.url]

    assert await asyncio.wait_for(until_true(left_out), 180)
    outcome = await load(server.url, in_flight=16, after=20)
    assert outcome.answers.keys() == {"ok"}


async def test_a_returning_replica_serves_at_once(router: Start, engine: Start) -> None:
    server, first = router(replicas=1), engine()
    await sync(server.url, urls(first))
    first.kill()
    await sync(server.url, frozenset())
    assert ask(server.url)[0] == 503
    first.restart()
    assert (await sync(server.url, urls(first))).added == urls(first)
    assert ask(server.url)[0] == 200


async def test_a_restarted_router_is_filled_again(router: Start, engine: Start) -> None:
    server, first, second = router(), engine(), engine()
    await sync(server.url, urls(first, second))
    server.restart()
    with pytest.raises(Unavailable):
        await smg.sync(f"http://127.0.0.1:{free_port()}", replicas(urls(first)))
    changes = await sync(server.url, urls(first, second))
    assert changes.added == urls(first, second)
    assert ask(server.url)[0] == 200


async def test_keys_are_asked_for_and_are_in_no_argument(router: Start, engine: Start) -> None:
    mark = secret_mark()
    keys = Keys(api=f"{mark}-of-clients", control=f"{mark}-of-control")
    server, first = router(api_key=keys.api, control_key=keys.control), engine()
    with pytest.raises(Rejected):
        await smg.sync(server.url, replicas(urls(first)), Keys(api=keys.api))
    assert mark not in repr(keys)
    assert (await sync(server.url, urls(first), keys)).added == urls(first)
    assert ask(server.url)[0] == 401
    assert ask(server.url, key="wrong")[0] == 401
    assert ask(server.url, key=keys.api)[0] == 200
    assert [worker.url for worker in (await smg.stats(server.url, keys)).workers] == [first.url]
    assert not any(mark in line for line in read_proc("cmdline"))


ASKING = ("chat/completions", "completions", "embeddings", "rerank", "responses", "messages", "classify")
CHANGING = (("GET", ""), ("POST", ""), ("PUT", "/1"), ("PATCH", "/1"), ("DELETE", "/1"))


def test_with_a_key_nothing_is_asked_or_changed_without_it(router: Start) -> None:
    server = router(api_key="s3cr3t", control_key="c0ntr0l")
    assert status_of(f"{server.url}/health") == 200, "as the watchdog asks"
    for value in ("", "Bearer", "Bearer ", "Bearer wrong", "Bearer s3cr3t2", "Basic s3cr3t", "s3cr3t"):
        asked = [("POST", f"/v1/{name}") for name in ASKING]
        changed = [(method, f"/workers{rest}") for method, rest in CHANGING]
        assert {status_with(server, value, *one) for one in asked + changed} == {401}
    assert {status_with(server, "Bearer s3cr3t", method, f"/workers{rest}") for method, rest in CHANGING} == {401}
    assert ask(server.url, key="s3cr3t")[0] == 503


def status_with(server: Server, authorization: str, method: str, path: str) -> int:
    headers = {"authorization": authorization, "content-type": "application/json"}
    data = None if method == "GET" else json.dumps(chat("hello")).encode()
    request = urllib.request.Request(server.url + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


async def test_the_metrics_of_a_router_with_a_key(router: Start, engine: Start) -> None:
    server, first = router(api_key="s3cr3t", control_key="c0ntr0l"), engine()
    keys = Keys(api="s3cr3t", control="c0ntr0l")
    await sync(server.url, urls(first), keys)
    assert ask(server.url, key="s3cr3t")[0] == 200

    async def counted() -> bool:  # an answer is counted just after it has gone out
        return (await smg.stats(server.url, keys)).requests == 1

    assert await asyncio.wait_for(until_true(counted), 180)
    assert (await smg.stats(server.url, keys)).errors == 0


async def test_the_key_of_the_replicas_is_sent_to_them(router: Start, engine: Start) -> None:
    server, first = router(), engine("--api-key-env", "ENGINE_KEY", env={"ENGINE_KEY": "inner"})
    await sync(server.url, urls(first), Keys(worker="inner"))
    assert ask(server.url)[0] == 200


async def test_the_stock_client_works_through_it(router: Start, engine: Start) -> None:
    import openai

    server, first = router(), engine()
    await sync(server.url, urls(first))
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        assert [model.id async for model in client.models.list()] == ["tiny"]
        answer = await client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": "hello"}], max_tokens=3
        )
        assert answer.choices[0].message.content == "the old horse"
        completion = await client.completions.create(model="tiny", prompt="hello", max_tokens=2)
        assert completion.choices[0].text == "the old"
        vectors = await client.embeddings.create(model="tiny", input=["a", "b"])
        assert len(vectors.data) == 2
        stream = await client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": "hello"}], max_tokens=5, stream=True
        )
        words = [chunk.choices[0].delta.content or "" async for chunk in stream]
        assert "".join(words) == "the old horse walks along "


async def test_it_tells_what_it_did(router: Start, engine: Start) -> None:
    server, first = router(), engine()
    await sync(server.url, urls(first))
    for _ in range(3):
        assert ask(server.url)[0] == 200
    assert ask(server.url, model="other")[0] == 404

    async def counted() -> bool:  # an answer is counted just after it has gone out
        stats = await smg.stats(server.url)
        return (stats.requests, stats.running, stats.errors, stats.workers[0].requests) == (4, 0, 1, 3)

    assert await asyncio.wait_for(until_true(counted), 180)
    stats = await smg.stats(server.url)
    assert (stats.errors, stats.running) == (1, 0)
    assert stats.p99_s >= stats.p50_s > 0
    assert stats.mean_s > 0
    assert [(worker.url, worker.healthy, worker.requests) for worker in stats.workers] == [(first.url, True, 3)]


async def test_two_routers_share_a_machine(router: Start, engine: Start) -> None:
    one, other, first = router(), router(), engine()
    for server in (one, other):
        await sync(server.url, urls(first))
        assert ask(server.url)[0] == 200

    async def counted() -> bool:
        return [(await smg.stats(server.url)).requests for server in (one, other)] == [1, 1]

    assert await asyncio.wait_for(until_true(counted), 180)


async def test_it_takes_its_waiting_room_along_when_it_is_killed(router: Start) -> None:
    server = router()

    def children() -> list[str]:
        return [line for line in read_proc("stat") if line.rpartition(")")[2].split()[2] == str(server.pid)]

    assert len(children()) == 2
    server.kill()
    await until(lambda: not children(), timeout_s=60)

"""The second router with real and misbehaving engines behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import openai
import pytest
from tests.component.serving.conftest import status_of
from tests.component.serving.load import both_answer, load
from tests.component.serving.test_smg import ask, read_proc, until, urls
from tests.ports import free_port

from remuda.base.errors import Rejected, Unavailable
from remuda.serving.nginx import NginxRouter
from remuda.serving.router import NO_KEYS, Changes, Keys

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.component.serving.conftest import Server

    Start = Callable[..., Server]

nginx = NginxRouter()
pytestmark = pytest.mark.real


async def sync(url: str, members: frozenset[str], keys: Keys = NO_KEYS) -> Changes:
    """Make them the members, and wait until they are in force, however busy the machine is."""
    return await nginx.sync(url, members, keys, wait_s=60.0)


async def test_members_follow_and_a_second_sync_changes_nothing(router: Start, engine: Start) -> None:
    server, first, second = router("nginx"), engine(), engine()
    assert ask(server.url)[0] == 503
    assert await sync(server.url, urls(first)) == Changes(added=urls(first))
    assert ask(server.url)[0] == 200
    assert await sync(server.url, urls(first)) == Changes()
    assert await sync(server.url, urls(second)) == Changes(added=urls(second), removed=urls(first))
    assert ask(server.url)[1]["system_fingerprint"].endswith(second.url.rpartition(":")[2])
    assert await sync(server.url, frozenset()) == Changes(removed=urls(second))
    assert ask(server.url)[0] == 503
    server.restart()
    assert (await sync(server.url, urls(first, second))).added == urls(first, second)
    assert ask(server.url)[0] == 200
    with pytest.raises(Unavailable):
        await nginx.sync(f"http://127.0.0.1:{free_port()}", urls(first))


async def test_a_replica_killed_under_load_fails_no_request(router: Start, engine: Start) -> None:
    server, first, second = router("nginx"), engine("--token-s", "0.01"), engine("--token-s", "0.01")
    await sync(server.url, urls(first, second))
    outcome = await load(server.url, in_flight=64, after=12, when=both_answer, action=second.kill)
    assert outcome.answers.keys() == {"ok"}, outcome


async def test_keys_are_asked_for_to_the_letter(router: Start, engine: Start) -> None:
    server = router("nginx", api_key="s3cr3t-Key", control_key="s3cr3t-Control")
    first = engine("--api-key-env", "ENGINE_KEY", env={"ENGINE_KEY": "s3cr3t-inner"})
    keys = Keys(api="s3cr3t-Key", control="s3cr3t-Control", worker="s3cr3t-inner")
    with pytest.raises(Rejected):
        await sync(server.url, urls(first), Keys(control="s3cr3t-control"))
    assert (await sync(server.url, urls(first), keys)).added == urls(first)
    assert [ask(server.url, key=key)[0] for key in ("", "s3cr3t-key", "s3cr3t-Key")] == [401, 401, 200]
    assert not any("s3cr3t" in line for line in read_proc("cmdline"))
    assert (await nginx.stats(server.url, keys)).workers[0].url == first.url


async def test_the_stock_client_streams_through_it(router: Start, engine: Start) -> None:
    server, first = router("nginx"), engine()
    await sync(server.url, urls(first))
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        assert [model.id async for model in client.models.list()] == ["tiny"]
        stream = await client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": "hello"}], max_tokens=3, stream=True
        )
        assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == "the old horse "


async def test_nginx_ends_with_its_launcher(router: Start) -> None:
    server = router("nginx")
    server.kill()
    await until(lambda: status_of(f"{server.url}/health") == 0, timeout_s=60)
    again = router("nginx")
    assert again.end() == 0
    assert status_of(f"{again.url}/health") == 0

"""The second router with real and misbehaving engines behind it."""

from __future__ import annotations

import asyncio
import re
import resource
import shutil
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.component.serving.conftest import replicas, status_of
from tests.component.serving.crowding import END, FEW, HALF, in_the_crowd, limits, stream
from tests.component.serving.load import both_answer, load
from tests.component.serving.test_relay_process import name, start
from tests.component.serving.test_smg import ask, read_proc, secret_mark, until, urls
from tests.ports import free_port

from remuda.base.errors import Rejected, Unavailable
from remuda.enter import words
from remuda.plan.front import POLICIES
from remuda.serving.nginx import NginxRouter, Site, render
from remuda.serving.router import NO_KEYS, Keys, MemberChanges

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.component.serving.conftest import Server
    from tests.component.serving.crowding import Crowd

    Start = Callable[..., Server]

nginx = NginxRouter()
pytestmark = pytest.mark.real


async def sync(url: str, members: frozenset[str], keys: Keys = NO_KEYS) -> MemberChanges:
    """Make them the members, and wait until they are in force, however busy the machine is."""
    return await nginx.sync(url, replicas(members), keys, wait_s=60.0)


async def test_members_follow_and_a_second_sync_changes_nothing(router: Start, engine: Start) -> None:
    server, first, second = router("nginx"), engine(), engine()
    assert ask(server.url)[0] == 503
    assert await sync(server.url, urls(first)) == MemberChanges(added=urls(first))
    assert ask(server.url)[0] == 200
    assert await sync(server.url, urls(first)) == MemberChanges()
    assert await sync(server.url, urls(second)) == MemberChanges(added=urls(second), removed=urls(first))
    assert ask(server.url)[1]["system_fingerprint"].endswith(second.url.rpartition(":")[2])
    assert await sync(server.url, frozenset()) == MemberChanges(removed=urls(second))
    assert ask(server.url)[0] == 503
    server.restart()
    assert (await sync(server.url, urls(first, second))).added == urls(first, second)
    assert ask(server.url)[0] == 200
    with pytest.raises(Unavailable):
        await nginx.sync(f"http://127.0.0.1:{free_port()}", replicas(urls(first)))


async def test_a_replica_killed_under_load_fails_no_request(router: Start, engine: Start) -> None:
    server, first, second = router("nginx"), engine("--token-s", "0.01"), engine("--token-s", "0.01")
    await sync(server.url, urls(first, second))
    outcome = await load(server.url, in_flight=64, after=12, when=both_answer, action=second.kill)
    assert outcome.answers.keys() == {"ok"}, outcome


async def test_keys_are_asked_for_to_the_letter(router: Start, engine: Start) -> None:
    mark = secret_mark()
    server = router("nginx", api_key=f"{mark}-Key", control_key=f"{mark}-Control")
    first = engine("--api-key-env", "ENGINE_KEY", env={"ENGINE_KEY": f"{mark}-inner"})
    keys = Keys(api=f"{mark}-Key", control=f"{mark}-Control", worker=f"{mark}-inner")
    with pytest.raises(Rejected):
        await sync(server.url, urls(first), Keys(control=f"{mark}-control"))
    assert (await sync(server.url, urls(first), keys)).added == urls(first)
    assert [ask(server.url, key=key)[0] for key in ("", f"{mark}-key", f"{mark}-Key")] == [401, 401, 200]
    assert not any(mark in line for line in read_proc("cmdline"))
    assert (await nginx.stats(server.url, keys)).workers[0].url == first.url


async def test_the_stock_client_streams_through_it(router: Start, engine: Start) -> None:
    import openai

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


async def test_changing_members_loses_no_request_behind_the_relay(
    router: Start, engine: Start, serve: Start, tmp_path: Path
) -> None:
    """nginx closes idle connections when it is reloaded, also one on which a request is just coming."""
    server, first, second = router("nginx"), engine(), engine()
    await sync(server.url, urls(first, second))
    name(tmp_path, server.url)
    relay = start(serve, tmp_path)

    def change() -> None:
        for members in (urls(first), urls(first, second), urls(second), urls(first, second)):
            asyncio.run(sync(server.url, members))

    outcome = await load(relay.url, in_flight=16, after=12, when=both_answer, action=change)
    assert outcome.answers.keys() == {"ok"}, outcome


async def test_from_an_image(serve: Start, engine: Start, tmp_path: Path) -> None:
    """A stand-in for Apptainer notes what it is asked, and stays before the program that it runs."""
    stand_in = tmp_path / "bin" / "apptainer"
    stand_in.parent.mkdir()
    stand_in.write_text(
        f'#!/bin/sh\necho "$@" > {tmp_path}/asked\nwhile [ "$1" != /x.sif ]; do shift; done\nshift\n"$@" &\nwait $!\n'
    )
    stand_in.chmod(0o755)
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin") or ""
    argv = [sys.executable, *words("nginx"), "--port", "{port}", "--image", "/x.sif"]
    path = f"{stand_in.parent}:/usr/bin:/bin"
    server, first, second = serve([*argv, "--nginx", program], env={"PATH": path}), engine(), engine()
    for members in (urls(first), urls(second)):
        assert (await sync(server.url, members)).added == members
        assert ask(server.url)[0] == 200
    asked = (tmp_path / "asked").read_text()
    folder = r"/tmp/\S*remuda-nginx-\S+"
    assert re.match(rf"exec --bind ({folder}) /x\.sif {program} -p \1 -c ", asked), asked
    assert server.end() == 0
    # What stood before nginx may end before it.
    await until(lambda: status_of(f"{server.url}/health") == 0, timeout_s=60)


@pytest.mark.parametrize("count", [0, 1, 3, 64])
@pytest.mark.parametrize("policy", sorted(POLICIES["nginx"]))
def test_nginx_takes_what_is_rendered(count: int, policy: str, tmp_path: Path) -> None:
    members = tuple(f"http://10.0.{index // 8}.{index % 8 + 1}:{8000 + index % 3}" for index in range(count))
    site = Site(
        host="127.0.0.1", port=8080, directory=str(tmp_path), members=members, policy=policy, timeout_s=60,
        api_key="a.b$c" if count % 2 else "", worker_key="w" if count else "",
    )  # fmt: skip
    file = tmp_path / "nginx.conf"
    file.write_text(render(site))
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin") or ""
    done = subprocess.run(
        [program, "-t", "-p", str(tmp_path), "-c", str(file)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr


async def test_idle_connections_of_another_user_keep_nobody_out(router: Start, engine: Start, crowd: Crowd) -> None:
    server, replica = router("nginx", descriptors=FEW), engine("--token-s", "0.05")
    await sync(server.url, urls(replica))
    words = stream(server.url)
    assert next(words).startswith(b"data: ")
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=60) as half:
        half.sendall(HALF)
        crowd(server, b"")
        assert [in_the_crowd(lambda: ask(server.url)[0]) for _ in range(10)] == [200] * 10
        assert in_the_crowd(lambda: status_of(f"{server.url}/health")) == 200
        assert list(words)[-2:] == END
        assert half.recv(1000) == b"", "after ten seconds"


def test_it_takes_all_that_it_may_open(router: Start) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, hard))
    try:
        server = router("nginx")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert limits(server.pid) == [str(hard)] * 2

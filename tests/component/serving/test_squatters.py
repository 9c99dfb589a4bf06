"""Another user of the machine has the router's port: no key goes there, and no prompt."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from tests.component.serving.conftest import replicas
from tests.component.serving.relaying import on_both_loops, post, relaying

from remuda.base.errors import Unavailable
from remuda.client import swarms
from remuda.serving import smg_launcher
from remuda.serving.nginx import NginxRouter
from remuda.serving.router import Keys
from remuda.serving.smg import SmgRouter
from remuda.serving.smg_launcher import LABEL, METRICS_LABEL

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.strangers import Squatter

KEYS = Keys(api="s3cr3t-of-clients", control="s3cr3t-of-control", worker="s3cr3t-of-replicas")
DOCUMENT = json.dumps({"workers": [], "members": [], "version": 1}).encode()
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(DOCUMENT) + DOCUMENT
both = pytest.mark.parametrize("lets_go", [False, True])


def refused(squatter: Squatter) -> None:
    """They answered, and heard nothing."""
    squatter.until("served")
    assert squatter.heard == b""


async def sync_smg(url: str) -> None:
    await SmgRouter().sync(url, replicas({"http://127.0.0.1:1"}), KEYS)


async def sync_nginx(url: str) -> None:
    await NginxRouter().sync(url, replicas({"http://127.0.0.1:1"}), KEYS)


async def smg_stats(url: str) -> None:
    await SmgRouter().stats(url, KEYS)


async def nginx_stats(url: str) -> None:
    await NginxRouter().stats(url, KEYS)


@both
@pytest.mark.parametrize("ask", [sync_smg, sync_nginx, smg_stats, nginx_stats])
async def test_the_host_tells_no_key(squatter: Squatter, ask: Callable[[str], Awaitable[None]], lets_go: bool) -> None:
    squatter.takes(lets_go=lets_go, answer=ANSWER)
    with pytest.raises(Unavailable, match="another user"):
        await ask(f"http://127.0.0.1:{squatter.port}")
    refused(squatter)


@both
def test_the_launcher_tells_no_key(squatter: Squatter, lets_go: bool) -> None:
    squatter.takes(lets_go=lets_go, answer=ANSWER)
    with pytest.raises(Unavailable, match="another user"):
        smg_launcher.ask("POST", f"http://127.0.0.1:{squatter.port}/workers", KEYS.control, {"api_key": KEYS.worker})
    refused(squatter)


async def test_metrics_of_somebody_else_are_not_believed(squatter: Squatter) -> None:
    squatter.takes(answer=ANSWER)
    room = {LABEL: "waiting-room", METRICS_LABEL: f"http://127.0.0.1:{squatter.port}/metrics"}

    class Router(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"workers": [{"url": "http://127.0.0.1:1", "labels": room}]}).encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Router) as router:
        threading.Thread(target=router.serve_forever, daemon=True).start()
        with pytest.raises(Unavailable, match="another user"):
            await smg_stats(f"http://127.0.0.1:{router.server_port}")
        router.shutdown()
    refused(squatter)


@on_both_loops
async def test_the_relay_passes_nothing_on(squatter: Squatter, tmp_path: Path) -> None:
    await asyncio.to_thread(squatter.takes, answer=ANSWER)
    async with relaying(tmp_path, hold_s=0.3) as bench:
        router = {"url": f"http://127.0.0.1:{squatter.port}", "id": "1"}
        bench.file.write_text(json.dumps({"router": router, "alive": [router]}))
        head, _ = await bench.ask(post("a prompt", "Authorization: Bearer s3cr3t"))
        assert head.startswith("HTTP/1.1 503")
    await asyncio.to_thread(refused, squatter)


def test_swarm_list_tells_no_key(squatter: Squatter, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEYS.api)
    squatter.takes(answer=ANSWER)
    view: dict[str, Any] = {"endpoint": f"http://127.0.0.1:{squatter.port}", "api_key_file": str(tmp_path / "key")}
    assert swarms.http_status(view) == 0
    refused(squatter)

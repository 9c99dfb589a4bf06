"""An endpoint that nobody asks is taken down: real host, real router, on this machine."""

from __future__ import annotations

import json
import time
import urllib.request
from typing import TYPE_CHECKING

from tests.conftest import until

if TYPE_CHECKING:
    from tests.conftest import Home

IDLE_S = 12


def ask(url: str) -> None:
    body = {"model": "herd-1", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 200


def test_idle_is_taken_down_and_tells_it(home: Home) -> None:
    home.run("up", "-c", str(home.swarm(replicas=1, idle_timeout=IDLE_S)))
    address = home.view("herd")["endpoint"]
    asked_at = time.time()
    ask(address)
    home.kill_host()
    home.run("status")
    until(lambda: home.view("herd")["phase"] == "DOWN", "it is taken down")
    story = json.loads(home.run("events", "herd", "--json").stdout)
    (line,) = [line for line in story if line["reason"] == f"idle for {IDLE_S}s: nothing was asked of its endpoint"
               and line["kind"] == "intent"]  # fmt: skip
    assert line["at"] - asked_at >= IDLE_S
    assert "nothing was asked of its endpoint" in home.run("status", "herd").stdout
    home.run("down", "herd")

"""What a deployment does when its parts or its host die while it comes up, and while it serves."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from tests.component.host.test_deployments import ask, asked, recipe_file, tasks
from tests.conftest import Home, until

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.real


def test_the_host_is_killed_at_every_step_of_coming_up(home: Home) -> None:
    """What was begun is adopted, and nothing is begun twice."""
    home.run("apply", recipe_file(home, "steps"), "--backend", "local", "--no-wait")
    steps: list[Callable[[], bool]] = [
        lambda: tasks(home, "steps")["prefill/0"]["phase"] in ("pending", "starting", "ready"),
        lambda: tasks(home, "steps")["frontend/0"]["phase"] in ("pending", "starting", "ready"),
        lambda: tasks(home, "steps")["gate/0"]["phase"] != "waiting",
    ]
    for number, is_there in enumerate(steps):
        until(is_there, f"step {number}")
        home.kill_host()
        home.run("host", "start")
    until(lambda: home.view("steps")["phase"] == "RUNNING", "it is up")
    found = tasks(home, "steps")
    assert {name: (task["attempt"], task["restarts"]) for name, task in found.items() if name != "gate/0"} == {
        "prefill/0": (1, 0), "decode/0": (1, 0), "decode/1": (1, 0), "frontend/0": (1, 0),
        "relay/0": (1, 0),
    }  # fmt: skip
    assert ask(home, "steps") == 5


def test_who_waits_for_it_waits_for_the_next_host(home: Home) -> None:
    command = home.start("apply", recipe_file(home, "patient"), "--backend", "local")
    until((home.paths.workload("patient") / "prefill-0").exists, "it comes up")
    home.kill_host()
    output, errors = command.communicate(timeout=120)
    assert (command.returncode, output) == (0, f"OPENAI_BASE_URL={home.view('patient')['endpoint']}/v1\n"), errors
    assert "note: the host went away; waiting for the next" in errors


def test_a_gate_that_is_killed_looks_again(home: Home) -> None:
    home.run("apply", recipe_file(home, "gated"), "--backend", "local", "--no-wait")
    until(lambda: tasks(home, "gated")["gate/0"]["pid"], "the gate looks")
    with suppress(ProcessLookupError):  # it may have ended well in this moment
        os.kill(tasks(home, "gated")["gate/0"]["pid"] or 2**22 + 1, signal.SIGKILL)
    until(lambda: home.view("gated")["phase"] == "RUNNING", "it is up all the same")
    assert tasks(home, "gated")["gate/0"]["phase"] == "done"


def answers_until(ends: threading.Event, address: str) -> list[int]:
    """Tokens of each answer to one client that asks again and again; 0 where there was none."""
    tokens = []
    while not ends.is_set():
        tokens.append(asked(address))
    return tokens


def counts(home: Home) -> dict[str, int]:
    return {one["role"]: one["ready"] for one in home.view("parts")["roles"]}


def test_a_loss_of_each_part_is_seen_and_mended(home: Home) -> None:
    home.run("apply", recipe_file(home, "parts"), "--backend", "local")
    address = home.view("parts")["endpoint"]

    # All that read prompts are dead: it is said, a request fails and does not hang, and it comes back by itself.
    os.kill(tasks(home, "parts")["prefill/0"]["pid"], signal.SIGKILL)
    until(lambda: counts(home) == {"prefill": 0, "decode": 2}, "it is missed")
    assert home.view("parts")["phase"] not in ("RUNNING", "DEGRADED"), "nobody could be answered"
    assert ask(home, "parts") == 0
    until(lambda: home.view("parts")["phase"] == "RUNNING", "it is back")
    until(lambda: ask(home, "parts") == 5, "it answers again")

    # The frontend is dead: requests wait for the next one, which has all members.
    goes_on = threading.Event()
    with ThreadPoolExecutor() as pool:
        clients = [pool.submit(answers_until, goes_on, address) for _ in range(4)]
        until(lambda: tasks(home, "parts")["relay/0"]["phase"] == "ready", "there is load")
        os.kill(tasks(home, "parts")["frontend/0"]["pid"], signal.SIGKILL)
        until(lambda: tasks(home, "parts")["frontend/0"]["restarts"] == 1, "it was begun again")
        until(lambda: home.view("parts")["phase"] == "RUNNING" and ask(home, "parts") == 5, "it answers again")
        goes_on.set()
        tokens = [token for client in clients for token in client.result()]
    assert set(tokens) == {5}, "none was lost"
    assert home.view("parts")["endpoint"] == address
    assert tasks(home, "parts")["decode/0"]["restarts"] == 0, "the others were left alone"

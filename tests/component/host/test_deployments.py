"""`remuda apply` on this machine, with a stand-in for the engine behind the real router: gate, loss, restart, end."""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Home, until

pytestmark = pytest.mark.real
STANDINS = Path(__file__).parents[2] / "standins"


def recipe_file(home: Home, name: str, prefill: str = "{}", decode: str = "{workers: 2}") -> str:
    """A recipe of SGLang behind its router, whose engine is a stand-in."""
    (home.root / "model").mkdir(exist_ok=True)
    (home.root / "model/config.json").write_text("{}")
    file = home.root / f"{name}.yaml"
    file.write_text(
        f"schema: 2\nname: {name}\nmodel: {{path: {home.root / 'model'}, name: tiny}}\nengine: sglang\n"
        f"environment: {{PYTHONPATH: '{STANDINS}'}}\nfrontend: {{type: sglang-router}}\n"
        f"roles:\n  prefill: {prefill}\n  decode: {decode}\n"
    )
    return str(file)


def ask(home: Home, name: str) -> int:
    """Tokens of an answer; 0 where there is none."""
    return asked(home.view(name)["endpoint"])


def asked(address: str) -> int:
    """Tokens of an answer of an endpoint; 0 where there is none."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}
    request = urllib.request.Request(address + "/v1/chat/completions")
    request.add_header("content-type", "application/json")
    try:
        with urllib.request.urlopen(request, json.dumps(body).encode(), timeout=60) as answer:
            return int(json.load(answer)["usage"]["completion_tokens"])
    except (urllib.error.URLError, ConnectionError):
        return 0


def tasks(home: Home, name: str) -> dict[str, dict[str, Any]]:
    return {task["task"]: task for task in home.view(name)["tasks"]}


def test_a_recipe_serves_once_its_gate_was_answered(shared_home: Home) -> None:
    home, file = shared_home, recipe_file(shared_home, "routed")
    done = home.run("apply", file, "--backend", "local")
    assert "gate/0       done" in done.stderr
    assert "routed is up: prefill 1/1, decode 2/2, model tiny" in done.stderr
    assert done.stdout.startswith("OPENAI_BASE_URL=http://127.0.0.1:")
    gate = home.run("logs", "routed", "--role", "gate").stdout
    assert "a request was answered with 8 tokens" in gate
    assert "sglang:prompt_tokens_total of prefill: 0 → 7" in gate
    assert "prefill 1/1, decode 2/2" in home.run("status").stdout
    again = home.run("apply", file, "--backend", "local")
    assert again.stdout == done.stdout, "what is up is not begun again"
    other = home.run("apply", file, "--backend", "local", "--set", "roles.decode.workers=4", check=False)
    assert "deployment 'routed' is up already, with other settings" in other.stderr
    (folder,) = (home.paths.root / "deployments").glob("routed_*")
    assert f"files: {folder}" in again.stderr

    # One that decodes dies: it is missed at once, the rest serves, and it comes back.
    os.kill(tasks(home, "routed")["decode/0"]["pid"], signal.SIGKILL)
    until(lambda: home.view("routed")["phase"] == "DEGRADED", "it is missed")
    until(lambda: ask(home, "routed") == 5, "the other answers")
    until(lambda: home.view("routed")["phase"] == "RUNNING", "it is back")
    assert "scaling routed: prefill 1/1, decode 2/3" in home.run("scale", "routed", "decode=3").stderr
    until(lambda: home.view("routed")["ready"] == 4, "a third decodes")
    wrong = home.run("scale", "routed", "gate=2", check=False)
    assert "the gate of 'routed' cannot be scaled: it is a gate, whose number is fixed" in wrong.stderr
    home.run("down", "routed")


def test_of_two_at_once_one_brings_it_up_and_both_wait(shared_home: Home) -> None:
    """Both name the one directory that there is; the next life has its own secrets, and those before are gone."""
    home, file = shared_home, recipe_file(shared_home, "twins", decode="{}")
    words = ("apply", file, "--backend", "local")
    with ThreadPoolExecutor() as pool:
        ends = list(pool.map(lambda _: home.run(*words), range(2)))
    (folder,) = (home.paths.root / "deployments").glob("twins_*")
    assert all(f"files: {folder}" in one.stderr for one in ends)
    (secrets,) = (home.paths.workload("twins") / "secrets").iterdir()
    assert secrets.name == home.view("twins")["uid"]
    home.run("down", "twins")
    home.run(*words)
    assert [one.name for one in secrets.parent.iterdir()] == [home.view("twins")["uid"]] != [secrets.name]
    home.run("down", "twins")


def test_healthy_workers_that_hand_nothing_over_are_not_announced(shared_home: Home) -> None:
    home = shared_home
    file = recipe_file(shared_home, "deaf", prefill="{args: {no-handover: true}}", decode="{}")
    done = home.run("apply", file, "--backend", "local", check=False)
    assert done.returncode == 1
    assert "a request was answered with no token: what prefill computes does not reach decode" in done.stderr
    assert done.stdout == ""
    view = home.view("deaf")
    assert (view["phase"], {task["phase"] for task in view["tasks"]}) == ("FAILED", {"stopped", "failed"})


def test_a_worker_that_cannot_come_up_is_told_in_its_own_words(shared_home: Home) -> None:
    """A flag that its engine knows no more, and an engine that died behind a launcher that lives on."""
    home = shared_home
    file = recipe_file(shared_home, "lame", prefill="{args: {no-such-flag: 1}}", decode="{args: {dies-inside: true}}")
    home.run("apply", file, "--backend", "local", "--no-wait")

    def says(task: str, text: str) -> bool:
        return text in tasks(home, "lame")[task]["reason"]

    until(lambda: says("prefill/0", "unrecognized arguments: --no-such-flag 1"), "the flag is named")
    until(lambda: says("decode/0", "Scheduler hit an exception"), "the line is named")
    home.run("down", "lame")


def test_several_frontends_stand_behind_one_address(shared_home: Home) -> None:
    """The death of one costs nobody anything; stand-ins for Dynamo's frontend and simulated engine."""
    home = shared_home
    (home.root / "model").mkdir(exist_ok=True)
    (home.root / "model/config.json").write_text("{}")
    path = os.pathsep.join([str(STANDINS), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    file = home.root / "many.yaml"
    file.write_text(
        f"schema: 2\nname: many\nmodel: {{path: {home.root / 'model'}, name: tiny}}\nengine: mocker\n"
        f"environment: {{PYTHONPATH: '{path}'}}\nroles: {{prefill: {{}}, decode: {{}}}}\nfrontend: {{replicas: 2}}\n"
    )
    home.run("apply", str(file), "--backend", "local")
    gate = home.run("logs", "many", "--role", "gate").stdout
    assert gate.count(" lists ") == 2, "each frontend is asked for whom it lists"
    one = tasks(home, "many")["frontend/1"]
    assert (one["role"], home.view("many")["router"]["members"].count(one["url"])) == ("frontend", 1)
    os.kill(one["pid"], signal.SIGKILL)
    until(lambda: home.view("many")["phase"] == "DEGRADED", "it is missed")
    assert ask(home, "many") == 5
    until(lambda: home.view("many")["phase"] == "RUNNING", "it is back")
    other = home.run("apply", str(file), "--backend", "local", "--set", "environment.A=b", check=False)
    assert "deployment 'many' is up already, with other settings" in other.stderr
    (found,) = (home.paths.workload("many") / "discovery").iterdir()
    assert found.name == home.view("many")["uid"], "a command that is refused leaves nothing"
    wrong = home.run("scale", "many", "frontend=3", check=False)
    assert "the frontend of 'many' cannot be scaled: it is a frontend, whose number is fixed" in wrong.stderr
    home.run("down", "many")


def test_the_first_worker_is_enough_and_what_nobody_asks_is_taken_down(shared_home: Home) -> None:
    """With `ready: first`: the other never starts, and the frontend, the gate and the command wait for none."""
    home = shared_home
    python = home.root / "python"
    python.write_text(f'#!/bin/sh\n[ "$REMUDA_TASK" = decode/1 ] && exec sleep 600\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    terms = "ready: first\nidle_timeout: 12\nwatchdog: {probe_interval: 1}\nprofile: 1Hz\n"
    file = Path(recipe_file(home, "early"))
    file.write_text(f"{file.read_text()}python: {python}\n{terms}")
    done = home.run("apply", str(file), "--backend", "local")
    assert "early is up: prefill 1/1, decode 1/2, model tiny" in done.stderr
    view = home.view("early")
    assert (view["phase"], tasks(home, "early")["decode/1"]["phase"]) == ("DEGRADED", "starting")
    assert ask(home, "early") == 5
    until(lambda: home.view("early")["phase"] == "DOWN", "it is taken down")
    assert "idle for 12s: nothing was asked of its endpoint" in home.run("status", "early").stdout

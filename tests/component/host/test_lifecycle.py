"""A swarm's life as a user sees it: real host, real router, engines that behave."""

from __future__ import annotations

import json
import queue
import signal
import threading
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import Home, until

from remuda.base import log
from remuda.base.asker import me

if TYPE_CHECKING:
    import openai


@pytest.fixture(scope="module")
def herd(shared_home: Home) -> Home:
    """A swarm of two replicas that is up."""
    # An engine that stands still for a moment stays what it is: other tests look at each of them.
    still = {"http_timeout": 60, "unhealthy_restart_after": 600}
    done = shared_home.run("up", "-c", str(shared_home.swarm(engine_args=["--token-s", "0.01"], watchdog=still)))
    assert done.stdout.startswith("OPENAI_BASE_URL=http://127.0.0.1:")
    return shared_home


def client_of(home: Home, name: str = "herd") -> openai.OpenAI:
    import openai

    return openai.OpenAI(base_url=home.view(name)["endpoint"] + "/v1", api_key="none", max_retries=0, timeout=90)


def test_up_says_what_each_task_does(herd: Home) -> None:
    done = herd.run("up", "-c", str(herd.root / "herd.yaml"))
    assert "herd is up: 2 of 2 replicas, model herd-1" in done.stderr


def test_the_stock_client_works(herd: Home) -> None:
    with client_of(herd) as client:
        assert [model.id for model in client.models.list()] == ["herd-1"]
        answer = client.chat.completions.create(model="herd-1", messages=[{"role": "user", "content": "hi"}])
        assert answer.choices[0].message.content
        parts = client.chat.completions.create(
            model="herd-1", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        assert len([part for part in parts if part.choices and part.choices[0].delta.content]) > 1


def members(home: Home) -> int:
    """How many replicas the router sends to; 0 where it does not answer at once."""
    return len((home.view("herd")["router"] or {"members": []})["members"])


def test_status(herd: Home) -> None:
    assert "herd  swarm" in herd.run("status").stdout
    until(lambda: members(herd) == 2, "the router tells of both")
    text = herd.run("status", "herd").stdout
    assert "phase     RUNNING: 2 of 2 ready" in text
    assert "replica/1  ready" in text
    assert "2 members" in text
    view = json.loads(herd.run("status", "herd", "--json").stdout)
    assert [task["task"] for task in view["tasks"]] == ["replica/0", "replica/1", "router/0"]
    assert len(view["router"]["members"]) == 2


def test_swarm_list_and_describe(herd: Home) -> None:
    until(lambda: "HTTP 200 rep=2/2" in herd.run("swarm", "list").stdout, "it answers in time")
    assert "HTTP" not in herd.run("swarm", "list", "--no-probe").stdout.splitlines()[1]
    described = herd.run("swarm", "describe", "herd", "-o", "yaml").stdout
    assert "served_model_name: herd-1" in described
    assert json.loads(herd.run("swarm", "describe", "herd", "-o", "json").stdout)["replicas"] == 2
    assert "watchdog.probe_interval" in herd.run("swarm", "describe", "herd").stdout


def test_logs_of_each_task(herd: Home) -> None:
    assert herd.run("logs", "herd", "--replica", "1").stdout
    assert herd.run("logs", "herd", "--task", "router/0").returncode == 0
    wrong = herd.run("logs", "herd", "--replica", "7", check=False)
    assert wrong.returncode == 3
    assert "'herd' has no task replica/7 that ever ran" in wrong.stderr
    assert "it has: replica/0-1, router/0" in wrong.stderr


def test_explain_and_events(herd: Home) -> None:
    text = herd.run("explain", "herd").stdout
    assert text.startswith("herd is RUNNING: 2 of 2 ready")
    assert "first attempt" in herd.run("events", "herd").stdout
    assert json.loads(herd.run("events", "herd", "--json").stdout)[0]["reason"] == f"brought up by {me()}"


def test_a_story_is_that_of_one_life(shared_home: Home) -> None:
    """Also where the life before was of another kind."""
    home, script = shared_home, shared_home.root / "namesake.sh"
    script.write_text("#!/bin/sh\necho hello\n")
    home.run("run", str(script), "-n", "namesake", "--backend", "local", "--wait")
    first = json.loads(home.run("events", "namesake", "--json").stdout)
    home.run("down", "namesake")
    home.run("up", "-c", str(home.swarm("namesake", replicas=1)))
    second = json.loads(home.run("events", "namesake", "--json").stdout)
    assert [line["reason"] for line in second].count(f"brought up by {me()}") == 1
    assert "script/0" not in {line["task"] for line in second}
    every = json.loads(home.run("events", "namesake", "-n", "999", "--json", "--all-lives").stdout)
    assert [line["id"] for line in first] == [line["id"] for line in every[: len(first)]]
    assert [line["reason"] for line in every if line["kind"] == "intent"][1] == f"taken down by {me()}"
    assert f"intent      brought up by {me()}" in home.run("explain", "namesake").stdout
    assert "script/0" not in home.run("explain", "namesake").stdout
    assert "script/0 attempt 1: " in home.run("explain", "namesake", "--all-lives").stdout
    home.run("down", "namesake", "--remove")


def test_unknown_names_are_answered_with_the_nearest(herd: Home) -> None:
    done = herd.run("status", "hird", check=False)
    assert done.returncode == 3
    assert done.stderr == "error: nothing is called 'hird'\n  did you mean 'herd'?\n"


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("status", "herd/spec"), "herd/spec"),
        (("status", ""), ""),
        (("explain", "../herd"), "../herd"),
        (("events", "nope"), "nope"),
        (("status", "nope", "--watch"), "nope"),
        (("logs", "a b"), "a b"),
        (("down", "herd/spec"), "herd/spec"),
        (("restart", "100%"), "100%"),
        (("scale", "", "2"), ""),
    ],
)
def test_what_nothing_is_called_is_said_so(herd: Home, words: tuple[str, ...], name: str) -> None:
    done = herd.run(*words, check=False)
    assert done.returncode == 3, done.stderr
    assert done.stderr.splitlines()[0] == f"error: nothing is called {name!r}"


def test_the_same_up_again_waits_for_what_is_there(herd: Home) -> None:
    uid = herd.view("herd")["uid"]
    done = [herd.start("up", "-c", str(herd.root / "herd.yaml")) for _ in range(3)]
    for process in done:
        assert process.wait(180) == 0
        process.communicate()
    assert herd.view("herd")["uid"] == uid


def test_another_swarm_of_that_name_is_a_conflict(herd: Home) -> None:
    done = herd.run("up", "-c", str(herd.root / "herd.yaml"), "-r", "3", check=False)
    assert done.returncode == 4
    assert "error: swarm 'herd' is up already, with other settings: replicas 2 → 3" in done.stderr
    assert "for the replicas alone: remuda scale herd 3; else take it down first" in done.stderr


def test_scale_up_and_down(herd: Home) -> None:
    herd.run("scale", "herd", "3")
    until(lambda: members(herd) == 3, "three members")
    herd.run("scale", "herd", "2")
    until(lambda: len(herd.view("herd")["tasks"]) == 3, "two replicas and the router")
    until(lambda: members(herd) == 2, "two members")


def test_a_scale_that_no_machine_carries_is_refused(herd: Home) -> None:
    said = herd.run("scale", "herd", "100000", check=False)
    assert said.returncode == 2
    assert (
        said.stderr.splitlines()[0] == "error: 'herd' cannot have 100000 tasks 'replica' on this machine: 200 at most"
    )
    assert len(herd.view("herd")["tasks"]) == 3, "nothing has changed"


def test_the_api_has_its_document(herd: Home) -> None:
    herd.client.get("/workloads")  # what was called before is in it as all else
    document: dict[str, Any] = herd.client.get("/openapi.json")
    assert {"/api/v1/workloads", "/api/v1/workloads/{name}/explain", "/api/v1/host"} <= set(document["paths"])
    schemas = document["components"]["schemas"]
    described = {"WorkloadView": "paused", "RunView": "cause", "NodeView": "cluster"}
    assert {name: schemas[name]["properties"][field].get("description") for name, field in described.items()} == {
        "WorkloadView": "What runs is left alone, nothing new is begun.",
        "RunView": "Why the attempt before ended.",
        "NodeView": "Name of the backend.",
    }


def test_the_socket_is_private(herd: Home) -> None:
    assert herd.paths.socket.stat().st_mode & 0o777 == 0o600
    assert herd.paths.root.stat().st_mode & 0o777 == 0o700


def test_database_upkeep(herd: Home) -> None:
    assert json.loads(herd.run("db", "status", "--json").stdout)["counts"]["workload"] == 1
    copy = herd.root / "copy.db"
    herd.run("db", "backup", str(copy))
    assert copy.stat().st_size > 0
    assert herd.run("db", "backup", str(copy), check=False).returncode == 4
    assert "forgot" in herd.run("db", "prune", "--older-than", "1d").stderr
    assert "revision" in herd.run("db", "upgrade").stderr


def test_a_changed_endpoint_is_another_swarm(herd: Home) -> None:
    for change in ("ready=first", "backend.endpoint.port=9777", "wait_endpoint_s=7"):
        done = herd.run("up", "-c", str(herd.root / "herd.yaml"), "--set", change, check=False)
        assert done.returncode == 4, change
    port = herd.view("herd")["endpoint"].rpartition(":")[2]
    herd.run("up", "-c", str(herd.root / "herd.yaml"), "--set", f"backend.endpoint.port={port}")


def test_a_dry_run_shows_no_secrets(herd: Home) -> None:
    path = herd.swarm("shy", env={"MY_TOKEN": "t0psecret", "PLAIN": "seen"})
    shown = herd.run("up", "-c", str(path), "--dry-run").stdout
    assert "seen" in shown
    assert "t0psecret" not in shown
    assert "t0psecret" not in herd.run("up", "-c", str(path), "--dry-run", "--json").stdout


def test_host_commands(herd: Home) -> None:
    assert "live tasks" in herd.run("host", "status").stdout
    assert "serves" in herd.run("host", "logs", "-n", "0").stdout
    assert f"host {herd.host_pid()} serves" in herd.run("host", "start").stderr


def test_stopping_the_host_leaves_the_swarm_running_and_the_next_adopts_it(herd: Home) -> None:
    before, pids = herd.view("herd"), {task["task"]: task["pid"] for task in herd.view("herd")["tasks"]}
    assert "3 tasks keep running" in herd.run("host", "stop").stderr
    with urllib.request.urlopen(before["endpoint"] + "/v1/models", timeout=60) as answer:
        assert answer.status == 200
    herd.run("host", "start")
    until(lambda: herd.view("herd")["phase"] == "RUNNING", "adopted")
    until(lambda: {task["task"]: task["pid"] for task in herd.view("herd")["tasks"]} == pids, "each as it was")
    assert herd.view("herd")["endpoint"] == before["endpoint"]


def test_down_leaves_nothing(herd: Home) -> None:
    assert herd.tokens()
    assert "herd is down" in herd.run("down", "herd").stderr
    assert not herd.tokens()
    assert herd.run("status").stdout.strip() == "nothing runs"
    assert "DOWN" in herd.run("status", "--all").stdout
    herd.run("up", "-c", str(herd.root / "herd.yaml"))
    herd.run("down", "--all", "--remove")
    assert not herd.paths.workload("herd").exists()
    assert herd.run("status", "herd", check=False).returncode == 3


def test_a_restored_database_and_what_is_pruned(home: Home) -> None:
    home.run("up", "-c", str(home.swarm(replicas=1)))
    copy = home.root / "copy.db"
    home.run("db", "backup", str(copy))
    assert home.run("db", "restore", str(copy), check=False).returncode == 4
    home.run("down", "herd")
    home.run("host", "stop")
    assert "the old database is" in home.run("db", "restore", str(copy)).stderr
    # The tasks of that time are gone; the supervisor makes new ones.
    until(lambda: '"RUNNING"' in home.run("status", "herd", "--json").stdout, "up again")
    home.run("down", "herd")
    assert "forgot" in home.run("db", "prune", "--older-than", "1ms").stderr
    assert home.run("status", "herd", check=False).returncode == 3


def test_down_of_what_does_not_listen(home: Home) -> None:
    stubborn = "import signal,time; [signal.signal(s, signal.SIG_IGN) for s in (15, 2)]; time.sleep(100)"
    home.run(
        "up", "-c", str(home.swarm(command=["python", "-c", stubborn], replicas=1, router="none")), "--no-wait"
    )  # fmt: skip
    until(lambda: home.task("herd", "replica/0")["pid"], "it runs")
    home.run("down", "herd")
    assert not home.tokens()


def test_ctrl_c_of_up_leaves_it_coming_up(home: Home) -> None:
    home.behave("500")  # not ready before the command is interrupted
    process = home.start("up", "-c", str(home.swarm()))
    until(lambda: home.paths.socket.exists() and home.client.is_up() and home.client.get("/workloads"), "accepted")
    process.send_signal(signal.SIGINT)
    assert process.wait(180) == 130
    process.communicate()
    home.behave("ok")
    home.run("up", "-c", str(home.root / "herd.yaml"))


def test_the_hosts_log_is_followed_into_the_next_file(home: Home) -> None:
    path = home.paths.host_log
    path.write_text("one\ntwo\n")
    following = home.start("host", "logs", "-f", "-n", "1")
    told: queue.Queue[str] = queue.Queue()

    def listen() -> None:
        for line in following.stdout or ():
            told.put(line)

    threading.Thread(target=listen, daemon=True).start()
    try:
        assert told.get(timeout=90) == "two\n"
        with path.open("a") as writer:
            assert log.turn(path, writer.fileno(), max_bytes=1)
            writer.write("three, in a new file\n")
            writer.flush()
            assert path.with_name("host.log.1").read_text() == "one\ntwo\n"
            assert told.get(timeout=90) == "three, in a new file\n"
    finally:
        following.kill()
        following.communicate()

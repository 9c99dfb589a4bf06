"""Documents are planned by the host as where they were typed: the same plans, sentences and exit codes."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from multiprocessing import forkserver
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import Home, has_ended, until

from remuda import cli
from remuda.base.errors import Conflict, HostUnreachable, InputError, TimedOut, from_json, to_json
from remuda.client import submission
from remuda.host import planner
from remuda.host.planner import Planner
from remuda.look import planning

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from multiprocessing.connection import Connection

RECIPE = Path(__file__).parents[2] / "cases" / "deployments"
WORDS = {
    "up": ("up", "herd.yaml", "-r", "3", "-s", "port=8123"),
    "run": ("run", "train.sh", "two.sh", "--backend", "local", "--env", "SEED", "--time", "90", "--", "--lr", "0.1"),
    "up a script": ("up", "train.sh", "-s", "backend=local"),
    "gang": ("gang", "run", "-n", "2", "--name", "pair", "--env", "SEED=3", "--", "true"),
    "a key that is not known": ("up", "herd.yaml", "-s", "colour=red"),
    "not YAML": ("up", "broken.yaml"),
    "no such file": ("up", "nowhere.yaml"),
    "no such script": ("run", "nowhere.sh", "--backend", "local"),
    "a variable that is not set": ("run", "train.sh", "--backend", "local", "--env", "NOT_SET"),
    "no program": ("gang", "run", "-n", "2", "--", "no-such-program"),
    "no model": ("serve", "nowhere.gguf"),
    "no recipe": ("apply", "broken.yaml"),
}


def documents(home: Home) -> None:
    home.swarm()
    (home.root / "broken.yaml").write_text("model: [x\n")
    for name in ("train.sh", "two.sh"):
        (home.root / name).write_text("#!/bin/sh\necho $SEED\n")


def said(home: Home, words: Sequence[str], *more: str) -> tuple[int, str, str]:
    """What a dry run says, without what is new each time."""
    done = home.run(*words, *more, check=False, env={"SEED": "7", "HF_TOKEN": "hush-hush"})
    uid = re.compile(r"(?<=[./])[a-z0-9]{8}(?=[./\"\n ]|$)|herd-1-\w{5}|(?<=uid\": \")[^\"]*")
    return done.returncode, uid.sub("UID", done.stdout), uid.sub("UID", done.stderr)


def test_the_same_with_a_host_and_without(home: Home) -> None:
    documents(home)
    plain = {case: said(home, _dry(words)) for case, words in WORDS.items()}
    assert not home.paths.socket.exists(), "a dry run starts no host"
    home.run("host", "start")
    for case, words in WORDS.items():
        assert said(home, _dry(words)) == plain[case], case
    assert [code for code, _, _ in plain.values()] == [0] * 4 + [2] * 5 + [0] + [2] * 2
    assert all("hush-hush" not in text for _, *texts in plain.values() for text in texts)


def _dry(words: Sequence[str]) -> Sequence[str]:
    end = words.index("--") if "--" in words else len(words)
    return (*words[:end], "--dry-run", *words[end:])


def test_a_command_with_a_host_loads_nothing_that_plans(cold_home: Home) -> None:
    documents(cold_home)
    cold_home.run("host", "start")
    for words in (WORDS["up"], WORDS["run"], WORDS["gang"], ("serve", "nowhere.gguf"), ("apply", "broken.yaml")):
        program = (
            "import sys; from remuda.cli import main; code = main(sys.argv[1:]);"
            "heavy = ('pydantic', 'remuda.plan', 'remuda.specs.reading.load'); "
            "print([name for name in sys.modules if name.startswith(heavy)])"
        )
        argv = [sys.executable, "-c", program, *_dry(words)]
        done = subprocess.run(argv, env=cold_home.env, cwd=cold_home.root, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "[]", words


def test_a_host_that_dies_between_a_plan_and_its_start(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    documents(home)
    home.run("host", "start")
    monkeypatch.setenv("REMUDA_HOME", home.env["REMUDA_HOME"])
    monkeypatch.chdir(home.root)
    planned = submission.ask("run", scripts=["train.sh"], given={"backend": "local", "name": "one"})
    home.kill_host()
    home.run("host", "start")
    assert submission.send(planned)[0]["name"] == "one"
    until(lambda: home.view("one")["phase"] == "DONE", "it has run")


def test_a_secret_is_in_its_file_and_nowhere_else(home: Home) -> None:
    documents(home)
    home.run("host", "start")
    (home.root / "tell.sh").write_text("#!/bin/sh\ntest ${#MY_TOKEN} = 11\n")
    home.run("run", "tell.sh", "--backend", "local", "--env", "MY_TOKEN", "--wait", env={"MY_TOKEN": "open-sesame"})
    holders = [path for path in home.paths.root.rglob("*") if path.is_file() and b"open-sesame" in path.read_bytes()]
    assert [path.name for path in holders] == ["MY_TOKEN"]
    assert holders[0].stat().st_mode & 0o777 == 0o600
    refused = home.run("run", "tell.sh", "--backend", "local", "--env", "MY_TOKEN", check=False)
    assert refused.returncode == 2
    assert "environment variable MY_TOKEN is not set" in refused.stderr


def test_what_a_planner_cannot_take(home: Home) -> None:
    home.run("host", "start")
    caller = {"cwd": str(home.root), "env": {"PATH": os.environ["PATH"]}}

    def refused(**body: Any) -> str:
        with pytest.raises(InputError) as caught:
            home.client.post("/plans", {"kind": "run", "caller": caller, **body})
        return str(caught.value)

    assert refused(kind="pool") == "kind: 'pool' is not planned from a document"
    assert refused(words={"colour": 1}).startswith("words: a run is not planned from that: ")
    gone = str(home.root / "gone")
    with pytest.raises(HostUnreachable, match=f"the host cannot work in {gone}: no such file or directory"):
        home.client.post("/plans", {"kind": "run", "caller": {**caller, "cwd": gone}})
    workload = asking_workload(home)
    with pytest.raises(InputError, match="is not the name of a variable"):
        home.client.post("/workloads", {**workload, "secrets": {"../../key": "x"}})


def asking_workload(home: Home) -> dict[str, Any]:
    (home.root / "train.sh").write_text("#!/bin/sh\n")
    words = {"scripts": ["train.sh"], "given": {"backend": "local", "env": ["MY_KEY"]}}
    caller = {"cwd": str(home.root), "env": {"PATH": os.environ["PATH"], "MY_KEY": ""}}
    (one,) = home.client.post("/plans", {"kind": "run", "words": words, "caller": caller})["plans"]
    return {"workload": one["workload"], "spec": one["document"]}


def hang(line: Connection, asked: Mapping[str, Any]) -> None:
    Path(asked["told"]).write_text(str(os.getpid()))
    time.sleep(600)


def leave(line: Connection, asked: Mapping[str, Any]) -> None:
    """Ends with the answer, and not what it has started, as engines may that are asked for their help."""
    told = Path(asked["told"])
    with subprocess.Popen(["sh", "-c", f"sleep 600 & echo $$ $! > {told}.new; mv {told}.new {told}; wait"]):
        until(told.exists, "both run")
        line.send_bytes(b"{}")


def die(line: Connection, asked: Mapping[str, Any]) -> None:
    os.kill(os.getpid(), 9)


def test_a_planner_that_hangs_or_dies_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HostUnreachable, match="planning ended without an answer"):
        asyncio.run(Planner("", die).plan({}))
    monkeypatch.setattr(planner, "LIMIT_S", 0.5)
    told = tmp_path / "pid"
    with pytest.raises(TimedOut, match="planning has not ended after"):
        asyncio.run(_until_told(told))


async def _until_told(told: Path) -> bytes:
    return await Planner("", hang).plan({"told": str(told)})


def answer(line: Connection, asked: Mapping[str, Any]) -> None:
    line.send_bytes(b"{}")


def answer_late(line: Connection, asked: Mapping[str, Any]) -> None:
    """When it is told to."""
    Path(asked["told"]).with_suffix(".new").write_text(str(os.getpid()))
    Path(asked["told"]).with_suffix(".new").rename(asked["told"])
    until(lambda: not Path(asked["told"]).exists(), "go on")
    line.send_bytes(b"{}")


async def test_what_a_plan_has_started_ends_with_it(tmp_path: Path) -> None:
    told = tmp_path / "pids"
    assert await Planner("", leave).plan({"told": str(told)}) == b"{}"
    shell, child = map(int, told.read_text().split())
    await asyncio.to_thread(until, lambda: has_ended(shell) and has_ended(child), "both have ended")


def kill_the_server() -> None:
    """That the processes of plans are forked from."""
    pid = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    os.kill(pid, signal.SIGKILL)
    until(lambda: has_ended(pid), "it has ended")


async def test_plans_go_on_without_the_process_that_they_are_forked_from(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    plans = Planner("", answer_late)
    assert await Planner("", answer).plan({}) == b"{}"
    kill_the_server()
    assert await Planner("", answer).plan({}) == b"{}"
    meanwhile = asyncio.create_task(plans.plan({"told": str(told)}))
    await asyncio.to_thread(until, told.exists, "it plans")
    kill_the_server()
    told.unlink()
    assert await meanwhile == b"{}"


async def test_where_no_process_can_be_started_the_command_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise BlockingIOError(11, "no more processes")

    monkeypatch.setattr(forkserver.ForkServer, "ensure_running", refuse)
    with pytest.raises(HostUnreachable, match="planning ended without an answer"):
        await Planner("", answer).plan({})


async def test_nobody_waits_long_for_plans_that_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = [tmp_path / f"pid{number}" for number in range(planner.PLACES)]
    plans = Planner("", answer_late)
    hanging = [asyncio.create_task(plans.plan({"told": str(one)})) for one in told]
    await asyncio.to_thread(until, lambda: all(one.exists() for one in told), "they hang")
    monkeypatch.setattr(planner, "PLACE_S", 0.05)
    with pytest.raises(HostUnreachable, match=f"the host plans {planner.PLACES} other documents"):
        await plans.plan({"told": ""})
    for one in told:
        one.unlink()
    assert await asyncio.gather(*hanging) == [b"{}"] * planner.PLACES
    assert await Planner("", answer).plan({}) == b"{}"


def test_a_command_plans_for_itself_what_the_host_cannot(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    documents(home)
    home.run("host", "start")
    monkeypatch.setenv("REMUDA_HOME", home.env["REMUDA_HOME"])
    monkeypatch.chdir(home.root)
    monkeypatch.setattr(submission, "caller", lambda: {"cwd": str(home.root / "seen by the command alone"), "env": {}})
    planned = submission.ask("run", scripts=["train.sh"], given={"backend": "local", "name": "one"})
    assert [one["name"] for one in planned["plans"]] == ["one"]


def complain(*_: object, **__: object) -> None:
    print("tokenizer.json is old", file=sys.stderr)
    raise InputError("no such model")


def test_what_a_planner_wrote_before_it_failed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Planner, "method", "fork")
    monkeypatch.setattr(planning, "answer", complain)
    asked = {"kind": "run", "words": {}, "dry_run": False, "write": ""}
    with pytest.raises(InputError, match="no such model") as caught:
        asyncio.run(Planner("").plan({**asked, "caller": {"cwd": str(tmp_path), "env": {}}}))
    cli._tell(from_json(to_json(caught.value)), as_json=False)
    assert capsys.readouterr().err == "tokenizer.json is old\nerror: no such model\n"


def test_a_namesake_is_another_workload(home: Home) -> None:
    """Whoever took down, or asked about, the one that it knew leaves one alone that was brought up since."""
    documents(home)
    home.run("run", "train.sh", "--backend", "local", "--wait")
    first = home.view("train")["uid"]
    home.run("run", "train.sh", "--backend", "local", "--wait")
    second = home.view("train")["uid"]
    sentence = "'train' is another workload by now"
    for method, path, body in (
        ("POST", f"/workloads/train/restart?uid={first}", None),
        ("GET", f"/workloads/train?uid={first}", None),
        ("DELETE", f"/workloads/train?uid={first}", None),
        ("POST", "/workloads/batch/down", {"names": ["train"], "uids": {"train": first}}),
    ):
        bare, _, uid = path.partition("?uid=")
        with pytest.raises(Conflict, match=sentence):
            home.client.call(method, bare, body, query={"uid": uid} if uid else None)
    assert home.client.call("POST", "/workloads/train/restart", query={"uid": second})["uid"] == second

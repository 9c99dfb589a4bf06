"""The stream of a real host, read by the program of its page and by clients that outlive it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.conftest import Home, cpu_seconds, until

from remuda.base.asker import me
from remuda.base.errors import InputError, Unavailable
from remuda.client import reconnect
from remuda.client.http import HostClient
from remuda.client.mirror import Mirror, wait
from remuda.host.feed import VIEWERS

PAGE = Path(__file__).parents[3] / "docs" / "host.md"


def program() -> str:
    """The client of the documentation."""
    fences = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (text,) = [text for text in fences if "/stream" in text]
    return str(text)


def begin(home: Home, name: str = "train") -> Path:
    """A run that ends when a file is there."""
    go = home.root / f"{name}.go"
    script = home.root / f"{name}.sh"
    script.write_text(f"#!/bin/sh\necho begun\nuntil [ -e {go} ]; do sleep 0.05; done\n")
    home.run("run", str(script), "--backend", "local")
    return go


def phases(home: Home) -> dict[str, str]:
    return {view["name"]: view["phase"] for view in home.client.get("/workloads")}


def state(mirror: Mirror, row: str = "w/train") -> object:
    return mirror.rows.get(row, {}).get("state")


def test_the_client_of_the_page_sees_a_run_come_and_end(home: Home) -> None:
    assert len(program().splitlines()) <= 20
    go = begin(home)
    argv = [sys.executable, "-c", program()]
    with subprocess.Popen(argv, env=home.env, stdout=subprocess.PIPE, text=True, cwd=home.root) as client:
        assert client.stdout is not None
        told = [client.stdout.readline()]
        while "1 running" not in told[-1]:
            told.append(client.stdout.readline())
            assert told[-1], told
        go.touch()
        told += client.stdout.readlines()
    assert client.returncode == 0
    assert told[-1] == "1 item: 1 ended\n"


def test_a_killed_host_is_nothing_to_who_looks(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnect, "start_host", lambda _: None)  # here a command does
    go = begin(home)
    mirrors = [Mirror(HostClient(home.paths)) for _ in range(20)]

    def follow(mirror: Mirror) -> None:
        for _ in mirror.changes():
            if state(mirror) == "done":
                return

    viewers = [threading.Thread(target=follow, args=(mirror,), daemon=True) for mirror in mirrors]
    for viewer in viewers:
        viewer.start()
    until(lambda: all(state(mirror) == "running" for mirror in mirrors), "all see it run")
    epochs = {mirror.id.rpartition(".")[0] for mirror in mirrors}
    home.kill_host()
    home.run("host", "start")
    go.touch()
    for viewer in viewers:
        viewer.join(120)
    fresh = Mirror(HostClient(home.paths))
    next(fresh.changes())
    assert len(epochs) == 1
    assert fresh.id.rpartition(".")[0] not in epochs
    assert [mirror.rows for mirror in mirrors] == [fresh.rows] * 20


def test_a_host_that_ends_says_so_and_long_polls_go_on_by_id(home: Home) -> None:
    begin(home).touch()
    until(lambda: home.view("train")["phase"] == "DONE", "it has ended")
    client = HostClient(home.paths)
    (first,) = client.get("/board")["frames"]
    assert (first["event"], first["data"]["rows"]["w/train"]["state"]) == ("snapshot", "done")
    assert client.get("/board", since=first["id"], wait=0.05)["frames"] == []
    lines = client.lines("/stream", topics="board,events", after=0)
    told = [next(lines) for _ in range(9)]
    assert [line for line in told if line.startswith("event")] == ["event: snapshot", "event: events"]
    story = json.loads(told[-2].removeprefix("data: "))
    assert {line["workload"] for line in story} == {"train"}
    assert story[0]["reason"] == f"brought up by {me()}"
    home.run("host", "stop")
    assert [line for line in lines if line][-2:] == [
        "event: bye", 'data: {"reason":"the host ends","again_in_s":2}',
    ]  # fmt: skip
    assert "Traceback" not in home.paths.host_log.read_text()


def test_a_topic_that_there_is_not(home: Home) -> None:
    home.run("host", "start")
    with pytest.raises(InputError, match="there is no topic 'bord'"):
        home.client.get("/stream", topics="bord")


def test_viewers_that_hang_do_not_take_all_of_the_host(home: Home) -> None:
    go = begin(home)
    hung = [HostClient(home.paths).lines("/stream") for _ in range(VIEWERS)]
    for lines in hung:
        assert [next(lines) for _ in range(4)][-1] == "event: snapshot"
    with pytest.raises(Unavailable) as caught:
        next(home.client.lines("/stream"))
    assert str(caught.value) == "64 clients follow the stream already"
    assert caught.value.hint == "end some, or ask for /board"
    told = wait(home.client, ["train"], lambda views: views[0]["phase"] == "DONE")
    assert next(told)[0]["phase"] != "DONE"
    go.touch()
    assert list(told)[-1][0]["phase"] == "DONE", "who waits looks again where nobody tells"
    hung.pop().close()  # type: ignore[attr-defined]
    until(lambda: streams(home), "there is room for another")


def streams(home: Home) -> bool:
    try:
        return bool(next(home.client.lines("/stream")))
    except Unavailable:
        return False


def test_a_command_that_waits_takes_no_time_of_a_processor(home: Home) -> None:
    go = begin(home)
    script = str(home.root / "train.sh")
    commands = [["run", script, "-n", "second", "--backend", "local", "--wait"], ["status", "second", "--watch"],
                ["status", "--watch"]]  # fmt: skip
    with ExitStack() as stack:
        waiting = []
        for argv in commands:
            waiting.append(stack.enter_context(home.start(*argv)))
            stack.callback(waiting[-1].kill)
            until(lambda: phases(home).get("second") == "RUNNING", "the second runs")
        pause = threading.Event().wait
        pause(2.0)
        before = [cpu_seconds(one.pid) for one in waiting]
        pause(3.0)
        spent = [cpu_seconds(one.pid) - since for one, since in zip(waiting, before, strict=True)]
        assert max(spent) <= 0.02, f"one looks again and again: {spent}"
        go.touch()
        assert waiting[0].wait(60) == 0
        for one in waiting[1:]:
            assert one.stdout is not None
            lines = iter(one.stdout.readline, "")
            assert next(line for line in lines if "DONE" in line), "who watches is told"

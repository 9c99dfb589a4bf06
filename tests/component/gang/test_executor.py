"""Executors with a real host: functions and files as replicas, what they come to, and how they are ended."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import Home, until

from remuda import Executor
from remuda.base.errors import Conflict, NotFound
from remuda.client import reconnect

if TYPE_CHECKING:
    from remuda.client.http import HostClient

REPLICAS = """\
import os, sys, time
from pathlib import Path


def square(base):
    rank = int(os.environ["REPLICA_RANK"])
    print("rank", rank, "of", os.environ["WORLD_SIZE"], flush=True)
    return {"rank": rank, "value": base ** rank}


def fails(at):
    if os.environ["REPLICA_RANK"] == str(at):
        sys.exit(7)
    time.sleep(600)


def waits():
    print("begun", flush=True)
    time.sleep(600)
"""
QUICK: dict[str, Any] = {"backoff_base": 0.1, "backoff_max": 0.1, "kill_grace": 3}


@pytest.fixture
def replicas(home: Home, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module that replicas can import, with a host that this process asks."""
    (home.root / "replicas.py").write_text(REPLICAS)
    monkeypatch.chdir(home.root)
    monkeypatch.syspath_prepend(home.root)
    monkeypatch.setenv("REMUDA_HOME", str(home.paths.root))
    home.run("host", "start")
    return importlib.reload(importlib.import_module("replicas"))


def test_a_function_and_its_results(home: Home, replicas: Any) -> None:
    executor = Executor.of("local", **QUICK)
    handles = executor.launch_replicas(3, replicas.square, {"base": 3})
    assert [handle.rank for handle in handles] == [0, 1, 2]
    assert len({handle.job_name for handle in handles}) == 1
    assert executor.collect(handles) == [
        {
            "rank": rank, "status": "succeeded", "exit_code": 0, "error": None, "job_name": handles[0].job_name,
            "result": {"rank": rank, "value": 3**rank},
        }
        for rank in range(3)
    ]  # fmt: skip
    assert executor.stream_logs(handles[2]) == "rank 2 of 3"
    assert [executor.poll(handle) for handle in handles] == ["succeeded"] * 3
    executor.cancel(handles[0])
    executor.cancel(handles[1])
    assert [executor.poll(handle) for handle in handles] == ["succeeded"] * 3, "what has ended stays what it was"
    assert not home.tokens()


def test_a_replica_that_fails_and_those_that_are_ended_for_it(home: Home, replicas: Any) -> None:
    executor = Executor.of("local", max_retries=1, **QUICK)
    found = executor.collect(executor.launch_replicas(3, "replicas:fails", {"at": 1}))
    assert [(one["status"], one["exit_code"]) for one in found] == [
        ("cancelled", None), ("failed", 7), ("cancelled", None)
    ]  # fmt: skip
    assert found[1]["error"] == "rank 1 failed: given up after 2 failures, the last: exit code 7"
    assert found[0]["error"].startswith("rank 0 was cancelled: rank/1: given up after 2 failures")
    assert not home.tokens()


def test_any_handle_cancels_all_and_again(home: Home, replicas: Any) -> None:
    executor = Executor.of("local", **QUICK)
    handles = executor.launch_replicas(2, "replicas:waits")
    until(lambda: [executor.poll(handle) for handle in handles] == ["running"] * 2, "both run")
    until(lambda: executor.stream_logs(handles[1]) == "begun", "it says so")
    late = executor.collect(handles, timeout=0.2)
    assert [(one["status"], one["exit_code"], one["result"]) for one in late] == [("running", None, None)] * 2
    assert late[0]["error"] == "rank 0 has not ended yet, it is running: runs"
    executor.cancel(handles[1])
    assert not home.tokens()
    assert [one["status"] for one in executor.collect(handles)] == ["cancelled"] * 2
    executor.cancel(handles[0])
    home.run("down", handles[0].job_name, "--remove")
    executor.cancel(handles[0])
    with pytest.raises(NotFound):
        executor.poll(handles[0])
    assert executor.stream_logs(handles[0]).startswith("<rank 0: no output: ")


def test_a_later_gang_of_the_name_is_another(home: Home, replicas: Any) -> None:
    executor = Executor.of("local", name="same", **QUICK)
    (old,) = executor.launch_replicas(1, "replicas:square", {"base": 2})
    executor.collect([old])
    (new,) = executor.launch_replicas(1, "replicas:waits")
    with pytest.raises(NotFound, match="the gang 'same' of this handle was removed, and another has its name"):
        executor.poll(old)
    executor.cancel(old)
    until(lambda: executor.poll(new) == "running", "it goes on, whoever cancels the old one")
    with pytest.raises(Conflict):
        executor.launch_replicas(1, "replicas:waits")
    executor.cancel(new)


def test_a_timeout_is_a_failure(home: Home, replicas: Any) -> None:
    executor = Executor.of("local", **QUICK)
    found = executor.collect(executor.launch_replicas(2, "replicas:waits", timeout=1))
    assert [one["status"] for one in found] == ["failed", "failed"]
    assert found[0]["error"].startswith("rank 0 failed: its time is over")


def test_one_look_for_all_ranks(home: Home, replicas: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = Executor.of("local", **QUICK)
    handles = executor.launch_replicas(4, "replicas:square", {"base": 2})
    executor.collect(handles)
    asked: list[str] = []
    plain = reconnect.get

    def counted(client: HostClient, path: str) -> Any:
        asked.append(path)
        return plain(client, path)

    monkeypatch.setattr(reconnect, "get", counted)
    monkeypatch.setattr(Executor, "stream_logs", lambda *_: "")
    executor.collect(handles)
    assert len(asked) == 1

"""Processes are found by their mark, and exactly those are ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from remuda.backends.local import strays
from remuda.backends.local.processes import kill_token, signal_process, tokens_by_pid
from remuda.base.ids import new_suffix
from remuda.wire.process import identify, is_alive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.component.local.conftest import LocalBed


@pytest.fixture
def start() -> Iterator[Callable[[Mapping[str, str]], subprocess.Popen[bytes]]]:
    running: list[subprocess.Popen[bytes]] = []

    def begin(env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        running.append(subprocess.Popen(["sleep", "600"], env={"PATH": os.environ["PATH"], **env}))
        deadline = time.monotonic() + 90
        while b"sleep" not in _command(running[-1].pid):
            assert time.monotonic() < deadline
        return running[-1]

    yield begin
    for process in running:
        process.kill()
        process.wait()


def _command(pid: int) -> bytes:
    with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
        return file.read()


@pytest.mark.parametrize(
    "before",
    [
        {},
        {"A": "1"},
        {"NOT_REMUDA_TOKEN": "other"},
        {"A": "REMUDA_TOKEN=other"},
        {"REMUDA_TOKENS": "other"},
    ],
)
def test_the_mark_is_found_whatever_else_is_there(
    start: Callable[[Mapping[str, str]], subprocess.Popen[bytes]], before: dict[str, str]
) -> None:
    token = f"w.script.0.1.{new_suffix(8)}"
    marked = start({**before, "REMUDA_TOKEN": token, "Z": "9"})
    plain = start(before)
    found = tokens_by_pid()
    assert found[marked.pid] == token
    assert plain.pid not in found


def test_only_the_marked_are_killed(start: Callable[[Mapping[str, str]], subprocess.Popen[bytes]]) -> None:
    uid = new_suffix(8)
    mine = [start({"REMUDA_TOKEN": f"w.script.0.1.{uid}"}) for _ in range(2)]
    other = start({"REMUDA_TOKEN": f"w.script.0.11.{uid}"})
    found = tokens_by_pid()
    assert sorted(kill_token(f"w.script.0.1.{uid}", found)) == sorted(process.pid for process in mine)
    assert [process.wait(90) for process in mine] == [-9, -9]
    assert other.poll() is None
    assert kill_token("w.nobody.0.1.u", found) == []


def test_a_process_is_signalled_only_as_itself(
    start: Callable[[Mapping[str, str]], subprocess.Popen[bytes]],
) -> None:
    process = start({})
    identity = identify(process.pid)
    assert is_alive(identity)
    for wrong in (replace(identity, start="1"), replace(identity, boot="x"), replace(identity, start="")):
        assert signal_process(wrong, signal.SIGKILL) is False
    assert process.poll() is None
    assert signal_process(identity, signal.SIGTERM) is True
    assert process.wait(90) == -signal.SIGTERM
    assert signal_process(identity, signal.SIGKILL) is False
    assert not is_alive(identity)


def test_where_the_kernel_has_no_descriptors_the_pid_does(
    start: Callable[[Mapping[str, str]], subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    process = start({})
    identity = identify(process.pid)
    assert signal_process(replace(identity, start="1"), signal.SIGKILL) is False
    assert signal_process(identity, signal.SIGTERM) is True
    assert process.wait(90) == -signal.SIGTERM


async def test_only_named_variables_of_the_hosts_environment_arrive(
    bed: LocalBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", "sesame")
    monkeypatch.setenv("REMUDA_HOME", "/nowhere")
    monkeypatch.setenv("LANG", "C.UTF-8")
    handle = await bed.start(sys.executable, "-c", "import os; print(*sorted(os.environ), 'END')", env={"MINE": "1"})
    names = set((await bed.until_text(handle, "END")).split()) - {"END"}
    inherited = {"HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "LC_ALL", "TMPDIR", "TZ", "XDG_RUNTIME_DIR"}
    said = ("PORT", "HOST", "TOKEN", "TASK", "ATTEMPT", "WORKLOAD", "RUN_DIR", "PROGRESS_FILE")
    ours = {f"REMUDA_{name}" for name in said}
    assert {"PATH", "LANG", "MINE"} <= names
    assert names - inherited - ours - {"MINE", "PYTHONUNBUFFERED", "LC_CTYPE"} == set()


async def test_what_a_task_writes_is_the_users_own(bed: LocalBed) -> None:
    handle = await bed.start("sh", "-c", "echo begun; sleep 600")
    await bed.until_text(handle, "begun")
    folder = bed.folder(handle.token)
    assert folder.stat().st_mode & 0o077 == 0
    assert (folder / "child.json").stat().st_mode & 0o777 == 0o600


def test_an_age_is_that_of_the_process_and_not_of_the_first_look_at_it() -> None:
    begun = time.time()
    with subprocess.Popen(["sleep", "60"]) as process:
        there = time.time()
        while time.time() < there + 0.2:
            time.sleep(0.01)
        try:
            # Two clocks are read one after the other, so a look during which this process stands still says too late.
            began = min(strays._began(process.pid) for _ in range(20))
            assert begun - 0.1 < began < there + 0.1
        finally:
            process.kill()
    assert strays._began(process.pid) == 0.0

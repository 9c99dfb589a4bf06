"""What is forked for the tests is like what a user starts: hosts for their tasks, commands for whoever runs them."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Home, at_once
from tests.warm import forked
from tests.warm.command import ask

from remuda.store.tables import VERSION_TABLE

SCRIPT = """#!/bin/bash
#REMUDA --backend local
env | sort
ulimit -a
umask
pwd
readlink /proc/$PPID/cwd
grep -E "^(SigBlk|SigIgn|SigCgt|Cap|NoNew|Seccomp)" /proc/self/status
ls -l /proc/self/fd | grep -c .
"""
#: A job of the user's own runs in the command: it says what surrounds it.
JOB = """
import atexit, os, random, signal, sys, threading
from remuda import SwarmJob
def told():
    yield sys.path[0], os.getcwd(), sorted(os.listdir("/proc/self/fd")), len(threading.enumerate())
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        yield stream.encoding, stream.errors, stream.line_buffering, stream.write_through, type(stream.buffer)
    yield [str(signal.getsignal(number)).split(" at ")[0] for number in sorted(signal.valid_signals())]
    yield os.getpgid(0), os.getsid(0), sys.flags, signal.pthread_sigmask(0, [])
    mine = ("SigI", "SigB", "SigC", "Cap", "NoNew", "Seccomp", "Umask")
    yield [line for line in open("/proc/self/status") if line.startswith(mine)]
    yield sorted((name, value) for name, value in os.environ.items() if not name.startswith("REMUDA_HOME"))
for one in told():
    print(one)
atexit.register(print, "at the end")
class Job(SwarmJob):
    def __init__(self, **more):
        print("not flushed", end="")
        threading.Timer(0.1, print, ["a thread ends first"]).start()
        {how}
"""
SUBMIT = (
    "job", "submit", "mine:Job", "--endpoint", "http://127.0.0.1:1", "--model", "m", "-i", "in.jsonl",
    "-o", "out.jsonl",
)  # fmt: skip


def told(home: Home) -> list[str]:
    """What a task finds, without what is another's each time."""
    script = home.root / "look.sh"
    script.write_text(SCRIPT)
    home.run("run", str(script), "--name", "look", "--wait")
    said = home.run("logs", "look").stdout.replace(str(home.root), "ROOT")
    said = re.sub(r"(?<=attempt-1-)[a-z0-9]+|(?<=_TOKEN=)\S+|(?<=_KEY=)\S+", "N", said)
    return said.splitlines()


def schema(home: Home) -> set[tuple[str, ...]]:
    """What a database is made of, with the revision that it says."""
    with closing(sqlite3.connect(home.paths.database)) as connection:
        made = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
        return {*made, *connection.execute(f"SELECT * FROM {VERSION_TABLE}")}


def test_a_forked_host_is_like_any_other(home: Home, cold_home: Home) -> None:
    assert home.cold != cold_home.cold
    assert told(home) == told(cold_home)
    assert schema(home) == schema(cold_home) != set(), "what its database was made of is not what migrations make"


def ended(process: subprocess.Popen[str], home: Home) -> list[object]:
    """How a command ended, and what it said."""
    out, err = process.communicate(timeout=300)
    # Who called the product, the interpreter or the tests, is not the product's.
    err = re.sub(r'(?s)(Traceback.*?\n).*?(  File "[^"]*/remuda/cli/__init__.py")', r"\1\2", at_once(err), count=1)
    said = re.sub(r"job out-[a-z0-9]{5}", "job out-N", (out + err).replace(str(home.root), "ROOT"))
    return [process.returncode, *said.splitlines()]


@pytest.mark.parametrize(
    "how",
    [
        "raise BaseException('of the job')", "raise SystemExit(7)", "raise SystemExit('said')",
        "raise KeyboardInterrupt", "os.kill(os.getpid(), signal.SIGTERM)", "os._exit(9)",
    ],
)  # fmt: skip
def test_a_forked_command_is_and_ends_like_any_other(home: Home, cold_home: Home, how: str) -> None:
    for one in (home, cold_home):
        (one.root / "mine.py").write_text(JOB.replace("{how}", how))
        (one.root / "in.jsonl").write_text('{"messages": "hello"}\n')
    started = [one.start(*SUBMIT) for one in (home, cold_home)]
    assert [isinstance(process, forked.Forked) for process in started] == [True, False]
    warm, cold = [ended(process, one) for process, one in zip(started, (home, cold_home), strict=True)]
    assert warm == cold


def test_a_forked_command_whose_output_nobody_takes(home: Home, cold_home: Home) -> None:
    codes = []
    for one in (home, cold_home):
        with Path("/dev/full").open("w") as full:
            process = one.start("version", stdout=full)
            codes.append((process.communicate(timeout=180)[1], process.returncode))
    assert codes[0][1] == codes[1][1] != 0
    assert "No space left on device" in codes[0][0]
    assert "No space left on device" in codes[1][0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_forked_command_that_waits_is_reached_by_signals(home: Home, number: signal.Signals) -> None:
    """Its pid is its own, and it ends while `communicate` waits; a time limit ends it as well."""
    home.run("host", "start")
    process = home.start("host", "logs", "-f")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    assert process.poll() is None
    assert process.stdout is not None
    assert process.stdout.readline(), "it follows"
    process.send_signal(number)
    process.communicate(timeout=180)
    assert process.returncode == (130 if number is signal.SIGINT else -number)
    assert not Path(f"/proc/{process.pid}").exists()
    process.kill()
    with pytest.raises(subprocess.TimeoutExpired):
        home.run("host", "logs", "-f", timeout=0.2)


def test_what_a_fork_cannot_give_is_started(home: Home) -> None:
    path = os.pathsep.join(["/none", *filter(None, [os.environ.get("PYTHONPATH")])])
    for env in ({"LD_PRELOAD": ""}, {"PYTHONPATH": path}, {"TZ": "Asia/Tokyo"}):
        process = home.start("version", env=env)
        assert not isinstance(process, forked.Forked)
        assert process.wait(180) == 0
        process.communicate()
    before = os.umask(0o027)
    try:
        process = home.start("version")
    finally:
        os.umask(before)
    assert not isinstance(process, forked.Forked)
    process.communicate(timeout=180)


def test_who_forks_may_hang_up_before_the_sender_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers at once, and whoever asked may stand still between its last byte and what it does next."""
    send = socket.send_fds
    ours, theirs = socket.socketpair()

    def answered(*given: Any) -> int:
        sent = send(*given)
        theirs.recv(1 << 16)
        theirs.sendall(b"42")
        theirs.close()
        return sent

    monkeypatch.setattr(socket, "send_fds", answered)
    with ours:
        ask(ours, {"cwd": "/"}, [0])
        assert ours.recv(20) == b"42"


def test_a_request_may_be_larger_than_what_fits_at_once() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        request = {"env": "x" * 1_000_000}
        reader = threading.Thread(target=lambda: got.append(theirs.makefile("rb").readline()))
        got: list[bytes] = []
        reader.start()
        ask(ours, request, [0])
        reader.join()
        assert json.loads(got[0]) == request

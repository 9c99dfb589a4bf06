"""A real host whose report port everybody may reach: strangers take nothing from it, and no node speaks for another."""

from __future__ import annotations

import json
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from tests.conftest import PYTHON, Home, until

from remuda.wire.report import KEY_FILE, Key, Report

DESCRIPTORS = 400


@pytest.fixture(scope="module")
def herd(shared_home: Home) -> Home:
    """A host that may open few files, with a replica that it watches."""
    few = f"import os, resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({DESCRIPTORS},) * 2)"
    start = f"{few}; os.execv({PYTHON!r}, [{PYTHON!r}, '-m', 'remuda', 'host', 'start'])"
    subprocess.run(
        [PYTHON, "-c", start], env=shared_home.env, cwd=shared_home.root, check=True, capture_output=True, timeout=180
    )
    shared_home.run("up", "-c", str(shared_home.swarm(router="none", replicas=1)))
    return shared_home


def where(home: Home) -> tuple[str, int]:
    told = json.loads(home.paths.host_file.read_text())
    return told["report_host"], told["report_port"]


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def memory(pid: int) -> int:
    """Resident KiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


def holds(path: Path, text: str) -> bool:
    """Whether a file has it; those that are written anew meanwhile come and go."""
    try:
        return path.is_file() and text in path.read_text("latin1")
    except FileNotFoundError:
        return False


def own_run_dir(home: Home, task: str) -> tuple[Path, str]:
    """Directory and token of a task's allocation."""
    found = max(home.paths.workloads.glob(f"herd/{task}/attempt-*/{KEY_FILE}"), key=lambda path: path.stat().st_mtime)
    return found.parent, json.loads((found.parent / "child.json").read_text())["token"]


def test_1400_idle_connections_keep_no_node_out_and_nothing_from_being_done(herd: Home) -> None:
    pid, address = herd.host_pid(), where(herd)
    said = herd.paths.host_log.stat().st_size
    idle = [socket.create_connection(address, timeout=60) for _ in range(700)]
    before = herd.client.get("/host")["reports"]["reports"]
    idle += [socket.create_connection(address, timeout=60) for _ in range(700)]
    until(lambda: herd.client.get("/host")["reports"]["refused"] >= 1400 - 64, "the oldest are sent away")
    until(lambda: open_files(pid) < DESCRIPTORS // 2, "what was sent away is closed")
    herd.behave("ok")
    herd.run("restart", "herd")  # its node program comes back over a line of its own
    until(lambda: herd.client.get("/host")["reports"]["reports"] > before + 1, "a new node program is heard")
    assert herd.host_pid() == pid
    assert herd.paths.host_log.stat().st_size - said < 10_000
    for one in idle:
        one.close()


def test_one_without_a_newline_grows_nothing(herd: Home) -> None:
    pid = herd.host_pid()
    before = memory(pid)
    with socket.create_connection(where(herd), timeout=60) as endless, suppress(ConnectionError):
        for _ in range(1000):
            endless.sendall(b"x" * 65536)
    assert memory(pid) - before < 24 << 10, "much less than was said"


def test_an_allocation_speaks_for_itself_only(herd: Home) -> None:
    folder, token = own_run_dir(herd, "replica-0")
    key = (folder / KEY_FILE).read_text().strip()
    secret = herd.paths.report_secret.read_text().strip()
    assert herd.paths.report_secret.stat().st_mode & 0o777 == 0o600
    assert [path for path in herd.paths.workloads.rglob("*") if holds(path, secret)] == []
    assert [path for path in folder.iterdir() if holds(path, key)] == [folder / KEY_FILE]
    other = token.replace(".replica.0.", ".replica.1.")
    lie = Report(token=other, attempt=1, seq=10**6, at=1.0, state="exited", reason="a lie")
    with socket.create_connection(where(herd), timeout=60) as line:
        line.sendall(Key(key, token).to_json().encode() + b"\n" + lie.to_json().encode() + b"\n")
        until(lambda: herd.client.get("/host")["reports"]["foreign"] == 1, "the lie is counted")


def test_the_next_host_knows_the_same_keys(herd: Home) -> None:
    herd.kill_host()
    herd.run("host", "start")
    until(lambda: herd.client.get("/host")["reports"]["reports"] > 0, "the node program that lived on is heard")
    assert herd.client.get("/host")["reports"]["refused"] == 0

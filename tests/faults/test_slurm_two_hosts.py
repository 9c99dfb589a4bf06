"""Two login nodes with one home: one host acts, the other says which, and takes over when it is gone."""

from __future__ import annotations

import re
import signal
import socket
import sqlite3
import subprocess
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.conftest import PYTHON, Home, at_once, until
from tests.faults.slurm_runs import Runs

from remuda.base.errors import HostUnreachable

if TYPE_CHECKING:
    from remuda.testing.slurm import SlurmBed

CPU = ("--partitions", "cpu")
LEASE_S = 12.0
#: A host whose lease lasts shorter than the product's, so that the tests need not wait as long.
HOST = f"""
import sys
from remuda.host import server
server.LEASE_TTL_S, server.RENEW_EVERY_S = {LEASE_S}, 1.0
sys.exit(server.main())
"""


class Machine:
    """A login node: a host name and a view of the file system of its own, and the home that it shares with others.

    A unix socket in a shared home is seen by every machine, and reached on the one that listens. Here the kernel is
    the same, so on this machine the file is covered by one at which nobody listens.
    """

    def __init__(self, runs: Runs, name: str, *, covered: bool) -> None:
        self.runs, self.name = runs, name
        stale = runs.home.root / f"{name}.sock"
        one = socket.socket(socket.AF_UNIX)
        one.bind(str(stale))
        one.close()
        cover = f'mount --bind "{stale}" "{runs.home.paths.socket}" && ' if covered else ""
        self.enter = ["unshare", "--uts", "--mount", "sh", "-c", f'hostname {name} && {cover}exec "$@"', "sh"]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A user's command there."""
        done = subprocess.run(
            [*self.enter, PYTHON, "-m", "remuda", *arguments],
            env=self.runs.home.env, cwd=self.runs.home.root, capture_output=True, text=True, timeout=240, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        done.stderr = at_once(done.stderr)
        return done

    def host(self) -> subprocess.Popen[bytes]:
        """A host there that answers."""
        home = self.runs.home
        with home.paths.host_log.open("ab") as log:
            process = subprocess.Popen(
                [*self.enter, PYTHON, "-c", HOST], env=home.env, cwd=home.root, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log,
            )  # fmt: skip
        until(lambda: process.poll() is not None or self.answers(), f"a host on {self.name}")
        assert process.poll() is None, home.log()
        return process

    def answers(self) -> bool:
        """Whether the host that listens on the home's socket is this machine's."""
        try:
            return bool(self.runs.home.client.get("/host")["node"] == self.name)
        except HostUnreachable:
            return False


@pytest.fixture
def runs(home: Home, slurm: SlurmBed) -> Runs:
    can = subprocess.run(
        ["unshare", "--uts", "--mount", "sh", "-c", "hostname login9"], capture_output=True, check=False
    )
    if can.returncode != 0:
        pytest.fail("a host name of its own needs the capability CAP_SYS_ADMIN")
    return Runs(home, slurm)


def mine(runs: Runs) -> list[tuple[str, str, str]]:
    return [job for job in runs.jobs() if job[1].startswith("train.")]


def end(process: subprocess.Popen[bytes], number: int = signal.SIGKILL) -> None:
    process.send_signal(number)
    process.wait(180)


def frozen(runs: Runs, host: subprocess.Popen[bytes]) -> bool:
    """Let the host stand still, unless it holds the database just now: nobody else could write then."""
    host.send_signal(signal.SIGSTOP)
    with closing(sqlite3.connect(runs.home.paths.database, timeout=1)) as database:
        try:
            database.execute("begin immediate")
        except sqlite3.OperationalError:
            host.send_signal(signal.SIGCONT)
            return False
        database.rollback()
    return True


def test_while_one_lives_the_other_only_says_where(runs: Runs) -> None:
    first = Machine(runs, "login1", covered=False)
    host = first.host()
    runs.begin(*CPU)
    runs.wait_running()
    second = Machine(runs, "login2", covered=True)
    expected = f"the host of {runs.home.paths.root} runs as pid {host.pid} on login1"
    for arguments in (("list",), ("run", str(runs.script()), "--name", "train", *CPU), ("host", "start")):
        done = second.run(*arguments)
        assert done.returncode != 0
        said = done.stderr.splitlines()
        assert expected in said[0], done.stderr
        assert "Traceback" not in done.stderr
    told = second.run("host", "start", "--foreground")
    assert expected in told.stderr
    # Nothing of it reached the run, and the host that has the lease is the same.
    assert first.answers()
    assert len(mine(runs)) == len(runs.starts()) == 1
    assert runs.home.client.get("/host")["fence"] == 1
    runs.home.run("stop", "train")
    assert not runs.jobs()
    end(host, signal.SIGTERM)


def test_a_machine_that_dies_is_followed_by_the_other(runs: Runs) -> None:
    """Its socket, its pid and its lease are left as they were; the lease expires, and the run has one job for ever."""
    first = Machine(runs, "login1", covered=False)
    host = first.host()
    runs.begin(*CPU)
    runs.wait_running()
    job = runs.job_id()
    end(host)
    assert runs.home.paths.socket.exists()
    assert runs.home.paths.host_file.exists()
    second = Machine(runs, "login2", covered=False)
    until(lambda: second.run("list").returncode == 0, "a command on the second machine is served")
    assert second.answers()
    assert runs.home.client.get("/host")["fence"] == 2
    steps = len(runs.lines("steps"))
    runs.wait(lambda: runs.phase() == "RUNNING" and len(runs.lines("steps")) > steps, "the run goes on")
    assert runs.job_id() == job
    assert [name for name, *_ in mine(runs)] == [job]
    runs.enough()
    runs.wait_done()
    assert [start[1] for start in runs.starts()] == [job]


def test_a_machine_that_comes_back_has_lost(runs: Runs) -> None:
    """Frozen for longer than its lease lasts; what it was about to do when it goes on is not done."""
    first = Machine(runs, "login1", covered=False)
    host = first.host()
    runs.begin(*CPU)
    runs.wait_running()
    until(lambda: frozen(runs, host), "frozen between two writes")
    # Nobody can reach it there, and its socket is none of the second machine's.
    second = Machine(runs, "login2", covered=False)
    taken = runs.home.paths.socket.rename(runs.home.root / "of-login1.sock")
    assert taken.exists()
    until(lambda: second.run("list").returncode == 0, "a command on the second machine is served")
    runs.home.run("restart", "train")
    runs.wait_running(attempt=2)
    host.send_signal(signal.SIGCONT)
    assert host.wait(180) != 0
    # It may see the new lease or the new socket first.
    assert re.search(r"is in force now|another host took over|this host is unreachable", runs.home.log())
    assert second.answers()
    runs.wait(lambda: len(mine(runs)) == 1, "one job is left")
    assert [start[0] for start in runs.starts()] == ["1", "2"]
    runs.home.run("stop", "train")
    assert not runs.jobs()

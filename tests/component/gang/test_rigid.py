"""Rigid gangs as typed, with a real host and real processes: whatever happens to one rank, all begin again together."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import PYTHON, Home, until
from tests.faults.dying_hosts import DyingHosts

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

#: Says when it began and ended, and whom it meets. `done-RANK` lets it end with 0 once, `crash-RANK` with 3. While it
#: runs it touches `alive-ATTEMPT-RANK`, which says when it began to.
TRAIN = """\
import os, signal, sys, time
from pathlib import Path
env = os.environ
rank, attempt = env["RANK"], env["REMUDA_ATTEMPT"]
meeting = Path(env["REMUDA_RENDEZVOUS"].removeprefix("file://"))
def say(*words):
    with (meeting / "story").open("a") as story:
        story.write(" ".join((attempt, rank, *words)) + "\\n")
def end(code, *words):
    say(*words)
    os._exit(code)
signal.signal(signal.SIGTERM, lambda *_: end(1, "told"))
alive = meeting / f"alive-{attempt}-{rank}"
alive.write_text(str(time.time_ns()))
say("began", env["WORLD_SIZE"], env["LOCAL_RANK"], env["MASTER_ADDR"], env["MASTER_PORT"], str(os.getpid()))
while not (meeting / "go").exists():
    for name, code in (("done", 0), ("crash", 3)):
        if (meeting / f"{name}-{rank}-{attempt}").exists():
            end(code, name)
    if (meeting / f"step-{rank}").exists():
        (meeting / f"step-{rank}").unlink()
        os.system("remuda-progress 5/10")
    alive.touch()
    time.sleep(0.02)
end(0, "done")
"""
QUICK = ("-s", "backoff_base=0.1", "-s", "backoff_max=0.1", "-s", "kill_grace=5")


class Gang:
    """Three ranks of one gang."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.meeting = home.paths.workload("train") / "rendezvous"

    def begin(self, *flags: str, check: bool = True) -> Any:
        words = ("gang", "run", "-n", "3", "--mode", "rigid", *QUICK, *flags, "--", PYTHON, "train.py")
        return self.home.run(*words, check=check)

    def said(self, word: str) -> list[list[str]]:
        """Attempt, rank and more of each line of that word."""
        path: Path = self.meeting / "story"
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [[attempt, rank, *more] for attempt, rank, what, *more in lines if what == word]

    def until_up(self, attempt: int) -> list[int]:
        """Wait until all ranks of an attempt run and are seen to; their pids."""
        until(lambda: len(self.of(attempt)) == 3 and self.home.view("train")["ready"] == 3, f"attempt {attempt} runs")
        return [int(line[-1]) for line in self.of(attempt)]

    def of(self, attempt: int) -> list[list[str]]:
        return sorted(line for line in self.said("began") if line[0] == str(attempt))

    def tell(self, *names: str) -> None:
        for name in names:
            (self.meeting / name).touch()

    def tasks(self, what: str) -> list[Any]:
        return [task[what] for task in self.home.view("train")["tasks"]]

    def let_go(self) -> None:
        self.tell("go")
        until(lambda: self.home.view("train")["phase"] == "DONE", "all are done")
        assert not self.home.tokens()
        self.check_turns()

    def check_turns(self) -> None:
        """No rank of an attempt wrote or said anything once one of the next had begun."""
        marks = [(int(path.name.split("-")[1]), path) for path in self.meeting.glob("alive-*")]
        for last in range(1, max(attempt for attempt, _ in marks)):
            begun = min(int(path.read_text()) for attempt, path in marks if attempt > last)
            late = [path.name for attempt, path in marks if attempt == last and path.stat().st_mtime_ns > begun]
            assert not late, f"{late} wrote beside the next attempt"
        turns = [int(line.split()[0]) for line in (self.meeting / "story").read_text().splitlines()]
        assert turns == sorted(turns)


def are_gone(pids: Iterable[int]) -> bool:
    return not any(os.path.exists(f"/proc/{pid}") for pid in pids)  # noqa: PTH110 - beside other names of processes


@pytest.fixture
def gang(home: Home) -> Gang:
    (home.root / "train.py").write_text(TRAIN)
    return Gang(home)


def test_a_rank_that_is_killed_costs_one_failure_and_all_begin_again(gang: Gang) -> None:
    gang.begin()
    pids = gang.until_up(1)
    met = {tuple(line[2:-1]) for line in gang.of(1)}
    assert {(size, local, where) for size, local, where, _ in met} == {("3", str(n), "127.0.0.1") for n in range(3)}
    os.kill(pids[1], signal.SIGKILL)
    gang.until_up(2)
    assert are_gone(pids)
    assert sorted(gang.said("told")) == [["1", "0"], ["1", "2"]]
    assert (gang.tasks("attempt"), gang.tasks("failures")) == ([2, 2, 2], [1, 1, 1])
    gang.tell("step-0")
    until(lambda: gang.tasks("failures") == [0, 0, 0], "who gets farther than ever heals all")
    ports = [{line[-2] for line in gang.of(attempt)} for attempt in (1, 2)]
    assert [len(port) for port in ports] == [1, 1]
    assert ports[0] != ports[1], "each attempt meets at another port"
    told = gang.home.run("explain", "train").stdout
    assert "ended with rank/1: killed by signal 9" in told
    assert "cause: group" in told
    gang.let_go()


def test_a_rank_that_fails_after_another_is_done(gang: Gang) -> None:
    gang.begin()
    gang.until_up(1)
    gang.tell("done-0-1")
    until(lambda: gang.home.task("train", "rank/0")["phase"] == "done", "one is done")
    assert len(gang.said("began")) == 3
    gang.tell("crash-2-1")
    gang.until_up(2)
    assert gang.tasks("failures") == [1, 1, 1]
    gang.let_go()
    assert len(gang.said("began")) == 6


def test_a_host_that_is_killed_in_between(gang: Gang) -> None:
    gang.begin()
    pids = gang.until_up(1)
    os.kill(pids[0], signal.SIGKILL)
    gang.home.kill_host()
    os.kill(pids[1], signal.SIGKILL)
    gang.home.run("host", "start")
    gang.until_up(2)
    assert are_gone(pids)
    assert gang.tasks("failures") == [1, 1, 1], "two that ended of one attempt are one failure"
    gang.let_go()
    assert len(gang.said("began")) == 6


@pytest.mark.parametrize("step", ["before start", "after start"])
def test_a_host_that_is_killed_while_it_starts_them(gang: Gang, step: str) -> None:
    hosts = DyingHosts(gang.home, "local")
    try:
        hosts.run(step)
        gang.begin(check=False)
        until(hosts.is_dead, "the host is killed")
        assert hosts.death() == step
        gang.home.run("status", "train")  # starts the next host
        gang.until_up(1)
        gang.let_go()
        assert len(gang.said("began")) == 3, "no rank was lost or started twice"
    finally:
        hosts.close()


def test_tries_are_those_of_all(gang: Gang) -> None:
    done = gang.begin("-s", "max_retries=1", "--dry-run")
    assert "MASTER_ADDR=127.0.0.1" in done.stdout
    gang.begin("-s", "max_retries=1")
    gang.until_up(1)
    gang.tell("crash-0-1")
    gang.until_up(2)
    gang.tell("crash-1-2")
    until(lambda: gang.home.view("train")["phase"] == "FAILED", "it is given up")
    assert "rank/1: given up after 2 failures, the last: exit code 3" in gang.home.run("explain", "train").stdout
    until(lambda: not gang.home.tokens(), "nothing is left")
    assert len(gang.said("began")) == 6
    gang.home.run("restart", "train")
    gang.until_up(3)
    gang.let_go()


def test_a_restart_uses_up_nothing(gang: Gang) -> None:
    gang.begin()
    gang.until_up(1)
    gang.home.run("restart", "train")
    gang.until_up(2)
    assert gang.tasks("failures") == [0, 0, 0]
    gang.home.run("down", "train")
    assert not gang.home.tokens()

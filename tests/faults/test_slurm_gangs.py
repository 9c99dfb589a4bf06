"""Rigid gangs as one job of the real Slurm, over two nodes: whatever ends, all begin again, and it is one failure."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.component.gang.test_rigid import QUICK, TRAIN, Gang
from tests.conftest import PYTHON, Home, until
from tests.faults.dying_hosts import DyingHosts

if TYPE_CHECKING:
    from remuda.testing.slurm import SlurmBed


class SlurmGang(Gang):
    """Three ranks in one job of two nodes, of which the first has two."""

    def __init__(self, home: Home, slurm: SlurmBed) -> None:
        super().__init__(home)
        self.slurm = slurm

    def begin(self, *flags: str, check: bool = True) -> Any:
        words = ("gang", "run", "-n", "3", "--mode", "rigid", "--backend", "slurm", "-p", "cpu", *QUICK,
                 "-s", "ranks_per_node=2", *flags, "--", PYTHON, "train.py")  # fmt: skip
        return self.home.run(*words, check=check)

    def jobs(self) -> list[list[str]]:
        """Id, nodes and name of each job that has not ended."""
        return [line.split() for line in self.slurm.run("squeue", "-h", "-o", "%A %D %j").stdout.splitlines()]

    def let_go(self) -> None:
        self.tell("go")
        until(lambda: self.home.view("train")["phase"] == "DONE", "all are done")
        until(lambda: not self.home.tokens(), "its crew has ended, too")
        self.check_turns()

    def resumed(self, node: str) -> bool:
        """Whether a node that was down takes jobs again."""
        self.slurm.resume(node)
        return self.slurm.run("sinfo", "-h", "-n", node, "-o", "%T").stdout.split()[0] in ("idle", "allocated", "mixed")

    def pid_of(self, what: str, rank: int = 0) -> int:
        """Pid of a rank's script, of its node program, or of a crew, seen from this machine."""
        for pid in self.home.tokens():
            env, words = read_proc(pid, "environ"), read_proc(pid, "cmdline")
            is_rank = f"RANK={rank}" in env and f"REPLICA_RANK={rank}" in env
            if what == "rank" and is_rank and words[-1:] == ["train.py"]:
                return pid
            if what in ("crew", "seats") and words[-2:-1] == [what]:
                return pid
            if what == "child" and words[-2:-1] == ["child"] and f"/rank-{rank}/" in words[-1]:
                return pid
        raise AssertionError(f"there is no {what} {rank}")

    def until_up(self, attempt: int) -> list[int]:
        try:
            return super().until_up(attempt)
        except AssertionError as error:
            logs = [
                *self.home.paths.workloads.glob("train/*/*/node.log"),
                *self.home.paths.workloads.glob("train/*/*/exit.json"),
            ]
            said = "\n".join(f"{path}: {path.read_text()[-1500:]}" for path in sorted(logs))
            raise AssertionError(f"{error}\n{self.home.run('explain', 'train', check=False).stdout}\n{said}") from None


def read_proc(pid: int, name: str) -> list[str]:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return []


@pytest.fixture
def gang(home: Home, slurm: SlurmBed) -> SlurmGang:
    home.env |= {**slurm.env(), "REMUDA_SLURM_POLL_S": "0.5"}
    (home.root / "train.py").write_text(TRAIN)
    return SlurmGang(home, slurm)


def test_from_start_to_end(gang: SlurmGang) -> None:
    shown = gang.begin("--dry-run").stdout
    assert shown.count("sbatch ") == 1
    assert "--nodes=2" in shown
    gang.begin()
    gang.until_up(1)
    ((job, nodes, name),) = gang.jobs()
    assert (nodes, name.startswith("train.pack.0.1.")) == ("2", True)
    assert sorted(line[1:4] for line in gang.of(1)) == [["0", "3", "0"], ["1", "3", "1"], ["2", "3", "0"]]
    assert len({tuple(line[4:6]) for line in gang.of(1)}) == 1, "they meet at one address and port"
    tasks = gang.home.view("train")["tasks"]
    assert {task["native"] for task in tasks} == {job}
    assert [tasks[0]["node"] == one["node"] for one in tasks] == [True, True, False]
    assert gang.home.run("logs", "train", "--rank", "2").stdout == ""
    assert "is wanted" in gang.home.run("doctor", check=False).stdout
    gang.home.run("restart", "train")
    gang.until_up(2)
    assert gang.tasks("failures") == [0, 0, 0]
    assert [line for line in gang.said("told") if line[0] == "1"], "they were asked to end, and could save"
    gang.let_go()
    until(lambda: not gang.jobs(), "the job has ended")


@pytest.mark.parametrize("what", ["rank", "child", "seats", "crew"])
def test_whatever_is_killed_it_is_one_failure(gang: SlurmGang, what: str) -> None:
    gang.begin()
    gang.until_up(1)
    os.kill(gang.pid_of(what, 1), signal.SIGKILL)
    gang.until_up(2)
    assert (gang.tasks("attempt"), gang.tasks("failures")) == ([2, 2, 2], [1, 1, 1])
    assert len(gang.jobs()) == 1
    if what in ("rank", "child"):
        assert "ended with rank/1: " in gang.home.run("explain", "train").stdout
    gang.let_go()
    assert len(gang.said("began")) == 6


def test_a_rank_that_fails_after_another_is_done(gang: SlurmGang) -> None:
    gang.begin()
    gang.until_up(1)
    gang.tell("done-0-1")
    until(lambda: gang.home.task("train", "rank/0")["phase"] == "done", "one is done")
    gang.tell("crash-2-1")
    gang.until_up(2)
    assert gang.tasks("failures") == [1, 1, 1]
    gang.let_go()


@pytest.mark.parametrize("rank", [0, 2])
def test_a_node_that_crashes(gang: SlurmGang, rank: int) -> None:
    gang.begin()
    gang.until_up(1)
    lost = gang.home.task("train", f"rank/{rank}")["node"]
    gang.slurm.crash(lost)
    gang.slurm.run("scontrol", "update", f"nodename={lost}", "state=down", "reason=crashed")
    until(lambda: gang.tasks("attempt") == [2, 2, 2], "all wait for two nodes", 120)
    gang.slurm.start(lost)
    until(lambda: gang.resumed(lost) and gang.home.view("train")["ready"] == 3, "the node is back, and all run", 120)
    gang.until_up(2)
    assert gang.tasks("failures") == [1, 1, 1]
    assert gang.home.run("nodes", "history", lost, "--backend", "slurm").stdout.count("node-failed") == 1
    gang.let_go()


def test_a_node_that_is_not_banned_any_more_is_the_pending_jobs_at_once(gang: SlurmGang) -> None:
    gang.home.run("nodes", "ban", "a100-1", "--backend", "slurm")
    for node in ("l40s-1", "l40s-2"):
        gang.slurm.run("sbatch", "-o", "/dev/null", "-p", "gpu-l40s", "-w", node, "--exclusive", "--wrap", "sleep 3600")
    until(lambda: gang.slurm.run("squeue", "-h", "-t", "R", "-o", "%N").stdout.count("l40s-") == 2, "they are taken")
    gang.begin("-s", "partitions=spot")
    until(lambda: gang.tasks("phase") == ["pending"] * 3, "it waits for a second node")
    (job,) = [job for job, _, name in gang.jobs() if ".pack." in name]
    gang.home.run("nodes", "unban", "a100-1", "--backend", "slurm")
    gang.until_up(1)
    assert {task["native"] for task in gang.home.view("train")["tasks"]} == {job}, "it has kept its turn"
    gang.let_go()


def test_a_person_who_cancels_its_job_ends_it(gang: SlurmGang) -> None:
    gang.begin()
    gang.until_up(1)
    ((job, _, _),) = gang.jobs()
    gang.slurm.run("scancel", job)
    until(lambda: set(gang.tasks("phase")) == {"stopped"}, "it is over")
    until(lambda: not gang.home.tokens(), "nothing is left")


def test_down_leaves_nothing(gang: SlurmGang) -> None:
    gang.begin()
    gang.until_up(1)
    gang.home.run("down", "train")
    assert not gang.jobs()
    assert not gang.home.tokens()
    assert sorted(line[1] for line in gang.said("told")) == ["0", "1", "2"]


def test_a_gang_that_no_partition_has_room_for(gang: SlurmGang) -> None:
    done = gang.begin("-s", "ranks_per_node=1", "-n", "99", check=False)
    assert done.returncode == 2
    assert "no partition fits" in done.stderr


@pytest.mark.parametrize("step", ["before submit", "after submit"])
def test_a_host_that_is_killed_while_it_submits(gang: SlurmGang, step: str) -> None:
    hosts = DyingHosts(gang.home)
    try:
        hosts.run(step)
        gang.begin(check=False)
        until(hosts.is_dead, "the host is killed")
        assert hosts.death() == step
        gang.home.run("status", "train")  # starts the next host
        gang.until_up(1)
        assert len(gang.jobs()) == 1
        gang.let_go()
        assert len(gang.said("began")) == 3, "no rank was lost or started twice"
    finally:
        hosts.close()

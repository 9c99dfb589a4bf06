"""Elastic gangs, each rank a job of the real Slurm: a lost one returns alone, and two gangs do not stop each other."""

from __future__ import annotations

import json
import os
import re
import signal
from typing import TYPE_CHECKING, Any

import pytest
from tests.component.gang.test_executor import REPLICAS
from tests.conftest import PYTHON, Home, until
from tests.faults.dying_hosts import DyingHosts
from tests.faults.test_slurm_gangs import SlurmGang

from remuda import Executor

if TYPE_CHECKING:
    from remuda.testing.slurm import SlurmBed

#: Trains three rounds of 20 steps with the others. In the midst of the second the first attempt of rank 1 waits until
#: it may go on, and so the others wait for it in their round.
TRAIN = """\
import hashlib, os, time
from pathlib import Path

import numpy as np
from remuda.gang import DiLoCo, ObjectStoreAllReduce

store = ObjectStoreAllReduce()
rng = np.random.default_rng(store.rank)
model = {"weight": np.zeros(50, np.float32)}
with DiLoCo(model, None, store, sync_every=20) as diloco:
    print("begins at", diloco.steps, flush=True)
    while diloco.steps < 60:
        if diloco.steps == 30:
            with Path("half").open("a") as half:
                half.write(f"{store.rank} {os.environ['REMUDA_ATTEMPT']}\\n")
            while (store.rank, os.environ["REMUDA_ATTEMPT"]) == (1, "1") and not Path("go").exists():
                time.sleep(0.05)
        model["weight"] -= 0.05 * rng.standard_normal(50, np.float32)
        diloco.step()
print("ends with", hashlib.sha256(model["weight"].tobytes()).hexdigest()[:16], flush=True)
"""
#: Ends well once it has seen all three at one time. Rank 0 ends with 0 when it is asked to end, too.
MEET = """\
import os, signal, time
from pathlib import Path
if os.environ["RANK"] == "0":
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
meeting = Path(os.environ["REMUDA_RENDEZVOUS"].removeprefix("file://"))
mine = meeting / f"here-{os.environ['RANK']}"
end = 0.0
while not end or time.time() < end:
    mine.touch()
    here = [path for path in meeting.glob("here-*") if time.time() - path.stat().st_mtime < 2]
    if len(here) == 3 and not end:
        end = time.time() + 4
    time.sleep(0.1)
"""
QUICK = ("-s", "backoff_base=0.1", "-s", "backoff_max=0.1", "-s", "kill_grace=5", "-s", "gpu_check=false")


class Elastic:
    """Gangs of one home, whose ranks are jobs."""

    def __init__(self, home: Home, slurm: SlurmBed) -> None:
        self.home, self.slurm = home, slurm

    def begin(self, ranks: int, *flags: str, script: str = "train.py", check: bool = True) -> Any:
        words = ("gang", "run", "-n", str(ranks), "--backend", "slurm", *QUICK, *flags, "--", PYTHON, script)
        return self.home.run(*words, check=check)

    def jobs(self) -> list[list[str]]:
        """Id, state, name and reason of each job that has not ended."""
        return [
            line.split(None, 3) for line in self.slurm.run("squeue", "-hr", "-o", "%i %T %j %r").stdout.splitlines()
        ]

    def running(self, name: str) -> int:
        return sum(state == "RUNNING" for _, state, job, _ in self.jobs() if job.startswith(f"{name}.rank."))

    def queued(self, name: str) -> list[str]:
        """Ids of jobs of a gang that nothing but a free place is missing for."""
        mine = [job for job in self.jobs() if job[2].startswith(f"{name}.rank.")]
        return sorted(job for job, state, _, reason in mine if state == "PENDING" and "Held" not in reason)

    def halves(self) -> list[str]:
        """Rank and attempt of those that came to the half."""
        path = self.home.root / "half"
        return path.read_text().splitlines() if path.exists() else []

    def until_half(self, ranks: int) -> None:
        """Wait until all ranks have come to the half, and are seen to."""
        until(
            lambda: len(self.halves()) == ranks == self.home.view("train")["ready"], "all have trained the first round"
        )

    def tasks(self, what: str) -> list[Any]:
        return [task[what] for task in self.home.view("train")["tasks"]]

    def until_done(self, ranks: int) -> list[str]:
        """Wait until all have trained the same; where the last attempt of each rank began."""
        until(lambda: self.home.view("train")["phase"] == "DONE", "all are done")
        said = [self.home.run("logs", "train", "--rank", str(rank)).stdout for rank in range(ranks)]
        ends = [re.findall("ends with (.*)", text) for text in said]
        assert [len(one) for one in ends] == [1] * ranks, said
        assert len({one[0] for one in ends}) == 1, "all hold the same bytes"
        assert json.loads(self.home.run("gang", "rounds", "train", "--json").stdout)["committed"] == 3
        until(lambda: not self.home.tokens() and not self.jobs(), "nothing is left")
        return [" ".join(re.findall("begins at (.*)", text)) for text in said]


@pytest.fixture
def gang(home: Home, slurm: SlurmBed) -> Elastic:
    home.env |= {**slurm.env(), "REMUDA_SLURM_POLL_S": "0.5"}
    (home.root / "train.py").write_text(TRAIN)
    (home.root / "meet.py").write_text(MEET)
    return Elastic(home, slurm)


def test_a_rank_that_is_killed_returns_alone(gang: Elastic) -> None:
    shown = gang.begin(3, "-p", "cpu", "--dry-run").stdout
    assert shown.count("sbatch ") == 1
    assert "--array=0-2" in shown
    gang.begin(3, "-p", "cpu", "-s", "cpus_per_task=2")
    gang.until_half(3)
    jobs = gang.jobs()
    assert sorted(job.partition("_")[2] for job, *_ in jobs) == ["0", "1", "2"]
    assert {name.rpartition(".")[0] for _, _, name, _ in jobs} == {"train.rank.a.1"}
    os.kill(SlurmGang(gang.home, gang.slurm).pid_of("rank", 1), signal.SIGKILL)
    assert gang.until_done(3) == ["0", "20", "0"], "it goes on at the last round, and the others stay"
    assert gang.tasks("attempt") == [1, 2, 1]
    assert len({native.partition("_")[0] for native in gang.tasks("native")}) == 2
    assert "killed by signal 9" in gang.home.run("explain", "train").stdout
    assert not gang.home.run("doctor").stderr


def test_a_rank_of_a_crashed_node_returns_on_another(gang: Elastic) -> None:
    gang.begin(2, "-p", "spot", "-s", "cpus_per_task=10")
    gang.until_half(2)
    stays, lost = gang.tasks("node")
    assert stays != lost
    gang.slurm.crash(lost)
    assert gang.until_done(2) == ["0", "20"]
    assert gang.tasks("attempt") == [1, 2]
    assert (gang.tasks("node")[0], gang.tasks("node")[1] in (stays, lost)) == (stays, False)


def test_a_rank_that_is_preempted_returns_alone_without_a_failure(gang: Elastic) -> None:
    gang.begin(2, "-p", "spot", "-s", "cpus_per_task=10", "-s", "max_retries=0")
    gang.until_half(2)
    stays, lost = gang.tasks("node")
    assert stays != lost
    words = ("-p", f"gpu-{lost.partition('-')[0]}", "-w", lost, "--exclusive", "-o", "/dev/null")
    gang.slurm.run("sbatch", *words, "--wrap", "sleep 4")
    until(lambda: gang.tasks("attempt") == [1, 2], "preemption ends one")
    assert gang.tasks("failures") == [0, 0]
    assert "preempt" in gang.home.run("explain", "train").stdout
    gang.slurm.run("scancel", "-n", "wrap")
    assert gang.until_done(2) == ["0", "20"]
    assert (gang.tasks("attempt"), gang.tasks("failures")) == ([1, 2], [0, 0])


def test_a_rank_whose_time_is_over_returns_alone_without_a_failure(gang: Elastic) -> None:
    gang.begin(2, "-p", "cpu", "-s", "max_retries=0")
    gang.until_half(2)
    gang.slurm.run("scontrol", "update", f"jobid={gang.tasks('native')[1]}", "endtime=now+5")
    until(lambda: gang.tasks("attempt") == [1, 2], "its time is over")
    assert "time limit" in gang.home.run("explain", "train").stdout
    assert gang.until_done(2) == ["0", "20"]
    assert (gang.tasks("attempt"), gang.tasks("failures")) == ([1, 2], [0, 0])


def test_two_that_hold_half_of_what_both_need_are_both_done(gang: Elastic) -> None:
    filler = gang.slurm.run(
        "sbatch", "--parsable", "-p", "gpu-l40s", "-N2", "--gres=gpu:2", "-o", "/dev/null", "--wrap", "sleep 600"
    )
    flags = ("-p", "gpu-l40s", "--gpus", "1", "-s", "assemble=6s")
    gang.begin(3, *flags, "--name", "one", script="meet.py")
    until(lambda: len(gang.queued("one")) == 3, "it waits")
    late = gang.queued("one")[-1]
    gang.slurm.run("scontrol", "hold", late)
    gang.begin(3, *flags, "--name", "two", script="meet.py")
    until(lambda: len(gang.queued("two")) == 3, "so does the other")
    gang.slurm.run("scancel", filler.stdout.strip())
    until(lambda: [gang.running(name) for name in ("one", "two")] == [2, 2], "each has two of three")
    gang.slurm.run("scontrol", "release", late)
    until(lambda: all(gang.home.view(name)["phase"] == "DONE" for name in ("one", "two")), "both are done")
    tasks = [task for name in ("one", "two") for task in gang.home.view(name)["tasks"]]
    assert max(task["attempt"] for task in tasks) > 1
    assert {task["failures"] for task in tasks} == {0}
    told = "".join(gang.home.run("events", name, "-n", "999").stdout for name in ("one", "two"))
    assert re.search(r"all ranks are put back: \d of 3 in the queue for 6.0s \(`assemble`\), and 3 are needed", told), (
        told
    )
    until(lambda: not gang.home.tokens() and not gang.jobs(), "nothing is left")


@pytest.mark.parametrize("step", ["before submit", "after submit"])
def test_a_host_that_is_killed_while_it_submits(gang: Elastic, step: str) -> None:
    hosts = DyingHosts(gang.home)
    try:
        hosts.run(step)
        gang.begin(2, "-p", "cpu", check=False)
        until(hosts.is_dead, "the host is killed")
        assert hosts.death() == step
        gang.home.run("status", "train")  # starts the next host
        gang.until_half(2)
        assert len(gang.jobs()) == 2
        (gang.home.root / "go").touch()
        assert gang.until_done(2) == ["0", "0"], "no rank was lost or started twice"
        assert len(gang.halves()) == 2
    finally:
        hosts.close()


def test_an_executor(gang: Elastic, monkeypatch: pytest.MonkeyPatch) -> None:
    home = gang.home
    (home.root / "replicas.py").write_text(REPLICAS)
    monkeypatch.chdir(home.root)
    for name, value in {**gang.slurm.env(), "REMUDA_HOME": str(home.paths.root)}.items():
        monkeypatch.setenv(name, value)
    home.run("host", "start")
    executor = Executor.of("slurm", partitions=["gpu-l40s"], backoff_base=0.1, backoff_max=0.1, gpu_check=False)
    handles = executor.launch_replicas(3, "replicas:square", {"base": 3}, gpu="L40S")
    found = executor.collect(handles, timeout=120)
    assert [(one["rank"], one["status"], one["exit_code"], one["error"]) for one in found] == [
        (rank, "succeeded", 0, None) for rank in range(3)
    ]  # fmt: skip
    assert [one["result"] for one in found] == [{"rank": rank, "value": 3**rank} for rank in range(3)]
    assert executor.stream_logs(handles[2]) == "rank 2 of 3"
    assert handles[0].backend_name == "slurm"
    waiting = executor.launch_replicas(2, "replicas:waits")
    until(lambda: [executor.poll(handle) for handle in waiting] == ["running"] * 2, "both run")
    executor.cancel(waiting[1])
    assert [one["status"] for one in executor.collect(waiting)] == ["cancelled"] * 2
    assert not gang.jobs()

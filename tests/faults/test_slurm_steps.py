"""Scripts that start their ranks by `srun`, on a real cluster: who is told to end, and what is made of how they end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.faults.slurm_runs import Runs

if TYPE_CHECKING:
    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed

#: Saves its work within a second where it is told to end, as the ranks of a training program do.
RANK = """#!/bin/sh
trap 'echo "$REMUDA_ATTEMPT $SLURM_PROCID told" >> "$OUT/ranks"; sleep 1;
      echo "$REMUDA_ATTEMPT $SLURM_PROCID saved" >> "$OUT/ranks"; exit {code}' TERM
echo "$REMUDA_ATTEMPT 1" >> "$OUT/steps"
while [ ! -e "$OUT/enough" ]; do sleep 0.1; done
"""
SCRIPT = """#!/bin/bash
#SBATCH --ntasks=2
echo "$REMUDA_ATTEMPT $SLURM_JOB_ID $SLURMD_NODENAME" >> "$OUT/starts"
srun --ntasks=2 --overlap --mem=0 "$OUT/rank.sh"
"""


@pytest.fixture
def runs(home: Home, slurm: SlurmBed) -> Runs:
    return Runs(home, slurm)


def begin(runs: Runs, *flags: str, code: int = 0, text: str = SCRIPT) -> None:
    rank = runs.out / "rank.sh"
    rank.write_text(RANK.replace("{code}", str(code)))
    rank.chmod(0o755)
    runs.begin(*flags, "--kill-grace", "20", script=runs.script(text))
    runs.wait(lambda: len(runs.lines("steps")) >= 2, "both ranks run")


def saved(runs: Runs, attempt: int) -> list[str]:
    """What the ranks of an attempt said when they were told to end."""
    return sorted(line for line in runs.lines("ranks") if line.startswith(f"{attempt} "))


def in_peace(attempt: int) -> list[str]:
    return [f"{attempt} {rank} {word}" for rank in range(2) for word in ("saved", "told")]


@pytest.mark.parametrize("way", ["waits", "is srun", "in another group"])
def test_ranks_save_their_work_before_a_restart_and_a_stop(runs: Runs, way: str) -> None:
    text = {
        "waits": SCRIPT,
        "is srun": SCRIPT.replace("srun", "exec srun"),
        "in another group": SCRIPT.replace("srun", "set -m\nsrun") + "exit $?\n",
    }[way]
    begin(runs, "--partitions", "cpu", text=text)
    runs.home.run("restart", "train")
    runs.wait(lambda: len(runs.lines("steps")) >= 4, "the second attempt runs")
    assert saved(runs, 1) == in_peace(1)
    runs.home.run("stop", "train")
    assert saved(runs, 2) == in_peace(2)
    assert runs.task()["failures"] == 0


@pytest.mark.parametrize("pool", ["spot", "spotc"])
@pytest.mark.parametrize("code", [0, 143])
def test_ranks_that_are_preempted_use_up_no_retry(runs: Runs, pool: str, code: int) -> None:
    """They are told by Slurm and end within its grace: the job has FAILED, or with 0 COMPLETED with steps missing."""
    text = SCRIPT.replace("srun", "remuda-progress 1/10\nsrun") + '[ ! -e "$OUT/enough" ] || remuda-progress 10/10\n'
    begin(runs, "--gpus", "4", "--partitions", pool, "--max-retries", "0", code=code, text=text)
    runs.slurm("sbatch", "-o", "/dev/null", "-p", "gpu-a100", "-N2", "--gres=gpu:4", "--wrap", "sleep 4")
    runs.wait(lambda: len(runs.lines("steps")) >= 4, "the second attempt runs")
    assert saved(runs, 1) == in_peace(1)
    assert runs.task()["failures"] == 0
    assert "preemption" in runs.told()
    runs.enough()
    runs.wait_done()


def test_ranks_of_an_array_are_told_alone(runs: Runs) -> None:
    """The last task of an array has the array's own id, which to Slurm is the name of all of them."""
    begin(runs, "--partitions", "cpu", "--array", "1-2")
    runs.wait(lambda: len(runs.lines("steps")) == 4, "all ranks run")
    mine = max(runs.home.view("train")["tasks"], key=lambda task: task["native"])
    runs.home.run("restart", "train", mine["native"].partition("_")[2])
    runs.wait(lambda: len(runs.lines("steps")) >= 6, "one of them runs again")
    assert len(runs.lines("ranks")) == 4


def test_the_warning_before_the_time_limit_reaches_the_ranks(runs: Runs) -> None:
    begin(runs, "--partitions", "cpu", "--time-limit", "2m", "--signal", "TERM@60", "--max-retries", "0")
    runs.wait(lambda: len(runs.lines("steps")) >= 4, "the second attempt runs", 300)
    assert saved(runs, 1) == in_peace(1)
    assert runs.task()["failures"] == 0

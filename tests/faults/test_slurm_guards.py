"""The guards of a run over several nodes on a real Slurm: killed, refused, and not to be had again."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.faults.slurm_runs import Runs
from tests.faults.test_slurm_nodes import RANKS

if TYPE_CHECKING:
    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed
    from remuda.testing.slurm.nodes import BedNode

#: In the place of Slurm's: refuses the guards whose options are like a pattern, and passes everything else on.
SRUN = """#!/bin/sh
case "$*" in *--job-name=remuda-guard*%s*) echo "srun: error: not here" >&2; exit 1;; esac
PATH="${PATH#*:}"
exec srun "$@"
"""


@pytest.fixture
def runs(home: Home, slurm: SlurmBed) -> Runs:
    return Runs(home, slurm)


def begin(runs: Runs, *flags: str) -> dict[str, str]:
    """A rank on each of two nodes; rank -> node, once both write."""
    runs.begin("--nodes", "2", "--partitions", "spot", *flags, script=runs.script(RANKS, "ranks.sh"))
    runs.wait(lambda: {line.split()[1] for line in runs.lines("steps")} == {"0", "1"}, "both ranks write")
    return {rank: node for _, rank, node in map(str.split, runs.lines("steps"))}


def refusing(runs: Runs, pattern: str) -> tuple[str, str]:
    """Flags that put such an `srun` in the place of the real one."""
    folder = runs.home.root / "bin"
    folder.mkdir()
    (folder / "srun").write_text(SRUN % pattern)
    (folder / "srun").chmod(0o755)
    return "--preamble", f'export PATH="{folder}:$PATH"'


def guard_on(node: BedNode) -> int:
    """Pid of the guard there, as this machine counts; 0 for none."""
    for pid in node.processes():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"guard" in words:
            return pid
    return 0


def kill_guard(runs: Runs, name: str) -> int:
    """kill -9 to the guard on that node, once it has called; its pid."""
    node, folder = runs.bed.nodes[name], runs.home.paths.workload("train") / "script-0"
    runs.wait(lambda: any(folder.glob(f"attempt-1-*/guards/{name}.here")) and guard_on(node) > 0, "the guard is there")
    pid = guard_on(node)
    assert pid
    os.kill(pid, signal.SIGKILL)
    return pid


def node_log(runs: Runs) -> str:
    (path,) = (runs.home.paths.workload("train") / "script-0").glob("attempt-1-*/node.log")
    return path.read_text()


def test_a_guard_that_was_killed_is_started_again_and_ends_its_rank_behind_a_cut_cable(runs: Runs) -> None:
    second = begin(runs)["1"]
    killed = kill_guard(runs, second)
    runs.wait(lambda: f"node {second} is guarded again" in node_log(runs), "another guard has called")
    assert guard_on(runs.bed.nodes[second]) not in (0, killed)
    assert runs.task()["attempt"] == 1
    assert runs.phase() == "RUNNING"
    if not runs.bed.layout.isolated:
        return
    runs.bed.cut(second)
    runs.wait_running(attempt=2, limit_s=300)
    seen = len(runs.lines("steps"))
    runs.wait(lambda: len(runs.lines("steps")) > seen + 100, "the new copy writes on")
    runs.bed.heal(second)
    runs.enough()
    runs.wait_done()
    writers = [line.split()[0] for line in runs.lines("steps")]
    assert writers == sorted(writers), "one of the old copy wrote beside the new one"


def test_a_run_whose_guards_are_refused_says_so_wherever_it_is_looked_at(runs: Runs) -> None:
    begin(runs, *refusing(runs, ""))
    runs.wait(lambda: runs.phase() == "RUNNING", "it is seen to run")
    told = "not all of its nodes are guarded (the step of the guards ended: srun: error: not here)"
    for words in (["status", "train"], ["explain", "train"], ["events", "train"]):
        assert told in runs.home.run(*words).stdout
    runs.enough()
    runs.wait_done()


def test_where_no_guard_is_to_be_had_again_the_job_ends_with_all_that_ran_there(runs: Runs) -> None:
    second = begin(runs, *refusing(runs, "--nodelist="))["1"]
    job = runs.job_id()
    kill_guard(runs, second)
    why = f"node {second} is not guarded any more, because its guard died: another could not be started: srun: error: "
    runs.wait(lambda: why in runs.told(), "it is told why")
    runs.wait(lambda: job not in {found for found, _, _ in runs.jobs()}, "the job is over, on all of its nodes")
    seen = len([line for line in runs.lines("steps") if line.startswith("1 ")])
    runs.wait_running(attempt=2, limit_s=300)
    assert len([line for line in runs.lines("steps") if line.startswith("1 ")]) == seen
    runs.home.run("stop", "train")

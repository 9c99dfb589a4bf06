"""What a cluster does to a batch job beside a swarm: whatever is lost, every row is in the output once."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.faults.slurm_jobs import Jobs

from remuda.backends.local.processes import tokens_by_pid

if TYPE_CHECKING:
    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed

#: Slow enough that a job does not end before what is to happen to it has happened: Slurm looks at limits now and then.
ROWS, ANSWER_S = 1000, 3.0


@pytest.fixture
def jobs(home: Home, slurm: SlurmBed) -> Jobs:
    made = Jobs(home, slurm)
    made.up()
    made.write(ROWS)
    made.slow(ANSWER_S)
    return made


def driver_pid(job: str) -> int:
    """The driver itself, below its node program."""
    for pid, token in tokens_by_pid().items():
        if not token.startswith(f"{job}.driver."):
            continue
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if words[1:5] == [b"-P", b"-m", b"remuda.enter", b"drive"]:
                return pid
    raise AssertionError(f"no driver of {job} runs")


def begin(jobs: Jobs, rows: int = 8) -> str:
    """Submit a job, and wait until some rows are done."""
    job = jobs.new("tough")
    jobs.home.run(*jobs.words(job, "--detach", "--max-concurrency", "8"))
    jobs.wait_rows(job, rows)
    return job


def test_a_driver_is_killed_and_reaches_its_time_limit_and_its_host_is_killed(jobs: Jobs) -> None:
    job = begin(jobs)
    os.kill(driver_pid(job), signal.SIGKILL)
    second = jobs.wait_attempt(job, 2)
    assert second["failures"] <= 1, "0 where it has got farther than the first already"
    before = jobs.done(job)
    jobs.wait_rows(job, before + 8)
    kept = jobs.done(job)
    jobs.bed.run("scontrol", "update", f"jobid={second['native']}", "EndTime=now+5")
    third = jobs.wait_attempt(job, 3)
    assert third["failures"] <= 1, "the time limit uses up no retry"
    assert "time limit" in jobs.home.run("explain", job).stdout
    before = jobs.done(job)
    jobs.wait_rows(job, before + 8)
    jobs.home.kill_host()
    jobs.fast()
    state = jobs.wait_end(job)
    assert state["summary"]["skipped"] >= kept, "what was done is not asked again"
    jobs.check(job, ROWS)


def test_the_node_of_the_driver_crashes_with_all_of_the_swarm_that_is_on_it(jobs: Jobs) -> None:
    """The next driver finds the router where it is then, and the checkpoint free."""
    job = begin(jobs)
    first = jobs.driver(job)
    router = jobs.home.task(jobs.name, "router/0")
    assert router["node"] == first["node"], "Slurm fills one node before it takes the next"
    jobs.bed.crash(first["node"])
    second = jobs.wait_attempt(job, 2)
    assert second["node"] != first["node"]
    jobs.fast()
    jobs.wait_end(job)
    jobs.check(job, ROWS)


def test_replica_and_router_are_lost_under_a_driver_that_goes_on(jobs: Jobs) -> None:
    """Rows in flight are sent again to whoever is there then, by the same driver; it says when nobody will be."""
    job = begin(jobs)
    for task in ("replica/1", "router/0"):
        before = jobs.done(job)
        jobs.bed.run("scancel", jobs.home.task(jobs.name, task)["native"])
        jobs.wait_rows(job, before + 16)
    jobs.fast()
    jobs.wait_end(job)
    jobs.check(job, ROWS)
    assert jobs.driver(job)["attempt"] == 1, jobs.told(job)
    jobs.slow(ANSWER_S)
    orphan = begin(jobs)
    jobs.home.run("down", jobs.name)
    done = jobs.home.run("job", "wait", orphan, check=False)
    assert done.returncode == 1
    state = jobs.state(orphan)
    assert (state["state"], state["reason"]) == ("FAILED", "the swarm was taken down")

"""Preemption of a whole swarm with the job beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.faults.slurm_jobs import BACKEND, Jobs

if TYPE_CHECKING:
    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed

ROWS = 600


def test_preemption_of_the_driver_uses_up_no_try(home: Home, slurm: SlurmBed) -> None:
    """Both nodes that Slurm fills first are wanted by a partition of a higher tier; the others are free."""
    jobs = Jobs(home, slurm)
    jobs.up(backend={**BACKEND, "partition": "spotc"})
    jobs.write(ROWS)
    jobs.slow(2.0)
    job = jobs.new("spot")
    home.run(*jobs.words(job, "--detach", "--max-concurrency", "8"))
    jobs.wait_rows(job, 8)
    node = jobs.driver(job)["node"]
    slurm.run("sbatch", "-o", "/dev/null", "-p", f"gpu-{node.partition('-')[0]}", "-w", node, "--exclusive", "--wrap",
              "sleep 3600")  # fmt: skip
    second = jobs.wait_attempt(job, 2)
    assert second["failures"] == 0
    assert "preempt" in home.run("explain", job).stdout
    jobs.fast()
    state = jobs.wait_end(job)
    assert state["summary"]["skipped"] > 0, "what was done before the preemption was kept"
    jobs.check(job, ROWS)

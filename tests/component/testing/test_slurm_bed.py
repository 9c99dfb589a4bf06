"""The Slurm test bed on real daemons: each drill does what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remuda.testing.slurm import SlurmBed


def test_a_job_sees_its_gpus(slurm_bare: SlurmBed) -> None:
    job = slurm_bare.submit("echo $CUDA_VISIBLE_DEVICES $SLURMD_NODENAME", "--gres=gpu:2")
    assert slurm_bare.wait_job(job, "COMPLETED") == "COMPLETED"
    assert slurm_bare.output(job) == "0,1 a100-1\n"


def test_a_crash_ends_jobs_with_node_fail(slurm_bare: SlurmBed) -> None:
    job = slurm_bare.submit("sleep 600", "--no-requeue", "--nodelist=a100-2")
    slurm_bare.wait_job(job, "RUNNING")
    assert slurm_bare.processes("a100-2")
    slurm_bare.crash("a100-2")
    assert slurm_bare.processes("a100-2") == []
    assert slurm_bare.wait_job(job, "NODE_FAIL") == "NODE_FAIL"
    assert slurm_bare.wait_node("a100-2", "down") == "down*"
    slurm_bare.start("a100-2")
    assert slurm_bare.wait_node("a100-2", "idle") == "idle"

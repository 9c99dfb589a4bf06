"""A batch on the real cluster with the real engine behind the real router, which loses a replica."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.faults.slurm_jobs import BACKEND, Jobs

from remuda.serving.tiny import make_tiny_model

if TYPE_CHECKING:
    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed

ROWS = 400


@pytest.mark.real
def test_rows_in_flight_on_a_lost_replica_are_sent_again_to_another(home: Home, slurm: SlurmBed) -> None:
    jobs = Jobs(home, slurm, "pony")
    model = make_tiny_model(home.root / "tiny.gguf")
    jobs.up(
        model=str(model), engine="llamacpp", command=None, args="--ctx-size 512 --parallel 2 --threads 1",
        gpus_per_replica=0, backend={**BACKEND, "partition": "cpu"}, watchdog={"http_path": None},
    )  # fmt: skip
    jobs.write(ROWS)
    job = jobs.new("real")
    arguments = json.dumps({"max_tokens": 32, "temperature": 0, "ignore_eos": True})
    home.run(*jobs.words(job, "--detach", "--max-concurrency", "4", "--job-kwargs", arguments))
    jobs.wait_rows(job, 20)
    slurm.run("scancel", home.task("pony", "replica/0")["native"])
    jobs.wait_end(job)
    jobs.check(job, ROWS)
    assert jobs.driver(job)["attempt"] == 1

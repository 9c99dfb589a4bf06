"""Where a job runs is one decision, made by what the host has recorded of the swarm."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.plan.test_job import swarm

from remuda.control.drivers import place_of


class Host:
    """Knows one swarm."""

    def __init__(self, backend: str) -> None:
        self.plan = json.loads(swarm().model_copy(update={"backend": backend}).model_dump_json())
        self.asked: list[str] = []

    def get(self, path: str) -> Any:
        self.asked.append(path)
        return {"plan": self.plan, "spec": json.dumps({"backend": {"type": "slurm", "job": {"cpus_per_task": 3}}})}


@pytest.mark.parametrize(
    ("backend", "name", "here", "is_beside"),
    [("slurm", "herd", False, True), ("slurm", "herd", True, False), ("slurm", "", False, False),
     ("local", "herd", False, False)],
)  # fmt: skip
def test_where_a_job_runs(backend: str, name: str, here: bool, is_beside: bool) -> None:
    host: Any = Host(backend)
    place = place_of(host, name, here=here, mem="9GB")
    assert (place is not None) is is_beside
    if place is not None:
        assert (place.spec.cpus_per_task, place.asked.mem) == (3, "9GB")
    assert host.asked == ([f"/workloads/{name}/spec"] if name and not here else [])

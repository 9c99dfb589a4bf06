"""`remuda pool` on a real Slurm: three swarms, two at once, jobs beside them, and one that waits too long."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import yaml
from tests.component.slurm.test_swarms import BACKEND, queue

from remuda.base.errors import HostUnreachable

if TYPE_CHECKING:
    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed


def test_three_swarms_two_at_once(home: Home, slurm: SlurmBed) -> None:
    home.env |= {**slurm.env(), "REMUDA_SLURM_POLL_S": "0.5"}
    (home.root / "in.jsonl").write_text("".join(f'{{"prompt": "row {n}"}}\n' for n in range(20)))
    members: list[dict[str, Any]] = []
    for name in ("a", "b", "c"):
        values: dict[str, Any] = {
            "backend": {**BACKEND, "partition": "cpu"}, "gpus_per_replica": 0, "cpus_per_task": 1, "replicas": 1,
            "router": "none", "wait_endpoint_s": 900,
        }  # fmt: skip
        path = home.swarm(name, **values)
        members.append({
            "config": path.name, "queue_timeout": 3600,
            "job": {"job": "completion", "input": "in.jsonl", "output": f"{name}.jsonl"},
        })  # fmt: skip
    # Its partition takes jobs and starts none.
    members[1] |= {"overrides": {"backend.partition": "down"}, "queue_timeout": 5}
    file = home.root / "pool.yaml"
    file.write_text(yaml.safe_dump({"max_concurrent": 2, "swarms": members}))
    running = home.start("pool", "-c", str(file), "--json")
    most = 0
    while running.poll() is None:
        time.sleep(0.2)
        with suppress(HostUnreachable):
            most = max(most, len(home.client.get("/workloads", kind="swarm")))
    out, err = running.communicate()
    assert running.returncode == 1, err
    came = {one["name"]: (one["outcome"], one["reason"]) for one in json.loads(out)}
    assert came["a"] == ("done", ""), err
    assert came["c"] == ("done", ""), err
    assert came["b"][0] == "failed"
    assert came["b"][1].startswith("nothing of it has started within 5")
    assert most <= 2
    assert [len((home.root / f"{name}.jsonl").read_text().splitlines()) for name in ("a", "c")] == [20, 20]
    assert queue(slurm) == []

"""What is so of each kind of workload."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from remuda.plan.kinds import Kind, KindTraits

TABLE: dict[Kind, dict[str, Any]] = {
    Kind.SWARM: {"without_gpus": "gpus_per_replica: 0", "resized_by": "scale {} REPLICAS"},
    Kind.RUN: dict.fromkeys(
        ["is_always_new", "is_restarted_whole", "is_followed", "has_one_task", "is_its_task", "has_settings"], True
    ),
    Kind.DEPLOYMENT: {"without_gpus": "roles.ROLE.gpus: 0"},
    Kind.GANG: {
        **dict.fromkeys(["is_always_new", "is_restarted_whole", "is_followed", "needs_all"], True),
        "after_time": "FAILED",
    },
    Kind.JOB: {"name_flag": "--job-id", **dict.fromkeys(["is_followed", "has_one_task", "has_outcome"], True)},
    Kind.RECORDING: {"has_one_task": True, "has_parts": True},
}


@pytest.mark.parametrize("kind", Kind)
def test_what_is_so_of_a_kind(kind: Kind) -> None:
    assert asdict(kind.traits) == asdict(KindTraits()) | TABLE[kind]

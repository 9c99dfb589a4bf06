"""What a dry run says first: what is started, how many, and what each asks for."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.cli.plans import summary

ONE = {"nodes": 1, "gpus": 0, "cpus": 0, "mem_bytes": 0, "time_limit_s": 0.0, "partitions": []}


@pytest.mark.parametrize(
    ("groups", "lines"),
    [
        pytest.param([{**ONE, "group": "script", "tasks": 1}], ["  script: 1 task"], id="nothing asked"),
        pytest.param(
            [
                {**ONE, "group": "replica", "tasks": 8, "gpus": 2, "cpus": 16, "mem_bytes": 64 << 30,
                 "time_limit_s": 28800.0, "partitions": ["gpu", "gpu2"]},
                {**ONE, "group": "router", "tasks": 1, "cpus": 2, "mem_bytes": 1 << 29, "partitions": [""]},
            ],
            [
                "  replica: 8 tasks, 2 GPUs, 16 CPUs, 64 GB, at most 8h, partition gpu or gpu2",
                "  router: 1 task, 2 CPUs, 0.5 GB",
                "  at most 128 GPU-hours",
            ],
            id="a swarm",
        ),
        pytest.param(
            [{**ONE, "group": "decode", "tasks": 2, "nodes": 2, "gpus": 4, "time_limit_s": 1800.0}],
            ["  decode: 2 tasks, 2 nodes, 4 GPUs a node, at most 30m", "  at most 8 GPU-hours"],
            id="over nodes",
        ),
    ],
)  # fmt: skip
def test_a_line_for_each_group(groups: list[dict[str, Any]], lines: list[str]) -> None:
    plan = {"name": "chat", "kind": "swarm", "backend": "slurm", "groups": groups}
    assert summary(plan) == ["chat: swarm on slurm", *lines]

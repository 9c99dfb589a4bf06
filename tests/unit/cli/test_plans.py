"""What a dry run says first: what is started, how many, and what each asks for."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.cli.plans import summary

ONE = {"nodes": 1, "gpus": 0, "cpus": 0, "mem_bytes": 0, "time_limit_s": 0.0, "partitions": []}
L4 = {"gpu": "L4", "hour": 0.7, "currency": "USD"}
H100 = {"gpu": "H100 SXM", "hour": 3.0, "currency": "USD"}


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
        pytest.param(
            [{**ONE, "group": "replica", "tasks": 2, "gpus": 4, "time_limit_s": 14400.0, "price": H100},
             {**ONE, "group": "router", "tasks": 1, "cpus": 2, "time_limit_s": 14400.0}],
            ["  replica: 2 tasks, 4 GPUs, at most 4h", "  router: 1 task, 2 CPUs, at most 4h",
             "  at most 32 GPU-hours, about 96.00 USD at list price (H100 SXM: 3.00 USD an hour)"],
            id="a price",
        ),
        pytest.param(
            [{**ONE, "group": "prefill", "tasks": 8, "gpus": 8, "time_limit_s": 86400.0, "price": H100},
             {**ONE, "group": "decode", "tasks": 1, "gpus": 1, "time_limit_s": 3600.0, "price": L4}],
            ["  prefill: 8 tasks, 8 GPUs, at most 1d", "  decode: 1 task, 1 GPU, at most 1h",
             "  at most 1537 GPU-hours, about 4,609 USD at list price (H100 SXM: 3.00 USD an hour, L4: 0.70 USD an hour)"],  # noqa: E501
            id="two kinds",
        ),
        pytest.param(
            [{**ONE, "group": "prefill", "tasks": 1, "gpus": 1, "time_limit_s": 3600.0, "price": H100},
             {**ONE, "group": "decode", "tasks": 1, "gpus": 1, "time_limit_s": 3600.0}],
            ["  prefill: 1 task, 1 GPU, at most 1h", "  decode: 1 task, 1 GPU, at most 1h", "  at most 2 GPU-hours"],
            id="one without a price",
        ),
    ],
)  # fmt: skip
def test_a_line_for_each_group(groups: list[dict[str, Any]], lines: list[str]) -> None:
    plan = {"name": "chat", "kind": "swarm", "backend": "slurm", "groups": groups}
    assert summary(plan) == ["chat: swarm on slurm", *lines]

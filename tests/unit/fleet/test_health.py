"""What is wrong with a node, a sentence each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from remuda.fleet.health import Heard, faults
from remuda.fleet.roll import FleetNode
from remuda.fleet.scontrol import SlurmNode
from remuda.wire.fleet import Beat

NODE = FleetNode("n1", "d", "10.0.0.2", "22.05.8", "1.0", 4, 100, "h100:2", 0.0, "t")
WELL = Beat(at=1.0, gpus="h100:2", remuda="1.0", free_bytes=1 << 40)


@pytest.mark.parametrize(
    ("change", "clock_s", "why"),
    [
        ({}, 0.0, []),
        ({}, 59.0, []),
        ({"gpus": "2"}, 0.0, []),
        ({"gpus": "1"}, 0.0, ["GPU lost: 1 of 2 answers"]),
        ({"gpus": ""}, 0.0, ["GPU lost: 0 of 2 answer"]),
        ({"free_bytes": 5 << 20}, 0.0, ["disk almost full: 5.0 MB left for its state directory"]),
        ({}, -90.0, ["clock 1m 30s behind the head's"]),
        ({}, 90.0, ["clock 1m 30s ahead of the head's"]),
        ({"remuda": "0.9"}, 0.0, ["remuda 0.9 there, 1.0 on the head"]),
        ({"problems": ["slurmd or munged is down"]}, 0.0, ["slurmd or munged is down"]),
    ],
)
def test_a_reason_each(change: dict[str, Any], clock_s: float, why: list[str]) -> None:
    assert faults(NODE, Heard(0.0, replace(WELL, **change), clock_s), 2.0, "1.0") == why


def test_of_a_silent_node_nothing_else_is_known() -> None:
    silent = "silent for 42s: no client runs there, or the network is down"
    assert faults(NODE, Heard(0.0, replace(WELL, gpus=""), 0.0), 42.0, "1.0") == [silent]
    assert faults(NODE, None, 42.0, "1.0") == [silent]


def test_what_slurm_says_counts_unless_the_node_leaves() -> None:
    last = Heard(0.0, WELL, 0.0)
    said = "down*: Not responding"
    assert faults(NODE, last, 1.0, "1.0", said) == ["Slurm gives it no work: down*: Not responding"]
    assert faults(replace(NODE, leaving=True), last, 1.0, "1.0", said) == []


def test_a_node_that_slurm_does_not_know_is_empty() -> None:
    assert (SlurmNode("").is_empty, SlurmNode("").is_closed) == (True, True)

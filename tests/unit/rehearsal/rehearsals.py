"""Scenarios for tests of the rehearsal."""

from __future__ import annotations

from typing import Any

from remuda.rehearsal import study
from remuda.rehearsal.model import Assumptions, Scenario
from remuda.rehearsal.study import StudyOptions
from remuda.specs.run import RunSpec

#: Nothing waits and nothing is thrown: what remains can be worked out by hand.
PLAIN = Assumptions(people_h=0.0, queue_s=0.0, named_share=1.0)


def scenario(size: int = 10, days: float = 1.0, assumptions: Assumptions = PLAIN, /, **values: Any) -> Scenario:
    """A run on 8 of `size` nodes that saves its state every half hour at no cost, unless `values` say otherwise."""
    said = {"script": "train.sh", "nodes": 8, "gpus": 8, "mode": "indefinite", "progress_stall": 600.0,
            "restart_cost": 600.0, **values}  # fmt: skip
    return study.plan(RunSpec(**said), StudyOptions(nodes=size, days=days), assumptions)

"""A node that leaves waits for no recorder, and ends nothing else that somebody called so."""

from __future__ import annotations

from subprocess import CompletedProcess
from typing import TYPE_CHECKING, cast

import pytest
from pydantic import ValidationError

from remuda.backends.base import TaskKey, make_token
from remuda.fleet.scontrol import end_recorders
from remuda.plan.context import Context
from remuda.plan.recording import Recording, compile_recording
from remuda.specs.deployment import Service

if TYPE_CHECKING:
    from remuda.fleet.daemons import Controller
    from remuda.plan.compile import PlanFacts


def test_only_recorders_are_ended() -> None:
    asked = Recording("exp.1", "/h/recordings/exp.1", 0.05, (), ("b1", "b2"))
    groups = compile_recording(asked, Context(cwd="/c", state="/h"), cast("PlanFacts", None)).workload.groups
    service = Service(name="recorder-0", command=("dcgm",)).name
    jobs = [
        *(make_token(TaskKey("exp.1", group.name, 0), 2, "abc") for group in groups),
        make_token(TaskKey("d", service, 0), 1, "abc"),
        make_token(TaskKey(f"of.{groups[0].name}.0.1.u", "script", 0), 1, "abc"),
        "runs.script.b.1.abc",
    ]
    said: list[tuple[str, ...]] = []

    class Asked:
        def ask(self, *words: str) -> CompletedProcess[str]:
            said.append(words)
            lines = [f"{number} {name}\n" for number, name in enumerate(jobs, 7)]
            return CompletedProcess(words, 0, "".join(lines) if words[0] == "squeue" else "", "")

    end_recorders(cast("Controller", Asked()), "b1")
    assert said == [("squeue", "-h", "-w", "b1", "-o", "%i %j"), ("scancel", "7", "8")]


def test_no_service_can_be_called_as_a_recorder_is() -> None:
    with pytest.raises(ValidationError):
        Service(name="recorder_0", command=("dcgm",))

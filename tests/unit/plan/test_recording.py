"""What a recording is as a workload, and who asks for one beside its tasks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from remuda.backends.base import Request, TaskKey
from remuda.backends.rundir import child_spec
from remuda.base.errors import InputError
from remuda.base.units import parse_interval, show_interval
from remuda.plan.compile import accept
from remuda.plan.context import Context
from remuda.plan.model import Kind
from remuda.plan.recording import FOLDER, Recording, compile_recording
from remuda.plan.run import plan_run
from remuda.specs.reading.directives import read_directives
from remuda.specs.reading.sbatch_options import BUILT_IN
from remuda.specs.run import RunSpec

if TYPE_CHECKING:
    from remuda.plan.compile import PlanFacts
    from remuda.plan.model import Workload

CONTEXT = Context(cwd="/c", state="/h", python="py", env={"A": "b"})


def run(**fields: object) -> Workload:
    spec = RunSpec.model_validate({"script": "t.sh", **fields})
    assert RunSpec.model_validate(spec.model_dump(mode="json", exclude_none=True)) == spec, "it is read as it was kept"
    return accept(plan_run(spec, CONTEXT, name="t", backend="local", script="/c/t.sh"), "u", 0.0)


def test_a_recording_is_one_task_that_is_begun_again_until_there_is_nothing_to_record() -> None:
    asked = Recording("exp1", "/h/recordings/exp1", 0.05, ("0", "GPU-1"))
    workload = compile_recording(asked, CONTEXT, cast("PlanFacts", None)).workload
    (group,) = workload.groups
    words = ("recorder", "/h/recordings/exp1", "--interval-s", "0.05", "--name", "exp1", "--gpus", "0,GPU-1")
    assert group.command.argv == ("py", "-P", "-m", "remuda.enter", *words)
    assert (workload.kind, workload.backend, workload.labels[FOLDER]) == (Kind.RECORDING, "local", "/h/recordings/exp1")
    assert (group.restart.policy, group.replace.policy, group.resources.gpus) == ("on-failure", "on-failure", 0)


def test_a_recording_of_a_fleet_is_a_task_on_each_node_that_asks_for_no_gpu() -> None:
    asked = Recording("exp1", "/h/recordings/exp1", 0.05, (), ("Box.1", "b2"))
    workload = compile_recording(asked, CONTEXT, cast("PlanFacts", None)).workload
    assert (workload.backend, workload.is_here, workload.place["env"]) == ("slurm", False, {"A": "b"})
    assert [(group.name, group.resources.gpus) for group in workload.groups] == [("recorder_0", 0), ("recorder_1", 0)]
    places = [[{"partition": "fleet", "node_list": name}] for name in ("Box.1", "b2")]
    assert [[pool.place for pool in group.pools] for group in workload.groups] == places
    argv = workload.groups[0].command.argv
    assert argv == workload.groups[1].command.argv
    assert argv[:3] == ("__REMUDA_PROGRAM__", "recorder", "/h/recordings/exp1/__REMUDA_NODE__")
    assert argv[3:] == ("--interval-s", "0.05", "--name", "exp1", "--gpus", "all", "--node", "__REMUDA_NODE__")
    assert {group.replace.user_cancel for group in workload.groups} == {"stop"}


@pytest.mark.parametrize(("said", "seconds"), [
    ("10Hz", 0.1), ("100ms", 0.1), (1000, 1.0), ("2.5s", 2.5), (True, 0.1), ("", 0.0), (0, 0.0), (False, 0.0),
])  # fmt: skip
def test_what_a_document_asks_for_reaches_the_node(said: object, seconds: float) -> None:
    workload = run(profile=said)
    request = Request(TaskKey("t", "script", 0), 1, "t.script.0.1.u", workload, workload.groups[0])
    folder = Path("/h/workloads/t/script-0/attempt-1-u")
    child = child_spec(request, folder, env={}, bind_host="127.0.0.1", host_file="")
    assert child.record_interval_s == pytest.approx(seconds)


@pytest.mark.parametrize(("text", "seconds", "shown"), [
    ("10Hz", 0.1, "10Hz"), ("30 hz", 1 / 30, "30Hz"), ("1000", 1.0, "1Hz"), ("250ms", 0.25, "4Hz"),
    ("1m", 60.0, "60000ms"), ("0", 0.0, "0ms"),
])  # fmt: skip
def test_how_often(text: str, seconds: float, shown: str) -> None:
    assert parse_interval(text) == pytest.approx(seconds)
    assert show_interval(seconds) == shown
    assert parse_interval(shown) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["often", "-1", "1000Hz", "1ms", "2m", "nan", "10 Hzz", "\u0661"])
def test_what_is_no_interval_says_what_to_write(text: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_interval(text)
    assert "10Hz" in refused.value.hint


@pytest.mark.parametrize(("line", "said"), [
    ("#REMUDA --profile", "10Hz"), ("#REMUDA --profile 5Hz --gpus 1", "5Hz"), ("#REMUDA --profile --gpus 1", "10Hz"),
    ("#REMUDA --profile=1000", "1000"),
])  # fmt: skip
def test_a_script_may_ask_for_it_with_or_without_a_frequency(line: str, said: str) -> None:
    assert read_directives(f"#!/bin/bash\n{line}\n", "t.sh", BUILT_IN).own.data["profile"] == said

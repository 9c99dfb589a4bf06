"""Specs to workloads, as files: `tests/cases/plan/NAME.yaml` gives what `NAME.json` says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from remuda.backends.container import Steps, in_image
from remuda.base.errors import InputError
from remuda.plan.context import Context
from remuda.plan.derive import derive
from remuda.plan.model import Workload
from remuda.plan.swarm import plan_swarm
from remuda.specs.places import in_images
from remuda.specs.reading.document import parse
from remuda.specs.reading.load import build, mapping_overrides
from remuda.specs.swarm import SwarmSpec

CASES = Path(__file__).parents[2] / "cases" / "plan"


def planned(file: Path, case: dict[str, Any]) -> Workload:
    loaded = build(parse(file.read_text(), file.name), mapping_overrides(case.get("overrides", {}), "--flag"))
    spec = loaded.spec
    assert isinstance(spec, SwarmSpec)
    machine = case.get("machine", {})
    context = Context(
        gpus=tuple(machine.get("gpus", ())), cpus=machine.get("cpus", 2), cwd="/home/me", state="/run",
        python="/env/bin/python",
    )  # fmt: skip
    try:
        planned = plan_swarm(derive(spec, context).spec, context, name="s")
        return planned.model_validate_json(planned.model_dump_json().replace("/run/workloads/s", "/run/s"))
    except InputError as error:
        raise loaded.locate(error) from error


def shared(expected: Any, actual: Any) -> Any:
    """`actual` without the keys that `expected` does not have."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        return {key: shared(value, actual.get(key)) for key, value in expected.items()}
    return actual


@pytest.mark.parametrize("file", sorted(CASES.glob("*.yaml")), ids=lambda path: path.stem)
def test_plan(file: Path) -> None:
    case = json.loads(file.with_suffix(".json").read_text())
    if "error" in case:
        with pytest.raises(InputError) as caught:
            planned(file, case)
        assert str(caught.value) == case["error"]
        return
    plan = planned(file, case)
    data = plan.model_dump(mode="json")
    program = str(plan.place.get("container", ""))
    if not in_images(plan.backend):
        started, _ = in_image(plan.groups[0], Path("/run/s"), program, Steps())  # as Slurm's backend does
        data["groups"][0] = started.model_dump(mode="json")
    actual = {"group": data["groups"][0], "endpoint": data["endpoint"], "place": data["place"]}
    expected = {key: case[key] for key in actual if key in case}
    assert expected
    assert shared(expected, actual) == expected
    for part in ("env", "secret_env"):  # nothing beside what the case says
        if part in case.get("group", {}).get("command", {}):
            assert data["groups"][0]["command"][part] == case["group"]["command"][part]


def test_every_case_is_whole() -> None:
    assert {path.stem for path in CASES.glob("*.yaml")} == {path.stem for path in CASES.glob("*.json")}


@pytest.mark.parametrize("file", sorted(CASES.glob("*.yaml")), ids=lambda path: path.stem)
def test_no_key_is_in_the_plan(file: Path) -> None:
    case = json.loads(file.with_suffix(".json").read_text())
    if "error" not in case:
        workload = planned(file, case)
        assert "sk-secret" not in workload.model_dump_json()
        assert Workload.model_validate_json(workload.model_dump_json()) == workload

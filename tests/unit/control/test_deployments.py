"""Recipes become workloads: a group for each role, and a frontend after them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from remuda.base.errors import InputError
from remuda.base.paths import state_paths
from remuda.control import deployments
from remuda.plan import order
from remuda.plan.model import Kind, Role

if TYPE_CHECKING:
    from pathlib import Path

RECIPE = """\
schema: 2
name: apart
model: {path: /models/tiny, name: tiny}
engine: {type: mocker, speedup_ratio: 10}
roles:
  prefill: {workers: 2, args: {block-size: 16}, env: {A: one}}
  decode: {workers: 3, extra_args: "--max-model-len 100"}
health_check: {max_attempts: 10}
"""
BENCHMARK = "benchmark: {type: sa-bench, isl: 8, osl: 8, concurrencies: [1]}\n"


def plan(tmp_path: Path, text: str = RECIPE, **given: str) -> deployments.PlannedDeployment:
    file = tmp_path / "r.yaml"
    file.write_text(text)
    return deployments.plan(str(file), **{"backend": "local", **given})  # type: ignore[arg-type]


def test_groups_of_a_recipe(tmp_path: Path) -> None:
    planned = plan(tmp_path)
    workload = planned.workload
    order.check(workload)
    assert (workload.name, workload.kind) == ("apart", Kind.DEPLOYMENT)
    assert [(group.name, group.role, group.count, group.after) for group in workload.groups] == [
        ("prefill", Role.PREFILL, 2, ()),
        ("decode", Role.DECODE, 3, ()),
        ("frontend", Role.ROUTER, 1, ("prefill", "decode")),
    ]
    assert workload.ends_with is None


def test_a_benchmark_is_a_group_that_all_of_it_ends_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    workload = plan(tmp_path, RECIPE + BENCHMARK).workload
    order.check(workload)
    group = workload.groups[-1]
    assert (group.name, group.role, group.count, group.after) == ("bench", Role.DRIVER, 1, ("frontend",))
    assert (workload.ends_with, group.replace.policy, group.restart.policy) == ("bench", "never", "never")
    assert group.command.argv == (sys.executable, "-P", "-m", "remuda", "job", "drive", "__REMUDA_FILES__")
    assert (group.command.cwd, group.command.env["REMUDA_HOME"]) == (str(tmp_path), str(state_paths().root))
    assert "DYN_FILE_KV" not in group.command.env, "it knows the endpoint alone"


def test_commands_of_workers(tmp_path: Path) -> None:
    prefill, decode, frontend = (group.command for group in plan(tmp_path).workload.groups)
    assert prefill.argv[1:] == (
        "-m", "dynamo.mocker", "--model-path", "/models/tiny", "--model-name", "tiny",
        "--disaggregation-mode", "prefill", "--bootstrap-ports", "__REMUDA_PORT_bootstrap__",
        "--speedup-ratio", "10.0", "--block-size", "16",
    )  # fmt: skip
    assert decode.argv[-4:] == ("--speedup-ratio", "10.0", "--max-model-len", "100")
    assert "--enforce-disagg" in frontend.argv
    found = {command.env["DYN_FILE_KV"] for command in (prefill, decode, frontend)}
    assert len(found) == 1, "all of one deployment find each other"
    assert found != {plan(tmp_path).workload.groups[0].command.env["DYN_FILE_KV"]}, "and nobody of the one before"
    assert (prefill.env["A"], "A" in decode.env) == ("one", False)


def test_what_is_not_done_with_a_container_is_said(tmp_path: Path) -> None:
    planned = plan(tmp_path, RECIPE.replace("name: tiny}", "name: tiny, container: /c.sqsh}"))
    assert "container /c.sqsh is not used: workers on this machine run by `python`" in planned.notes
    custom = "benchmark: {type: custom, command: x, container_image: /b.sqsh}\n"
    notes = plan(tmp_path, RECIPE + custom).notes
    assert "container /b.sqsh is not used: `benchmark.command` runs beside the workers" in notes


def test_workers_that_do_both_are_not_apart(tmp_path: Path) -> None:
    text = RECIPE[: RECIPE.index("  prefill")] + "  agg: {workers: 2}\n"
    worker, frontend = plan(tmp_path, text).workload.groups
    assert (worker.name, worker.role) == ("agg", Role.REPLICA)
    assert "--disaggregation-mode" not in worker.command.argv
    assert "--enforce-disagg" not in frontend.command.argv


@pytest.mark.parametrize(
    ("old", "new", "where", "message"),
    [
        ("{type: mocker, speedup_ratio: 10}", "sglang", "r.yaml:4", "the engine of prefill is sglang"),
        ("health_check:", "frontend: {type: nginx}\nhealth_check:", "r.yaml:8", "one frontend of type dynamo"),
        (
            "health_check:",
            "services: [{name: x, command: [y]}]\nhealth_check:",
            "r.yaml:8",
            "services cannot be started yet",
        ),
        ("args: {block-size: 16}", "args: {model-name: other}", "r.yaml:6", "--model-name is set to 'tiny'"),
    ],
)
def test_what_cannot_be_brought_up_yet_is_said_where_it_stands(
    tmp_path: Path, old: str, new: str, where: str, message: str
) -> None:
    with pytest.raises(InputError) as error:
        plan(tmp_path, RECIPE.replace(old, new, 1))
    assert message in error.value.message
    assert where in error.value.where


def test_slurm_is_refused_until_it_is_built(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="on this machine only yet"):
        plan(tmp_path, backend="slurm")


def test_one_recipe_is_brought_up(tmp_path: Path) -> None:
    body = "".join(f"  {line}\n" for line in RECIPE.splitlines())
    text = f"base:\n{body}override_a: {{name: a}}\noverride_b: {{name: b}}\n"
    with pytest.raises(InputError, match="holds 2 recipes, and one is brought up"):
        plan(tmp_path, text)

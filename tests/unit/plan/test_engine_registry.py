"""An engine is one entry of a table: it answers for all its roles, and whoever plans finds everything there."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.deploymentcases import FRONT, SITE

from remuda.base.disk.paths import StatePaths
from remuda.base.errors import InputError
from remuda.look.engines import unknown_arguments
from remuda.plan.context import Context
from remuda.plan.deployment import plan_deployment
from remuda.plan.deployment.engines import render
from remuda.plan.deployment.preflight import check_flags, check_spec, help_argv
from remuda.plan.deployment.shape import Shape
from remuda.plan.derive import derive
from remuda.plan.engines import ENGINES, Engine, EngineCommand, Serve
from remuda.plan.notes import notes
from remuda.plan.swarm import plan_swarm
from remuda.specs.deployment import DeploymentSpec, LlamacppEngine
from remuda.specs.swarm import SwarmSpec

SOURCES = Path(__file__).parents[3] / "src/remuda"
ROLES = ("agg", "prefill", "decode")
DEPLOYED = ("vllm", "sglang", "trtllm", "mocker", "llamacpp")


def deployment(engine: str, frontend: str, role: str = "agg", **more: Any) -> DeploymentSpec:
    roles: dict[str, Any] = {"agg": {}} if role == "agg" else {"prefill": {}, "decode": {}}
    return DeploymentSpec.model_validate(
        {"model": {"path": "hf:org/m", "name": "m"}, "engine": engine, "frontend": {"type": frontend}, "roles": roles}
        | more
    )


def answered(engine: Engine) -> list[tuple[str, str]]:
    """Frontend and role of each kind of worker that an engine has."""
    behind_dynamo = [("dynamo", role) for role in ROLES] if engine.dynamo else []
    return [*behind_dynamo, *(("smg", role) for role in engine.alone)]


@pytest.mark.parametrize(
    ("name", "frontend", "role"),
    [(name, *one) for name in DEPLOYED for one in answered(ENGINES[name])],
)
def test_an_engine_answers_for_all_its_roles(name: str, frontend: str, role: str) -> None:
    spec = deployment(name, frontend, role)
    server = render(spec, role, Shape(1, 1), "py")
    assert "org/m" in server.argv
    assert server.member == server.argv
    assert server.probe_path.startswith("/")
    assert (role in server.argv) == (role != "agg"), "prefill and decode are told which they are"
    asked = help_argv(spec, role, "py")
    assert asked == server.help_argv
    assert asked[:3] == (server.argv[:3] if asked else ())
    assert bool(asked) == bool(ENGINES[name].help)


BOTH = "does both in one server and is not a Dynamo worker"
APART = "disaggregated prefill/decode with {} is not supported behind smg yet"


@pytest.mark.parametrize(
    ("name", "frontend", "role", "message", "where"),
    [
        ("llamacpp", "dynamo", "agg", f"llamacpp {BOTH}", "engine.type"),
        ("llamacpp", "smg", "prefill", f"llamacpp {BOTH}", "engine.type"),
        ("mocker", "smg", "agg", "the mocker is asked by Dynamo's frontend only", "frontend.type"),
        ("mocker", "smg", "decode", "the mocker is asked by Dynamo's frontend only", "frontend.type"),
        ("vllm", "smg", "prefill", APART.format("vllm"), "frontend.type"),
        ("trtllm", "smg", "decode", APART.format("trtllm"), "frontend.type"),
    ],
)
def test_roles_that_an_engine_does_not_have(name: str, frontend: str, role: str, message: str, where: str) -> None:
    assert (frontend, role) not in answered(ENGINES[name])
    with pytest.raises(InputError) as error:
        render(deployment(name, frontend, role), role, Shape(1, 1), "py")
    assert error.value.message == f"{where}: {message}"


@pytest.mark.parametrize("name", DEPLOYED)
def test_nodes_are_spanned_by_engines_that_can(name: str) -> None:
    engine = ENGINES[name]
    frontend = "dynamo" if engine.dynamo else "smg"
    if engine.spans:
        assert render(deployment(name, frontend), "agg", Shape(8, 2), "py").argv
        return
    with pytest.raises(InputError) as error:
        render(deployment(name, frontend), "agg", Shape(8, 2), "py")
    assert error.value.message == f"roles.agg.gpus: {name} cannot be started over 2 nodes yet"


# --- one more engine -------------------------------------------------------------------------------------------------


def _new(engine: Engine, serve: Serve) -> EngineCommand:
    return engine.made(serve, {"--model": serve.model, "--role": serve.role}, serve.said)


NEW = Engine(
    name="new", build=_new, program=("new.server", "run"), help="--flags", alone=ROLES, spans=("engine",),
    probe_path="/up", metrics_path="/counts", key_env="NEW_KEY", fatal=("it is over",),
    reserved={"--safe": "leave it out"}, alike={"page size": ("page",)},
)  # fmt: skip


class NewEngine(LlamacppEngine):
    type: Literal["new"] = "new"  # type: ignore[assignment]


def planned(spec: DeploymentSpec) -> Any:
    return plan_deployment(spec, FRONT, SITE).workload.groups


def test_a_new_engine_of_a_swarm_needs_one_registration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(ENGINES, "new", NEW)
    words = {"model": "m", "gpus_per_replica": 8, "api_key": {"env": "K"}, "args": ["--a"]}
    slurm = {"type": "slurm", "partition": "p", "account": "a", "qos": "q"}
    spec = SwarmSpec.model_validate({**words, "backend": slurm}).model_copy(update={"engine": "new"})
    full = derive(spec, Context()).spec
    assert (full.watchdog.http_path, full.spanning) == ("/up", "engine")
    replica = plan_swarm(full, Context(python="/env/bin/python"), name="s").groups[0]
    assert replica.command.argv == (
        "/env/bin/python", "-m", "new.server", "run", "--model", "m", "--role", "agg", "--a",
    )  # fmt: skip
    assert replica.command.secret_env["NEW_KEY"].env == "K"
    assert replica.probe is not None
    assert (replica.probe.path, replica.probe.bearer, replica.metrics_path) == ("/up", "NEW_KEY", "/counts")
    assert replica.spread is not None
    assert (replica.spread.nodes, replica.spread.member) == (2, [*replica.command.argv])
    assert not any("no API key" in note for note in notes(full))
    server = tmp_path / "server"
    server.write_text("#!/bin/sh\n[ \"$*\" = 'run --flags' ] && echo '  --bee  a flag'\n")
    server.chmod(0o700)
    named = full.model_copy(update={"engine_path": str(server)})
    assert unknown_arguments(named, "python", StatePaths(tmp_path)) == ("new does not know --a",)
    with pytest.raises(InputError, match="`args` contains --safe") as error:
        NEW.render(full.model_copy(update={"args": ("--safe=1",)}), "py")
    assert error.value.hint == "leave it out"


def test_a_new_engine_of_a_deployment_needs_one_registration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "new", NEW)
    roles = {"prefill": {"args": {"page": 1}}, "decode": {"args": {"page": 2}}}
    spec = deployment("llamacpp", "smg", "prefill", roles=roles).model_copy(update={"engine": NewEngine()})
    prefill, decode, *_ = planned(spec)
    assert prefill.command.argv == (
        "/env/bin/python", "-m", "new.server", "run", "--model", "org/m", "--role", "prefill", "--page", "1",
    )  # fmt: skip
    assert (decode.probe.path, decode.metrics_path, decode.fatal_lines) == ("/up", "/counts", ("it is over",))
    assert help_argv(spec, "decode", "py") == ("py", "-m", "new.server", "run", "--flags")
    told = [finding.sentence for finding in check_spec(spec)]
    assert told == ["the page size of decode is 2, and that of prefill 1: they must be the same"]
    found = check_flags(spec, "decode", "usage: x\n  --model M\n  --pages N\n")
    assert found is not None
    assert [finding.sentence for finding in found] == []


def test_the_program_of_an_engine_is_named_once() -> None:
    said = Counter(
        node.value
        for path in SOURCES.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    modules = [engine.program[0] for engine in ENGINES.values() if engine.program and "." in engine.program[0]]
    assert {name: said[name] for name in modules} == dict.fromkeys(modules, 1)
    assert "vllm.entrypoints.cli.main" in modules

"""What counts when somebody asks for the same again, and what is another server than the one that was measured."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.plan.identity import config_of, digest, fingerprint
from remuda.plan.model import Command, Group, Kind, Role, Workload
from remuda.specs.deployment import DeploymentSpec
from remuda.specs.swarm import SwarmSpec

SAID: dict[str, Any] = {"model": "m", "replicas": 2, "backend": {"type": "local", "endpoint": {"port": 9000}}}


def of(cwd: str = "/w", name: str = "n", text: str = "", **changes: Any) -> str:
    spec = SwarmSpec.model_validate({**SAID, **changes})
    return digest(spec, cwd=cwd, name=name, text=text, port=("backend", "endpoint", "port"))


@pytest.mark.parametrize(
    ("changes", "is_same"),
    [
        ({}, True),
        ({"engine": "vllm"}, True),  # the default, said
        ({"backend": {"type": "local"}}, True),  # the port that it has will do
        ({"backend": {"type": "local", "gpus": ["0"]}}, False),
        ({"replicas": 3}, False),
        ({"secret_env": {"KEY": {"env": "KEY"}}}, False),
        ({"cwd": "/elsewhere"}, False),
        ({"name": "o"}, False),
        ({"text": "#!/bin/sh"}, False),
    ],
)
def test_the_same_is_what_a_user_would_call_the_same(changes: dict[str, Any], is_same: bool) -> None:
    assert (of(**changes) == of()) is is_same


# --- what serves ------------------------------------------------------------------------------------------------------

SWARM: dict[str, Any] = {
    "model": "m", "cwd": "/w", "port": 8000, "replicas": 2, "args": ["--x"], "gpus_per_replica": 1,
    "backend": {"type": "slurm", "partition": "p", "account": "a", "qos": "q", "endpoint": {"port": 9000}},
}  # fmt: skip
DEPLOYMENT: dict[str, Any] = {
    "model": {"path": "/m/tiny"}, "engine": "vllm", "container": "/images/a.sqsh",
    "roles": {"prefill": {"args": {"tensor-parallel-size": 2}}, "decode": {"workers": 2, "env": {"A": "1"}}},
    "backend": {"type": "slurm", "sbatch_directives": {"constraint": "fast"}},
}  # fmt: skip
STAMPS = {"model": [("config.json", 10, 1), ("w.safetensors", 9000, 2)], "/images/a.sqsh": [("a.sqsh", 70, 3)]}
PLACES: dict[str, dict[str, list[Any]]] = {
    "swarm": {
        "name": ["other"], "home_directory": ["/h"], "log_level": ["debug"], "wait_endpoint_s": ["5m"], "port": [8100],
        "cwd": ["/elsewhere"], "backend.partition": ["big"], "backend.account": ["b"], "backend.qos": ["low"],
        "backend.time_limit": ["1:00:00"], "backend.endpoint.port": [9001], "backend.job.cpus_per_task": [9],
        "backend.mail_user": ["me@x.org"], "backend.exclude_nodes": ["n1"], "idle_timeout": ["9m"],
    },
    "deployment": {
        "name": ["other"], "home_directory": ["/h"], "identity": [{"a": "b"}], "api_key": [{"env": "KEY"}],
        "benchmark": [{"type": "sa-bench", "isl": 8, "osl": 8, "concurrencies": [1]}], "frontend.port": [8100],
        "frontend.host": ["0.0.0.0"], "backend.partition": ["big"], "backend.account": ["b"],
        "backend.frontend_partition": ["cpu"], "backend.time_limit": ["1:00:00"],
        "backend.sbatch_directives.time": ["9"], "backend.sbatch_directives.mail-user": ["me"],
        "backend.sbatch_directives.job_name": ["x"], "backend.sbatch_directives.--output": ["x"],
    },
}  # fmt: skip
"""Where, for how long, and for whom."""
SERVED: dict[str, dict[str, list[Any]]] = {
    "swarm": {
        "model": ["n", "m/2"], "replicas": [1, 3], "args": [[], ["--y"]], "gpus_per_replica": [2], "engine": ["sglang"],
        "env": [{"A": "1"}, {"A": "2"}], "router.policy": ["random"], "revision": ["abc"], "image": ["i"],
        "served_model_name": ["x"],
    },
    "deployment": {
        "model.path": ["/m/other"], "model.name": ["x"], "container": ["/images/b.sqsh"], "engine": ["sglang"],
        "roles.prefill.args": [{"tensor-parallel-size": 4}, {}], "roles.decode.workers": [1], "frontend.replicas": [2],
        "roles.decode.env": [{"A": "2"}], "env": [{"B": "1"}], "dynamo.event_plane": ["nats"], "gpu_type": ["h100"],
        "backend.sbatch_directives.constraint": ["slow"], "mounts": [{"/a": "/b"}],
    },
}  # fmt: skip
"""What serves, and how."""
MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "swarm": (SwarmSpec, SWARM),
    "deployment": (DeploymentSpec, DEPLOYMENT),
}


def config(kind: str, changes: dict[str, Any], stamps: dict[str, Any] = STAMPS) -> str:
    model, said = MODELS[kind]
    said = json.loads(json.dumps(said))
    for path, value in changes.items():
        *above, last = path.split(".")
        inner = said
        for part in above:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return fingerprint(model.model_validate(said).model_dump(mode="json"), stamps)


@st.composite
def changed(draw: st.DrawFn, table: dict[str, dict[str, list[Any]]], least: int) -> tuple[str, dict[str, Any]]:
    kind = draw(st.sampled_from(sorted(table)))
    paths = draw(st.lists(st.sampled_from(sorted(table[kind])), unique=True, min_size=least))
    return kind, {path: draw(st.sampled_from(table[kind][path])) for path in paths}


@given(changed(PLACES, 0))
def test_where_how_long_and_for_whom_is_no_part_of_what_serves(said: tuple[str, dict[str, Any]]) -> None:
    assert config(*said) == config(said[0], {})


@given(changed(SERVED, 1), st.data())
def test_whatever_else_a_document_says_is(said: tuple[str, dict[str, Any]], data: st.DataObject) -> None:
    kind, changes = said
    places = {path: data.draw(st.sampled_from(values)) for path, values in PLACES[kind].items()}
    assert config(kind, {**places, **changes}) != config(kind, places)


@pytest.mark.parametrize(
    "stamps",
    [
        pytest.param({}, id="not seen"),
        pytest.param({**STAMPS, "model": [("config.json", 10, 1), ("w.safetensors", 9000, 4)]}, id="written again"),
        pytest.param({**STAMPS, "model": [("config.json", 10, 1), ("w.safetensors", 9001, 2)]}, id="another size"),
        pytest.param({**STAMPS, "model": [("w.safetensors", 9000, 2)]}, id="a file less"),
        pytest.param({**STAMPS, "/images/a.sqsh": [("a.sqsh", 70, 9)]}, id="another image"),
        pytest.param({**STAMPS, "/env/bin/vllm": [("vllm", 1, 1)]}, id="another engine"),
    ],
)
def test_another_model_image_or_engine_is_another(stamps: dict[str, Any]) -> None:
    assert config("deployment", {}, stamps) != config("deployment", {})


def test_a_command_is_what_is_in_its_folder() -> None:
    said = {"engine": "command", "command": ["./serve", "{port}"]}
    assert config("swarm", said) != config("swarm", {**said, "cwd": "/elsewhere"})


@pytest.mark.parametrize(
    ("argv", "image", "stamped"),
    [
        (("/env/bin/vllm", "serve"), "", [("/m/tiny", ""), ("/env/bin/vllm", "")]),
        (("llama-server",), "", [("/m/tiny", ""), ("/bin/llama-server", "")]),
        (
            ("/env/bin/python", "-m", "sglang.launch_server"), "",
            [("/m/tiny", ""), ("/env/bin/python", ""), ("/env/bin/python", "sglang")],
        ),
        (("/env/bin/python", "-m", "sglang.launch_server"), "/i.sqsh", [("/m/tiny", ""), ("/i.sqsh", "")]),
    ],
)  # fmt: skip
def test_model_image_and_program_are_looked_at(
    argv: tuple[str, ...], image: str, stamped: list[tuple[str, str]]
) -> None:
    looked: list[tuple[str, str]] = []

    def stamp(path: str, module: str = "") -> list[Any]:
        looked.append((path, module))
        return []

    command = Command(argv=argv, image=image)
    groups = (
        Group(name="agg", role=Role.REPLICA, count=1, command=command),
        Group(name="frontend", role=Role.ROUTER, count=1, command=Command(argv=("front",))),
    )
    workload = Workload(name="w", kind=Kind.DEPLOYMENT, uid="u", backend="local", groups=groups, run_dir="/r")
    facts: Any = SimpleNamespace(stamp=stamp, program=lambda name: {"llama-server": "/bin/llama-server"}.get(name, ""))
    config_of(workload, DeploymentSpec.model_validate(DEPLOYMENT), "/m/tiny", facts)
    assert looked == stamped

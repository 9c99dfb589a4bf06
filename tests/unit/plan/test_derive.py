"""What is filled in, with the reason that `config show` prints; and what the user is told beside."""

from __future__ import annotations

import pytest

from remuda.plan.context import Context
from remuda.plan.derive import derive, name_base
from remuda.plan.notes import notes
from remuda.plan.swarm import plan_front, plan_swarm
from remuda.specs.reading.document import parse
from remuda.specs.reading.load import build
from remuda.specs.swarm import SwarmSpec

FACTS = Context(cpus=4, cwd="/here")


def spec_of(text: str) -> SwarmSpec:
    spec = build(parse(f"model: m\n{text}", "s.yaml")).spec
    assert isinstance(spec, SwarmSpec)
    return spec


def shown(text: str) -> dict[str, tuple[object, str]]:
    loaded = build(parse(f"model: org/M.gguf\n{text}", "s.yaml"))
    assert isinstance(loaded.spec, SwarmSpec)
    full = derive(loaded.spec, FACTS)
    return {row.path: (row.value, row.origin) for row in loaded.show(full.spec, full.reasons)}


@pytest.mark.parametrize(
    ("text", "path", "value", "origin"),
    [
        ("", "served_model_name", "M", "derived from model"),
        ("", "gpus_per_replica", 0, "derived from this machine"),
        ("replicas: 2", "cpus_per_task", 2, "derived from this machine"),
        ("replicas: 2", "router.policy", "cache_aware", "derived from replicas"),
        ("", "router.policy", None, "built-in"),
        ("router: nginx\nreplicas: 2", "router.policy", None, "built-in"),
        ("router: {policy: random}\nreplicas: 2", "router.policy", "random", "s.yaml:2"),
        ("engine: sglang", "watchdog.http_path", "/health", "derived from engine"),
        ("watchdog: {http_path: x}", "watchdog.http_path", "/x", "s.yaml:2"),
        ("log_level: debug", "watchdog.log_level", "debug", "derived from log_level"),
        ("watchdog: {enabled: false}", "watchdog.replace", "never", "derived from watchdog.enabled"),
        ("", "backend.endpoint.port", None, "derived when it starts: 9000, or the next free port"),
        ("", "cwd", "/here", "derived from where the command was typed"),
        ("home_directory: /h/\nbackend: {partition: p, account: a, qos: q}", "backend.log_directory", "/h/logs",
         "derived from home_directory"),
        ("backend: {partition: p, account: a, qos: q}", "gpus_per_replica", 4, "derived from gpus_per_node"),
        ("backend: fleet", "gpus_per_replica", 1, "derived from backend.type"),
        ("backend: {partition: p, account: a, qos: q}\nreplicas: 3\ngpus_per_replica: 2", "nodes", 2,
         "derived from replicas and replicas_per_node"),
    ],
)  # fmt: skip
def test_filled(text: str, path: str, value: object, origin: str) -> None:
    assert shown(text)[path] == (value, origin)


def test_deriving_again_changes_nothing() -> None:
    full = derive(spec_of("replicas: 3"), FACTS)
    again = derive(full.spec, FACTS)
    assert again.spec == full.spec
    assert again.reasons.keys() == {"backend.endpoint.port"}


@pytest.mark.parametrize(
    ("model", "base"),
    [("Qwen/Qwen3-0.6B", "qwen3-0-6b"), ("/models/Tiny.gguf", "tiny"), ("$(touch /tmp/x)", "x"), ("///", "swarm")],
)
def test_names_come_from_models(model: str, base: str) -> None:
    assert name_base(SwarmSpec(model=model)) == base


def test_front_keeps_the_wish_apart_from_the_demand() -> None:
    assert plan_front(spec_of("")).listen.fixed is False
    assert plan_front(spec_of("backend: {endpoint: {port: 9000}}")).listen.fixed is True


def test_the_only_replica_is_the_endpoint() -> None:
    spec = derive(spec_of("router: none\nwatchdog: {restart_policy: always}"), FACTS).spec
    plan = plan_swarm(spec, FACTS, name="s", spec_file="s.yaml")
    assert plan.spec_file == "s.yaml"
    assert plan.group("replica").listen == plan_front(spec, "").listen


def test_notes() -> None:
    text = "engine: sglang\nimage: x.sif\napi_key: {env: K}\nenv: {MY_TOKEN: a}\nwatchdog: {enabled: off}"
    said = notes(derive(spec_of(text), FACTS).spec)
    assert [line.split()[0] for line in said] == ["image", "the", "env", "the"]
    assert "only the router asks for it" in said[1]
    assert "'a'" not in " ".join(said)
    assert notes(derive(spec_of("api_key: {env: K}"), FACTS).spec) == ()

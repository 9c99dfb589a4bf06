"""What a deployment's document says of its service: planned, or refused with a sentence, whatever stands in front."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.deploymentcases import BALANCER, FRONT, SITE

from remuda.base.errors import InputError
from remuda.plan.deployment import has_balancer, plan_deployment
from remuda.plan.deployment.bench import TOLD, bench_group
from remuda.plan.deployment.terms import asked_as, host_of
from remuda.plan.model import HealthProbe, Replace, RestartRule, Secret, Succession
from remuda.specs.deployment import DeploymentSpec
from remuda.specs.reading.document import parse
from remuda.specs.recipe.load import build
from remuda.specs.schema import schema_of
from remuda.specs.service import ServiceFields
from remuda.specs.swarm import SwarmSpec

if TYPE_CHECKING:
    from remuda.plan.compile import Plan

KEY = {"env": "OUR_KEY"}
HOUR = 3600.0
#: Frontend -> an engine that stands behind it, and roles of it.
FRONTS: dict[str, tuple[str, dict[str, Any]]] = {
    "dynamo": ("mocker", {"prefill": {}, "decode": {"workers": 2}}),
    "smg": ("sglang", {"prefill": {"gpus": 1}, "decode": {"workers": 2, "gpus": 1}}),
    "vllm-router": ("vllm", {"agg": {"workers": 2, "gpus": 1}}),
    "nginx": ("llamacpp", {"agg": {"workers": 2, "gpus": 1}}),
    "none": ("vllm", {"agg": {"gpus": 1}}),
}
LOAD = {"type": "sa-bench", "isl": 8, "osl": 8, "concurrencies": [1]}
UNTIL = "2:00:00"


def spec_of(front: str, backend: str = "local", **said: Any) -> DeploymentSpec:
    """A deployment behind that frontend; `frontend` and `roles` are added to."""
    engine, roles = FRONTS[front]
    place = {"type": backend} | ({"time_limit": UNTIL, "partition": "p"} if backend == "slurm" else {})
    document = {
        "name": "d", "model": {"path": "/m", "name": "m"}, "engine": engine, "roles": roles, "backend": place, **said,
        "frontend": {"type": front, **said.get("frontend", {})},
    }  # fmt: skip
    return DeploymentSpec.model_validate(document)


def planned(spec: DeploymentSpec) -> Plan:
    front = None if spec.frontend.type == "none" else FRONT
    return plan_deployment(spec, front, SITE, BALANCER if has_balancer(spec) else None)


def refused(front: str, backend: str = "local", **said: Any) -> tuple[str, str]:
    """Where and why nothing is planned."""
    with pytest.raises(InputError) as caught:
        planned(spec_of(front, backend, **said))
    return caught.value.where, caught.value.message.removeprefix(f"{caught.value.where}: ")


# --- the key ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("front", "asks", "engine_key", "note"),
    [
        ("dynamo", "balancer", "", "Dynamo's frontend and workers take none"),
        ("smg", "frontend", "", "workers of sglang take none"),
        ("vllm-router", "frontend", "VLLM_API_KEY", ""),
        ("nginx", "frontend", "REMUDA_ENGINE_KEY", ""),
        ("none", "", "VLLM_API_KEY", ""),
    ],
)
def test_who_has_the_key(front: str, asks: str, engine_key: str, note: str) -> None:
    spec = spec_of(front, api_key=KEY)
    plan = planned(spec)
    endpoint = plan.workload.endpoint
    assert endpoint is not None
    assert (endpoint.api_key, endpoint.router, endpoint.host) == (Secret(env="OUR_KEY"), asks, "127.0.0.1")
    assert (asked_as(spec).api_key, asked_as(spec).model) == (Secret(env="OUR_KEY"), "m")
    for group in (group for group in plan.workload.groups if group.role.serves):
        assert group.command.secret_env == ({engine_key: Secret(env="OUR_KEY")} if engine_key else {})
        assert group.probe is not None
        assert group.probe.bearer == engine_key
        assert ("--api-key-env" in group.command.argv) is (front == "nginx")
    whence = "so whoever reaches their ports on this machine asks them without it"
    assert [one for one in plan.notes if "api_key" in one] == ([f"api_key: {note}, {whence}"] if note else [])


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize(
    ("backend", "said", "host", "is_open"),
    [
        ("local", {}, "127.0.0.1", False),
        ("local", {"api_key": KEY}, "127.0.0.1", False),
        ("slurm", {}, "127.0.0.1", False),
        ("slurm", {"api_key": KEY}, "0.0.0.0", True),
        ("slurm", {"api_key": KEY, "frontend": {"host": "127.0.0.1"}}, "127.0.0.1", False),
        ("slurm", {"frontend": {"host": "10.0.0.7"}}, "10.0.0.7", True),
        ("local", {"frontend": {"host": "localhost"}}, "localhost", False),
    ],
)
def test_where_the_endpoint_listens(front: str, backend: str, said: dict[str, Any], host: str, is_open: bool) -> None:
    spec = spec_of(front, backend, **said)
    plan = planned(spec)
    endpoint = plan.workload.endpoint
    assert endpoint is not None
    assert (host_of(spec), endpoint.host) == (host, host)
    listen = plan.workload.group(endpoint.relay or "agg").listen
    assert listen is not None
    assert listen.public is is_open
    told = f"frontend.host is {host}: whoever reaches this machine can ask it, without a key: set `api_key`"
    assert (told in plan.notes) is (is_open and spec.api_key is None)


def test_one_of_dynamos_frontends_stands_behind_smg_where_a_key_is_asked_for() -> None:
    workload = planned(spec_of("dynamo", api_key=KEY)).workload
    assert [group.name for group in workload.groups] == ["prefill", "decode", "frontend", "balancer", "relay", "gate"]
    assert (workload.group("frontend").count, workload.endpoint and workload.endpoint.behind) == (1, "frontend")
    assert workload.front is not None
    assert workload.front.router == "smg"


@pytest.mark.parametrize("bench", ["sa-bench", "custom"])
def test_a_benchmark_has_the_key(bench: str) -> None:
    block = LOAD if bench == "sa-bench" else {"type": "custom", "command": "x"}
    spec = spec_of("smg", api_key=KEY, benchmark=block, secret_env={"OTHER": {"file": "/o"}})
    group = bench_group(planned(spec).workload, spec, python="p", home="/h", cwd="/c")
    assert group is not None
    theirs = {"OTHER": Secret(file="/o")} if bench == "custom" else {}
    assert group.command.secret_env == {"OPENAI_API_KEY": Secret(env="OUR_KEY"), **theirs}
    assert json.loads(group.command.files[TOLD]).get("key_env", "OPENAI_API_KEY") == "OPENAI_API_KEY"
    own = spec_of("smg", api_key=KEY, benchmark={"type": "custom", "command": "x", "env": {"OPENAI_API_KEY": "mine"}})
    group = bench_group(planned(own).workload, own, python="p", home="/h", cwd="/c")
    assert group is not None
    assert group.command.secret_env == {}, "what it says itself counts"


# --- how long --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize(
    ("backend", "said", "expected"),
    [
        ("local", {"lifetime": "7d"}, None),
        ("slurm", {}, None),
        ("slurm", {"lifetime": "7d"}, Succession(lead_s=HOUR / 2, drain_s=600.0, follows_queue=True)),
        ("slurm", {"lifetime": "7d", "handover": "10m", "drain": "1m"}, Succession(lead_s=600.0, drain_s=60.0)),
    ],
)
def test_who_has_successors(front: str, backend: str, said: dict[str, Any], expected: Succession | None) -> None:
    if front == "dynamo" and expected is not None:
        why = "Dynamo's workers list themselves: none can be taken out before its successor takes over"
        assert refused(front, backend, **said) == ("lifetime", f"jobs end after 2h, and {why}")
        return
    workload = planned(spec_of(front, backend, **said)).workload
    assert workload.lifetime_s == (7 * 24 * HOUR if "lifetime" in said else 0)
    found = {group.name: group.succession for group in workload.groups}
    assert {name: one for name, one in found.items() if name in ("relay", "gate")} == dict.fromkeys(
        ["relay", "gate"] if "relay" in found else ["gate"]
    )
    assert {one for name, one in found.items() if name not in ("relay", "gate")} == {expected}


def test_a_lifetime_that_jobs_outlive_needs_no_successor() -> None:
    workload = planned(spec_of("dynamo", "slurm", lifetime="1h", services=[{"name": "etcd", "type": "etcd"}])).workload
    assert workload.lifetime_s == HOUR
    assert workload.group("etcd").succession is None


@pytest.mark.parametrize("front", FRONTS)
def test_idle_is_known_where_requests_are_counted(front: str) -> None:
    who = {
        "dynamo": "Dynamo's frontend does not count", "nginx": "nginx does not count",
        "none": "without a frontend no requests are counted",
    }  # fmt: skip
    if front in who:
        assert refused(front, idle_timeout="30m") == ("idle_timeout", f"{who[front]} what clients ask")
    else:
        assert planned(spec_of(front, idle_timeout="30m")).workload.idle_timeout_s == HOUR / 2
    keyed = spec_of("dynamo", idle_timeout="30m", api_key=KEY)
    assert planned(keyed).workload.idle_timeout_s == HOUR / 2, "smg stands before it"


# --- how it is watched -----------------------------------------------------------------------------------------------


def test_what_nobody_says_is_as_it_was() -> None:
    for front in FRONTS:
        for group in (group for group in planned(spec_of(front, "slurm")).workload.groups if group.role.serves):
            assert group.probe is not None
            usual = HealthProbe(path=group.probe.path, interval_s=5.0, timeout_s=5.0, startup_timeout_s=1800.0)
            assert (group.probe, group.restart, group.replace) == (usual, RestartRule(), Replace())
            assert (group.kill_grace_s, group.silence_s, group.log_level) == (20.0, 60.0, "info")
            assert (group.record_interval_s, group.scan_log) == (0.0, True)


FIELDS = [
    ({"watchdog": {"probe_interval": 7}}, "probe.interval_s", 7.0),
    ({"watchdog": {"http_path": "well"}}, "probe.path", "/well"),
    ({"watchdog": {"http_timeout": 3}}, "probe.timeout_s", 3.0),
    ({"watchdog": {"readiness_timeout": 33}}, "probe.startup_timeout_s", 33.0),
    ({"health_check": {"max_attempts": 2}}, "probe.startup_timeout_s", 20.0),
    ({"watchdog": {"stall_after": 55}}, "probe.stall_s", 55.0),
    ({"watchdog": {"unhealthy_restart_after": 44}}, "probe.unhealthy_restart_after_s", 44.0),
    ({"watchdog": {"restart_policy": "always"}}, "restart.policy", "always"),
    ({"watchdog": {"restart_policy": "never"}}, "replace.policy", "never"),
    ({"watchdog": {"restart_policy": "never", "replace": "always"}}, "replace.policy", "always"),
    ({"watchdog": {"max_restarts": 9}}, "restart.max_restarts", 9),
    ({"watchdog": {"heal_after": 66}}, "replace.heal_after_s", 66.0),
    ({"watchdog": {"max_replacements": 8}}, "replace.max_failures", 8),
    ({"watchdog": {"kill_grace_seconds": 21}}, "kill_grace_s", 21.0),
    ({"watchdog": {"silence_after": 77}}, "silence_s", 77.0),
    ({"watchdog": {"log_level": "debug"}}, "log_level", "debug"),
    ({"log_level": "warning"}, "log_level", "warning"),
    ({"profile": "10Hz"}, "record_interval_s", 0.1),
]  # fmt: skip


@pytest.mark.parametrize(("said", "where", "expected"), FIELDS, ids=str)
def test_each_word_reaches_the_workers(said: dict[str, Any], where: str, expected: object) -> None:
    for front in FRONTS:
        for group in planned(spec_of(front, "slurm", **said)).workload.groups:
            value: Any = group
            for name in where.split(".") if group.role.serves else ():
                value = getattr(value, name)
            assert value == (expected if group.role.serves else group)


# --- what cannot be --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("front", "said", "where", "sentence"),
    [
        ("none", {"engine": "sglang", "api_key": KEY}, "api_key",
         "sglang cannot be given a key in secret, and no router checks it"),
        ("nginx", {"api_key": KEY, "roles": {"agg": {"args": {"api_key": "x"}}}}, "roles.agg.args.api_key",
         "a key on a command line is visible to all users"),
        ("none", {"api_key": KEY, "roles": {"agg": {"extra_args": "--api-key x"}}}, "roles.agg.extra_args",
         "a key on a command line is visible to all users"),
        ("smg", {"api_key": KEY, "frontend": {"args": {"api-key": "x"}}}, "frontend.args.api-key",
         "a key on a command line is visible to all users"),
        ("smg", {"lifetime": "1d", "benchmark": LOAD}, "lifetime", "a deployment with a benchmark ends with it"),
        ("smg", {"ready": "first", "benchmark": LOAD}, "ready", "a benchmark is for all workers"),
        ("smg", {"handover": "1h"}, "handover",
         "successors are submitted for jobs of a cluster, and with a `lifetime` only"),
        ("smg", {"handover": "1h", "lifetime": "1d"}, "handover",
         "successors are submitted for jobs of a cluster, and with a `lifetime` only"),
        ("smg", {"watchdog": {"enabled": False}}, "watchdog.enabled",
         "a deployment is asked once its workers are ready, and without probes that is unknown"),
        ("smg", {"watchdog": {"ray": {"enabled": True}}}, "watchdog.ray", "workers span nodes without Ray"),
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_kept_is_refused(front: str, said: dict[str, Any], where: str, sentence: str) -> None:
    assert refused(front, **said) == (where, sentence)


@pytest.mark.parametrize(
    ("said", "where", "sentence"),
    [
        ({"services": [{"name": "etcd", "type": "etcd"}]}, "lifetime",
         "jobs end after 2h, and the service etcd cannot have a successor"),
        ({"allocation": "one-job"}, "lifetime", "jobs end after 2h, and all parts are one job, which has no successor"),
        ({"handover": "2h"}, "handover",
         ("`handover` is 2h, and the time limit of the prefill is 2h: "
          "successors would follow each other without a pause")),
        ({"roles": {"agg": {"workers": 501, "gpus": 0}}}, "roles.agg.workers",
         "agg has 501 tasks, and with a `lifetime` 500 at most can have successors"),
    ],
    ids=str,
)  # fmt: skip
def test_a_lifetime_that_cannot_be_kept_is_refused(said: dict[str, Any], where: str, sentence: str) -> None:
    assert refused("smg", "slurm", lifetime="1d", **said) == (where, sentence)


# --- where it is said ------------------------------------------------------------------------------------------------

RECIPE = """\
schema: 2
model: {path: /m, name: m}
engine: sglang
roles: {prefill: {}, decode: {}}
frontend: {type: sglang-router}
"""
WORDS = """\
api_key: {env: OUR_KEY}
ready: first
lifetime: 1d
handover: 10m
drain: 1m
idle_timeout: 30m
log_level: debug
watchdog: {probe_interval: 3}
profile: 10Hz
"""


@pytest.mark.parametrize("text", [RECIPE, RECIPE.replace("schema: 2\n", "kind: deployment\n")], ids=["recipe", "own"])
def test_a_recipe_takes_the_same_words(text: str) -> None:
    (recipe,) = build(parse(text + WORDS, "r.yaml"))
    said = recipe.loaded.spec.model_dump(exclude_unset=True)
    assert ServiceFields.model_fields.keys() <= said.keys()
    assert (said["lifetime"], said["watchdog"], said["profile"]) == (24 * HOUR, {"probe_interval": 3.0}, "10Hz")
    assert next(iter(said)) == "kind", "a document says what it is before how it is kept"


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("api_key: sk-1", "r.yaml:6:10: `api_key` must say where the secret is, not be the secret"),
        ("watchdog: {probe_intervall: 3}", "r.yaml:6:12: unknown key 'probe_intervall' in `watchdog`"),
        ("lifetime: soon", "r.yaml:6:11: `lifetime` must be a duration, not 'soon'"),
        ("ready: some", "r.yaml:6:8: `ready` must be one of first, all, not some"),
        ("profile: often", "r.yaml:6:10: `profile` must say how often"),
    ],
)
def test_a_wrong_word_is_named_with_its_place(line: str, error: str) -> None:
    for text in (RECIPE, RECIPE.replace("schema: 2\n", "kind: deployment\n")):
        with pytest.raises(InputError) as caught:
            build(parse(f"{text}{line}\n", "r.yaml"))
        assert str(caught.value).startswith(error)


def test_both_kinds_say_it_in_the_same_words() -> None:
    assert issubclass(SwarmSpec, ServiceFields)
    assert issubclass(DeploymentSpec, ServiceFields)
    for kind in ("swarm", "deployment"):
        assert ServiceFields.model_fields.keys() <= schema_of(kind)["properties"].keys()

"""What a document says of Slurm that is done otherwise than it may suggest."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from remuda.backends.base import Cluster, Node, PoolInfo
from remuda.base.errors import BackendUnreachable
from remuda.plan.compile import Draft
from remuda.plan.context import Context
from remuda.plan.derive import derive
from remuda.plan.notes import notes
from remuda.plan.placing.cluster import replica_resources
from remuda.plan.swarm import compile_swarm, plan_front, plan_swarm
from remuda.specs.reading.document import parse
from remuda.specs.reading.load import build
from remuda.specs.reading.resolve import Override
from remuda.specs.swarm import SwarmSpec

SLURM = {"type": "slurm", "partition": "p", "account": "a", "qos": "q"}


def spec_of(backend: dict[str, object], **values: object) -> SwarmSpec:
    spec = SwarmSpec.model_validate({"model": "m", "gpus_per_replica": 1, "backend": {**SLURM, **backend}, **values})
    return derive(spec, Context(cwd="/here")).spec


@pytest.mark.parametrize(
    ("backend", "values", "said"),
    [
        ({}, {}, ()),
        ({"log_directory": "/h/logs"}, {"home_directory": "/h"}, ()),
        (
            {"ray_port": 7000, "template_path": "t", "log_directory": "/l", "endpoint": {"nginx_image": "n.sif"}},
            {},
            ("not used on Slurm: backend.template_path, backend.endpoint.nginx_image",),
        ),
        (
            {},
            {"replicas": 4, "replicas_per_node": 2},
            ("each replica's job holds 2 GPUs, so that no node has more than 2 replicas",),
        ),
    ],
)
def test_notes(backend: dict[str, object], values: dict[str, object], said: tuple[str, ...]) -> None:
    assert notes(spec_of(backend, **values)) == said


@pytest.mark.parametrize(
    ("text", "flags", "said"),
    [
        pytest.param("", (), (), id="what was derived, or is the environment's, nobody has said"),
        pytest.param("spanning: ray\nnodes: null\n", (), ("not used on Kubernetes: spanning",), id="the document"),
        pytest.param(
            "home_directory: /h\n",
            ("--set nodes",),
            ("not used on Kubernetes: --set nodes, home_directory",),
            id="both",
        ),
        pytest.param(
            "engine: llamacpp\nengine_path: /app/server\n",
            (),
            ("the model m is looked for in the image and its mounts: no file of this machine is in pods",),
            id="a path",
        ),
    ],
)
def test_notes_on_pods_are_of_what_the_user_wrote(text: str, flags: tuple[str, ...], said: tuple[str, ...]) -> None:
    document = f"model: m\nimage: reg/vllm:1\nrouter: none\nbackend: {{type: kubernetes}}\n{text}"
    loaded: Any = build(
        parse(document, "s.yaml"),
        [Override(flag.split()[1], 2, flag) for flag in flags],
        settings={"HOME": ("/state", "environment REMUDA_HOME")},
    )
    facts: Any = SimpleNamespace(program=lambda _: "", stamp=lambda *_: [])
    assert compile_swarm(Draft(loaded, "chat"), Context(), facts).notes == said


@pytest.mark.parametrize(
    ("said", "unused"),
    [
        ({}, ()),
        (
            {"endpoint": {"partition": "cpu", "mem": "1GB", "port": 9100}, "job": {"mem": "1GB"}},
            ("not used on a fleet: backend.endpoint.partition, backend.endpoint.mem, backend.job",),
        ),
    ],
)
def test_in_a_fleet_the_router_is_here_and_has_the_address(said: dict[str, object], unused: tuple[str, ...]) -> None:
    document = {"model": "m", "replicas": 2, "backend": {"type": "fleet", **said}}
    spec = derive(SwarmSpec.model_validate(document), Context(cwd="/here")).spec
    assert notes(spec) == unused
    workload = plan_swarm(spec, Context(state="/s"), name="herd")
    assert (workload.backend, workload.is_asked_here) == ("slurm", True)
    where = {group.name: (group.backend, group.silence_s, group.resources.gpus) for group in workload.groups}
    assert where == {"replica": ("", 60.0, 1), "router": ("local", 0.0, 0)}
    assert workload.endpoint is not None
    assert (workload.endpoint.relay, workload.endpoint.host) == ("", "127.0.0.1")
    listen = workload.group("router").listen
    assert listen is not None
    assert (listen.public, listen.fixed) == (False, bool(said))


def test_in_a_fleet_a_replica_without_a_router_has_a_relay_before_it() -> None:
    document = {"model": "m", "router": "none", "backend": "fleet", "api_key": {"env": "KEY"}}
    workload = plan_swarm(derive(SwarmSpec.model_validate(document), Context()).spec, Context(), name="herd")
    assert {group.name: group.backend for group in workload.groups} == {"replica": "", "relay": "local"}
    assert workload.endpoint is not None
    assert (workload.endpoint.relay, workload.endpoint.host, workload.is_asked_here) == ("relay", "0.0.0.0", True)


def test_the_routers_job_may_leave_the_partition_of_gpus() -> None:
    front = plan_front(spec_of({"partition": "gpu", "endpoint": {"partition": "cpu"}}))
    assert [pool.place for pool in front.pools] == [{"partition": "cpu", "node_list": ""}]
    assert plan_front(spec_of({"partition": "gpu"})).pools == ()


def test_the_routers_job_is_small() -> None:
    usual = plan_front(spec_of({})).resources
    assert (usual.cpus, usual.mem_bytes, usual.gpus) == (2, 2 << 30, 0)
    spec = spec_of({"endpoint": {"cpus_per_task": 2, "mem": "1GB", "wall_time": "2-00:00:00"}})
    resources = plan_front(spec).resources
    assert (resources.cpus, resources.mem_bytes, resources.time_limit_s) == (2, 1 << 30, 172800.0)
    assert resources.gpus == 0


@pytest.mark.parametrize(
    ("backend", "values", "planned"),
    [
        pytest.param({}, {}, (0, 1), id="the scheduler's own"),
        pytest.param({"mem": "64GB"}, {}, (64 << 30, 1), id="a share of a node"),
        pytest.param({"mem": "1.5GB"}, {"replicas": 4, "replicas_per_node": 2}, (3 << 29, 1), id="packed"),
        pytest.param({"mem": "200GB"}, {"gpus_per_replica": 8}, (200 << 30, 2), id="on each of two nodes"),
    ],
)
def test_the_memory_of_a_replica(
    backend: dict[str, object], values: dict[str, object], planned: tuple[int, int]
) -> None:
    resources = replica_resources(spec_of(backend, **values))
    assert (resources.mem_bytes, resources.nodes) == planned
    assert resources.mem_field == "backend.mem"


def nodes(*sizes: tuple[int, int]) -> tuple[Node, ...]:
    return tuple(
        Node(f"n{number}", "idle", usable=True, pools=("p",), cpus=cpus, gpus=gpus)
        for number, (cpus, gpus) in enumerate(sizes)
    )


@pytest.mark.parametrize(
    ("said", "found", "cpus", "why"),
    [
        pytest.param({}, nodes((64, 4), (16, 4)), 8, "derived from the nodes of p", id="the smallest node's share"),
        pytest.param({}, nodes((128, 4)), 16, "derived from replicas_per_node", id="never more than the default"),
        pytest.param(
            {}, nodes((128, 4), (8, 0), (8, 1)), 16, "derived from replicas_per_node", id="nodes that have its GPUs"
        ),
        pytest.param({"cpus_per_task": 12}, nodes((16, 4)), 12, None, id="what is said"),
        pytest.param({}, None, 16, "derived from replicas_per_node", id="a cluster that does not answer"),
        pytest.param(
            {"gpus_per_replica": 0, "cpus_per_task": None},
            nodes((4, 0)),
            4,
            "derived from the nodes of p",
            id="no GPUs",
        ),
    ],
)
def test_cpus_by_default_go_with_the_gpus(
    said: dict[str, object], found: tuple[Node, ...] | None, cpus: int, why: str | None
) -> None:
    def cluster() -> Cluster:
        if found is None:
            raise BackendUnreachable("nobody answers")
        return Cluster(found, (PoolInfo("p"),))

    document = {"kind": "swarm", "model": "m", "gpus_per_replica": 2, "router.type": "none",
                "backend": {"type": "slurm", "partition": "p", "account": "a", "qos": "q"}, **said}  # fmt: skip
    loaded: Any = build(None, [Override(key, value, "test") for key, value in document.items() if value is not None])
    facts: Any = SimpleNamespace(cluster=cluster, program=lambda _: "", stamp=lambda *_: [])
    plan = compile_swarm(Draft(loaded, "chat"), Context(), facts)
    assert plan.workload.group("replica").resources.cpus == cpus
    assert plan.derived.get("cpus_per_task") == why

"""What is sent for a task: valid for every server that is served, and nothing of it but what was said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from remuda.backends.base import Request, TaskKey, make_token
from remuda.backends.kubernetes.render import (
    KubernetesSite,
    cluster_of,
    job_name,
    labels_of,
    node_program,
    objects_of,
    render,
    selector,
)
from remuda.base.errors import InputError
from remuda.node.zipapp import deflated
from remuda.plan.model import Command, Group, Kind, Resources, Role, Secret, Watch, Workload
from remuda.wire.child import ChildSpec

SERVERS = ("1.29", "1.30", "1.31", "1.32", "1.33", "1.34", "1.35", "1.36", "1.37")
SITE = KubernetesSite(Path("/s/workloads"), Path("/s/host.json"), deflated, "7@here")


def request(
    place: dict[str, object] | None = None, *, exclude: tuple[str, ...] = (), needs: Resources | None = None,
    **said: Any,
) -> Request:  # fmt: skip
    command = Command(
        **{"argv": ("__REMUDA_FILES__/train.sh",), "image": "reg/t:1", "files": {"train.sh": "#!/bin/sh\n"}, **said}
    )
    group = Group(name="script", role=Role.SCRIPT, count=1, command=command, resources=needs or Resources(),
                  watch=Watch(), kill_grace_s=60.0)  # fmt: skip
    workload = Workload(name="w", kind=Kind.RUN, uid="abcdefgh", backend="kubernetes", groups=(group,),
                        run_dir="/s/workloads/w", place=place or {})  # fmt: skip
    key = TaskKey("w", "script", 0)
    return Request(key, 2, make_token(key, 2, "abcdefgh"), workload, group, exclude_nodes=exclude)


ALL = {
    "kubeconfig": "/k", "context": "c", "namespace": "ml", "service_account": "sa", "ttl": 60.0,
    "python": "/opt/python3",
    "mounts": ["data:/data:ro", "data:/out"], "queue": "gpus", "security": "restricted", "run_as_user": 1000,
    "runtime_class": "gvisor", "gpu_resource": "amd.com/gpu",
    "node_selector": ["zone=a", "fast="], "tolerations": ["a=b:NoExecute", "c"], "image_pull_secrets": ["pull"],
}  # fmt: skip
NEEDS = Resources(gpus=2, gpu_type="H100", cpus=4, mem_bytes=2**30, time_limit_s=90.0)


@pytest.mark.parametrize("server", SERVERS)
def test_servers_take_it(server: str) -> None:
    import kubernetes_validate

    secrets = {"KEY": Secret(file="/s/key"), "TOKEN": Secret(secret="hub/token")}
    for one in (request(), request(ALL, exclude=("n1", "n2"), needs=NEEDS, secret_env=secrets)):
        for doc in (*objects_of(render(one, SITE)), node_program(SITE)):
            kubernetes_validate.validate(doc, server, strict=True)


def test_what_was_said_is_sent() -> None:
    item = render(request(ALL, exclude=("n1", "n2"), needs=NEEDS), SITE)
    job, secret = objects_of(item)
    assert cluster_of(item) == {"kubeconfig": "/k", "context": "c", "namespace": "ml"}
    assert job["metadata"]["namespace"] == secret["metadata"]["namespace"] == "ml"
    spec = job["spec"]
    assert (spec["suspend"], spec["activeDeadlineSeconds"], spec["ttlSecondsAfterFinished"]) == (True, 90, 3600)
    assert spec["template"]["metadata"]["annotations"] == job["metadata"]["annotations"], "it may outlive its Job"
    pod = spec["template"]["spec"]
    assert pod["nodeSelector"] == {"zone": "a", "fast": "", "nvidia.com/gpu.product": "H100"}
    assert pod["tolerations"] == [
        {"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute"},
        {"key": "c", "operator": "Exists"},
    ]
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    assert (pod["serviceAccountName"], pod["terminationGracePeriodSeconds"]) == ("sa", 65)
    (container,) = pod["containers"]
    assert container["command"][0] == "/opt/python3"
    assert container["resources"] == {
        "limits": {"memory": "1073741824", "amd.com/gpu": "2"},
        "requests": {"memory": "1073741824", "amd.com/gpu": "2", "cpu": "4"},
    }
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert pod["securityContext"] == {
        "runAsUser": 1000, "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}
    }  # fmt: skip
    assert pod["runtimeClassName"] == "gvisor"
    claims = [one for one in pod["volumes"] if "persistentVolumeClaim" in one]
    assert claims == [{"name": f"claim-{n}", "persistentVolumeClaim": {"claimName": "data"}} for n in range(2)]
    assert {"name": "claim-0", "mountPath": "/data", "readOnly": True} in container["volumeMounts"]
    assert {"name": "claim-1", "mountPath": "/out"} in container["volumeMounts"]
    assert job["metadata"]["annotations"]["remuda.dev/queue"] == "gpus"
    assert "kueue.x-k8s.io/queue-name" not in job["metadata"]["labels"], "it is let go when it is recorded"
    assert {"name": "shm", "emptyDir": {"medium": "Memory"}} in pod["volumes"]
    avoided = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (expression,) = avoided["nodeSelectorTerms"][0]["matchExpressions"]
    assert expression == {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n1", "n2"]}


def test_gpus_bear_their_own_taint_and_nothing_else_is_asked_for() -> None:
    pod = objects_of(render(request(needs=Resources(gpus=1)), SITE))[0]["spec"]["template"]["spec"]
    assert pod["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    bare = objects_of(render(request(), SITE))[0]
    assert (
        not {"tolerations", "nodeSelector", "affinity", "securityContext", "runtimeClassName"}
        & bare["spec"]["template"]["spec"].keys()
    )
    assert "activeDeadlineSeconds" not in bare["spec"]
    assert "namespace" not in bare["metadata"]


def test_words_reach_the_program_verbatim_and_by_the_secret_alone() -> None:
    words = ("$(HOME)", "$$", "path", "ä", "'\"\\")
    job, secret = objects_of(render(request(argv=("run", *words), env={"A": "$(B)"}), SITE))
    child = ChildSpec.from_json(secret["stringData"]["child.json"])
    assert child.argv == ["run", *words]
    assert child.env == {"A": "$(B)"}
    assert child.away is not None
    assert "$" not in json.dumps(job)


def test_values_of_secrets_are_not_rendered() -> None:
    job, secret = objects_of(render(request(secret_env={"KEY": Secret(file="/s/key"), "B": Secret(env="C")}), SITE))
    data = secret["stringData"]
    assert {name: data[name] for name in data if name != "child.json"} == {
        "of-secret.KEY": '{"file":"/s/key"}', "of-secret.B": '{"env":"C"}',
    }  # fmt: skip
    assert ChildSpec.from_json(data["child.json"]).secret_env["KEY"] == {"file": "/remuda/own/of-secret.KEY"}
    assert "key" not in json.dumps(job["spec"]["template"]["spec"]["containers"])


def test_a_secret_of_the_namespace_is_only_named() -> None:
    job, secret = objects_of(render(request(secret_env={"TOKEN": Secret(secret="hub/token")}), SITE))
    (container,) = job["spec"]["template"]["spec"]["containers"]
    named = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}
    assert container["env"][1:] == [named]
    assert [*secret["stringData"]] == ["child.json"]
    assert ChildSpec.from_json(secret["stringData"]["child.json"]).secret_env == {"TOKEN": {"env": "TOKEN"}}


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (request(image=""), "a task on Kubernetes needs an image"),
        (request(needs=Resources(nodes=2)), "a pod is on one node"),
        (request({"zone": "q"}), "w: place.zone: Extra inputs are not permitted"),
        (request(files={"train.sh": "x" * 1_000_001}), "script and settings are 1,001,"),
    ],
)
def test_what_cannot_be_asked_for(one: Request, said: str) -> None:
    with pytest.raises(InputError) as caught:
        render(one, SITE)
    assert said in str(caught.value)


def test_names_are_labels_of_dns_and_differ_with_the_token() -> None:
    tokens = [make_token(TaskKey("w" * 60, "g_" * 30, number), 1, "abcdefgh-1000") for number in (0, 1, 11)]
    names = {job_name(token) for token in tokens}
    assert len(names) == 3
    assert all(len(f"{name}-0") <= 63 and name.replace("-", "").isalnum() and name.islower() for name in names)
    other = KubernetesSite(Path("/t/workloads"), Path("/t/host.json"), deflated, "7@here")
    assert selector(labels_of(SITE)) != selector(labels_of(other))
    assert labels_of(SITE, home=False) == labels_of(other, home=False)


def test_the_node_program_is_small_and_as_named() -> None:
    name, data = deflated()
    doc = node_program(SITE)
    assert doc["metadata"]["name"] == f"remuda-node-{name}"
    assert doc["immutable"] is True
    assert len(data) < 250_000

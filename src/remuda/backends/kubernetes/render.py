"""From a request to the objects that run it: a Job, and a Secret with all that its container reads. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from remuda.backends.base import Rendered, read_token
from remuda.backends.rundir import allocation_dir, child_spec
from remuda.base.errors import InputError
from remuda.node.child.launch import ADDRESS_VARIABLE, NODE_VARIABLE
from remuda.plan.placing.place import KubernetesPlace, placed
from remuda.specs.kubernetes import TOLERATION
from remuda.wire.child import Away

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from remuda.backends.base import Request
    from remuda.plan.model import Command, Resources

Doc = dict[str, Any]

OBJECTS: Final = "objects.yaml"
"""In the directory of an allocation: what is sent for it, as documents of JSON with `SEPARATOR` between them."""
SEPARATOR: Final = "\n---\n"
TOKENS, HOME, USER, QUEUE = (f"remuda.dev/{name}" for name in ("tokens", "home", "user", "queue"))
KUEUE: Final = "kueue.x-k8s.io/queue-name"
"""Label by which Kueue knows that a Job is its own, and of which queue."""
MANAGED: Final = {"app.kubernetes.io/managed-by": "remuda"}
CONTAINER: Final = "task"
GPU_KIND: Final = "nvidia.com/gpu.product"
"""Label that GPU feature discovery puts on nodes."""
HOST, KEY = "host.json", "report.key"
"""Keys of the Secret that are filled in when it is sent, as are those that begin with `OF_SECRET`."""
OF_SECRET: Final = "of-secret."  # noqa: S105 - part of a name
_PROGRAM, _OWN, _RUN, _LAST = "/remuda/program", "/remuda/own", "/remuda/run", "/dev/termination-log"
_ARCHIVE: Final = "node.pyz"
_TOLD: Final = {NODE_VARIABLE: "spec.nodeName", ADDRESS_VARIABLE: "status.podIP"}
_LOG_BYTES: Final = 4 << 20
"""Of `child.log` in the pod, where it only tells whether output comes."""
_LAST_WORDS_S: Final = 5
"""Of the pod's grace, for the node program itself."""
_ROOM: Final = 1_000_000
"""Bytes that a Secret may have."""


@dataclass(frozen=True)
class KubernetesSite:
    """What the allocations of one state directory have in common."""

    workloads: Path
    """Parent of the run directories."""
    host_file: Path
    program: Callable[[], tuple[str, bytes]]
    """A name of the node program that changes with it, and its archive."""
    user: str = ""
    """Of this machine: allocations of others in one namespace are told apart by it."""


def job_name(token: str) -> str:
    """Name of the Job: a DNS label with room for what Kubernetes adds, equal for equal tokens alone."""
    parts = read_token(token)
    group = parts.group.replace("_", "-")[:20].strip("-")
    return f"rmd-{parts.uid}-{group}-{sha256(token.encode()).hexdigest()[:10]}"


def program_name(site: KubernetesSite) -> str:
    """Name of the ConfigMap with the node program."""
    return f"remuda-node-{site.program()[0]}"


def labels_of(site: KubernetesSite, *, home: bool = True) -> dict[str, str]:
    """What all objects of a user of a machine have, and those of a state directory."""
    said = {USER: site.user} | ({HOME: f"{site.user} {site.workloads.parent}"} if home else {})
    return MANAGED | {name: sha256(text.encode()).hexdigest()[:16] for name, text in said.items()}


def selector(labels: Mapping[str, str]) -> str:
    """What finds objects with these labels."""
    return ",".join(f"{name}={text}" for name, text in labels.items())


def render(request: Request, site: KubernetesSite) -> Rendered:
    """Say what makes `request`: the Job, suspended, and the Secret that it will own.

    Raises:
        InputError: Kubernetes cannot be asked for it; says which value is wrong.
    """
    place, command = placed(KubernetesPlace, request.workload.place, request.workload.name), request.group.command
    if not command.image:
        raise InputError("a task on Kubernetes needs an image", where="image")
    if request.group.resources.nodes > 1 or request.group.spread is not None or request.workload.pack is not None:
        raise InputError("a pod is on one node", where="nodes")
    folder = allocation_dir(site.workloads, request.token)
    name, labels = job_name(request.token), _labels(request, site)
    secret: Doc = {
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": name, "labels": labels},
        "stringData": {
            "child.json": _child(request, folder),
            **{OF_SECRET + key: ref.model_dump_json(exclude_defaults=True)
               for key, ref in command.secret_env.items() if not ref.secret},
        },
    }  # fmt: skip
    if (size := len(secret["stringData"]["child.json"].encode())) > _ROOM:
        raise InputError(f"script and settings are {size:,} bytes, and a Secret has room for {_ROOM:,}", where="script",
                         hint="put what is large into the image")  # fmt: skip
    annotations = {TOKENS: request.token, HOME: str(site.workloads.parent)}
    annotations |= {QUEUE: place.queue} if place.queue else {}
    job: Doc = {
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": _job(request, place, site, {"labels": labels, "annotations": annotations}),
    }  # fmt: skip
    for one in (job, secret):
        one["metadata"] |= {"namespace": place.namespace} if place.namespace else {}
    text = SEPARATOR.join(json.dumps(one, indent=1, ensure_ascii=False) for one in (job, secret))
    said = {"kubeconfig": place.kubeconfig, "context": place.context, "namespace": place.namespace}
    where = [f"--{flag}={value}" for flag, value in said.items() if value]
    return Rendered(request.token, ("kubectl", *where, "create", "-f", "-"), {str(folder / OBJECTS): text + "\n"})


def objects_of(rendered: Rendered) -> tuple[Doc, Doc]:
    """Job and Secret, as they are sent."""
    text = next(text for path, text in rendered.files.items() if path.endswith(f"/{OBJECTS}"))
    job, secret = map(json.loads, text.split(SEPARATOR))
    return job, secret


def cluster_of(rendered: Rendered) -> dict[str, str]:
    """Of which cluster and namespace it is asked: `kubeconfig`, `context` and `namespace`, as far as they were said."""
    return dict(word[2:].split("=", 1) for word in rendered.argv[1:-3])


def _labels(request: Request, site: KubernetesSite) -> dict[str, str]:
    said = {"workload": request.workload.name[:63].strip("-._"), "uid": request.workload.uid,
            "group": request.group.name, "attempt": str(request.attempt)}  # fmt: skip
    return labels_of(site) | {f"remuda.dev/{name}": text for name, text in said.items()}


def _child(request: Request, folder: Path) -> str:
    """The node program's document: all paths are in the container."""
    command = request.group.command
    child = child_spec(
        request, folder, env=dict(command.env), host_file=f"{_OWN}/{HOST}",
        bind_host="0.0.0.0" if request.group.listen else "127.0.0.1",  # noqa: S104 - others must reach it
    )  # fmt: skip
    return replace(
        child, run_dir=_RUN, fence_file="", previous_dir="", log_max_bytes=_LOG_BYTES,
        secret_env={name: {"env": name} if ref.secret else {"file": f"{_OWN}/{OF_SECRET}{name}"}
                    for name, ref in command.secret_env.items()},
        away=Away(f"{_OWN}/{KEY}", _LAST),
    ).to_json()  # fmt: skip


def _job(request: Request, place: KubernetesPlace, site: KubernetesSite, meta: Doc) -> Doc:
    limit = request.group.resources.time_limit_s
    return {
        "suspend": True, "completions": 1, "parallelism": 1, "completionMode": "Indexed", "backoffLimitPerIndex": 0,
        "podReplacementPolicy": "Failed", "ttlSecondsAfterFinished": max(3600, round(place.ttl)),
        # A pod that is evicted goes at once, and only the Job still says why: every attempt is a Job of its own.
        "podFailurePolicy": {"rules": [
            {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        ]},
        **({"activeDeadlineSeconds": max(1, round(limit))} if limit else {}),
        "template": {"metadata": meta, "spec": _pod(request, place, site)},
    }  # fmt: skip


def _pod(request: Request, place: KubernetesPlace, site: KubernetesSite) -> Doc:
    needs, name = request.group.resources, job_name(request.token)
    volumes: list[Doc] = [
        {"name": "program", "configMap": {"name": program_name(site)}},
        {"name": "own", "secret": {"secretName": name}},
        {"name": "run", "emptyDir": {}},
    ]
    mounts: list[Doc] = [
        {"name": "program", "mountPath": _PROGRAM, "readOnly": True},
        {"name": "own", "mountPath": _OWN, "readOnly": True},
        {"name": "run", "mountPath": _RUN},
    ]
    if needs.gpus:  # NCCL and data loaders need more than the 64 MB that there are
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory"}})
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})  # noqa: S108 - in the container
    for number, text in enumerate(place.mounts):
        claim, path, *fixed = text.split(":")
        volumes.append({"name": f"claim-{number}", "persistentVolumeClaim": {"claimName": claim}})
        mounts.append({"name": f"claim-{number}", "mountPath": path, **({"readOnly": True} if fixed else {})})
    container: Doc = {
        "name": CONTAINER, "image": request.group.command.image,
        "command": [place.python or "python3", "-I", "-S", f"{_PROGRAM}/{_ARCHIVE}", "child", f"{_OWN}/child.json"],
        "env": [*({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
                  for name, path in _TOLD.items() if name == NODE_VARIABLE or request.group.listen),
                *_secrets(request.group.command)],
        "volumeMounts": mounts, "terminationMessagePath": _LAST, "terminationMessagePolicy": "File",
        **({"resources": asked} if (asked := _resources(needs, place.gpu_resource)) else {}),
        **({"securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}
           if place.security else {}),
    }  # fmt: skip
    selected = dict(text.split("=", 1) for text in place.node_selector)
    selected |= {GPU_KIND: needs.gpu_type} if needs.gpu_type else {}
    tolerated = place.tolerations or ((f"{place.gpu_resource}:NoSchedule",) if needs.gpus else ())
    person: Doc = {"runAsUser": place.run_as_user} if place.run_as_user else {}
    person |= {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}} if place.security else {}
    return {
        "restartPolicy": "Never", "enableServiceLinks": False,
        "terminationGracePeriodSeconds": round(request.group.kill_grace_s) + _LAST_WORDS_S,
        "containers": [container], "volumes": volumes,
        **({"serviceAccountName": place.service_account} if place.service_account else {}),
        **({"securityContext": person} if person else {}),
        **({"runtimeClassName": place.runtime_class} if place.runtime_class else {}),
        **({"nodeSelector": selected} if selected else {}),
        **({"tolerations": [_toleration(text) for text in tolerated]} if tolerated else {}),
        **({"imagePullSecrets": [{"name": one} for one in place.image_pull_secrets]}
           if place.image_pull_secrets else {}),
        **({"affinity": _avoiding(request.exclude_nodes)} if request.exclude_nodes else {}),
    }  # fmt: skip


def _secrets(command: Command) -> list[Doc]:
    """Variables that are Secrets of the namespace: the node program has them, and hands them on."""
    named = {key: ref.secret.split("/") for key, ref in command.secret_env.items() if ref.secret}
    return [{"name": key, "valueFrom": {"secretKeyRef": {"name": name, "key": part}}}
            for key, (name, part) in named.items()]  # fmt: skip


def _resources(needs: Resources, gpu: str) -> Doc:
    """A pod is killed beyond its memory, and slowed down beyond its CPUs only where others want them."""
    memory = {"memory": str(needs.mem_bytes)} if needs.mem_bytes else {}
    limits = memory | ({gpu: str(needs.gpus)} if needs.gpus else {})
    requests = limits | ({"cpu": str(needs.cpus)} if needs.cpus else {})
    return {name: part for name, part in (("limits", limits), ("requests", requests)) if part}


def _toleration(text: str) -> Doc:
    found = TOLERATION.fullmatch(text)
    key, value, effect = found.groups() if found else (text, None, None)
    how = {"operator": "Exists"} if value is None else {"operator": "Equal", "value": value[1:]}
    return {"key": key, **how, **({"effect": effect[1:]} if effect else {})}


def _avoiding(nodes: tuple[str, ...]) -> Doc:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": list(nodes)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def node_program(site: KubernetesSite) -> Doc:
    """The ConfigMap with the node program, which every version makes once in a namespace."""
    from base64 import b64encode

    return {
        "apiVersion": "v1", "kind": "ConfigMap", "immutable": True,
        "metadata": {"name": program_name(site), "labels": MANAGED},
        "binaryData": {_ARCHIVE: b64encode(site.program()[1]).decode()},
    }  # fmt: skip

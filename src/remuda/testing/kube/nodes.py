"""Nodes, the scheduler that binds pods to them, what happens on a lost node, and what goes with its owner."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from remuda.testing.kube.objects import key_of, moment, owner, set_condition, stamp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.testing.kube.objects import Doc, Objects

UNREACHABLE: Final = "node.kubernetes.io/unreachable"
GPU: Final = "nvidia.com/gpu"
_UNITS: Final = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_UNITS_OF_TWO: Final = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_TAINTED: Final = "Taint manager: deleting due to NoExecute taint"
_BY: Final = "default-scheduler"


def amount(text: str) -> float:
    """A quantity as Kubernetes writes it: `500m`, `1Gi`, `8`."""
    match = re.fullmatch(r"([0-9.]+)([a-zA-Z]*)", text)
    if match is None or match[2] not in _UNITS | _UNITS_OF_TWO:
        raise ValueError(f"no quantity: {text}")
    return float(match[1]) * (_UNITS | _UNITS_OF_TWO)[match[2]]


def needs(pod: Doc) -> Counter[str]:
    """What a pod's containers ask for."""
    total: Counter[str] = Counter({"pods": 1})
    for container in pod["spec"]["containers"]:
        for name, value in container["resources"].get("requests", {}).items():
            total[name] += amount(value)  # type: ignore[assignment]  # parts of a processor are counted, too
    return total


def new_node(name: str, gpus: int, labels: Mapping[str, str]) -> Doc:
    """The document of a node."""
    has = {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "500Gi", "pods": "110", GPU: str(gpus)}
    addresses = [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **labels}},
        "spec": {},
        "status": {"capacity": has, "allocatable": has, "addresses": addresses},
    }


def tolerates(pod: Doc, taint: Mapping[str, str]) -> Doc | None:
    """The toleration of a pod that lets it stand a taint."""
    for one in pod["spec"].get("tolerations") or ():
        if one.get("effect") not in (None, "", taint["effect"]) or one.get("key") not in (None, "", taint["key"]):
            continue
        if one.get("operator") == "Exists" or one.get("value", "") == taint.get("value", ""):
            return dict(one)
    return None


class NodeControl:
    """Scheduler, node controller, pod and object garbage collection.

    Args:
        objects: the cluster.
    """

    eviction_s = 300.0
    """How long pods stay bound to a node that is not reached, if they do not say."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.dead: set[str] = set()
        """Nodes that have no power."""

    def turn(self) -> None:
        """Look at all pods and nodes once."""
        nodes = {node["metadata"]["name"]: node for node in self._objects.every("nodes")}
        for name in nodes:
            self._objects.edit(("nodes", "", name), self._seen)
        nodes = {node["metadata"]["name"]: node for node in self._objects.every("nodes")}
        self._collect()
        for pod in self._objects.every("pods"):
            if pod["spec"].get("nodeName"):
                self._watch_over(pod, nodes.get(pod["spec"]["nodeName"]))
        self._schedule(list(nodes.values()))

    def _seen(self, node: Doc) -> None:
        is_dead, now = node["metadata"]["name"] in self.dead, self._objects.now()
        taints = [one for one in node["spec"].get("taints", []) if one["key"] != UNREACHABLE]
        if is_dead:
            set_condition(node, "Ready", "Unknown", now, "NodeStatusUnknown", "Kubelet stopped posting node status.")
            since = next(one["lastTransitionTime"] for one in node["status"]["conditions"])
            own = {"key": UNREACHABLE, "timeAdded": since}
            taints += [own | {"effect": effect} for effect in ("NoSchedule", "NoExecute")]
        else:
            set_condition(node, "Ready", "True", now, "KubeletReady", "kubelet is posting ready status")
        node["spec"]["taints"] = taints

    # The end of what has lost its owner or its node

    def _collect(self) -> None:
        living, waiting = self._objects.uids(), set()
        for key, doc in self._objects.owned():
            above = living.get(owner(doc))
            is_foreground = above is not None and "foregroundDeletion" in above["metadata"].get("finalizers", [])
            if is_foreground:
                waiting.add(owner(doc))
            if (above is None or is_foreground) and "deletionTimestamp" not in doc["metadata"]:
                _ = self._objects.end_pod(doc) if key[0] == "pods" else self._objects.end(key)
        for uid, doc in living.items():
            if "foregroundDeletion" in doc["metadata"].get("finalizers", []) and uid not in waiting:
                plural = {"Job": "jobs", "Service": "services", "Secret": "secrets", "ConfigMap": "configmaps"}[
                    doc["kind"]
                ]
                self._objects.edit(key_of(plural, doc), lambda one: one["metadata"].pop("finalizers"))

    def _watch_over(self, pod: Doc, node: Doc | None) -> None:
        key, now = key_of("pods", pod), self._objects.now()
        if node is None:
            self._objects.edit(key, lambda doc: _lost(doc, now))
            self._objects.end(key)
            return
        for taint in node["spec"]["taints"]:
            if taint["effect"] != "NoExecute" or "deletionTimestamp" in pod["metadata"]:
                continue
            stays = (tolerates(pod, taint) or {"tolerationSeconds": self.eviction_s}).get("tolerationSeconds")
            self._objects.edit(key, lambda doc: set_condition(doc, "Ready", "False", now))
            if stays is not None and now >= moment(taint["timeAdded"]) + stays:
                self._objects.edit(
                    key,
                    lambda doc: set_condition(doc, "DisruptionTarget", "True", now, "DeletionByTaintManager", _TAINTED),
                )
                self._objects.end_pod(pod)

    # Scheduling

    def _schedule(self, nodes: list[Doc]) -> None:
        pods = self._objects.every("pods")
        used: dict[str, Counter[str]] = {}
        for pod in pods:
            if pod["spec"].get("nodeName") and pod["status"]["phase"] in ("Pending", "Running"):
                used.setdefault(pod["spec"]["nodeName"], Counter()).update(needs(pod))
        for pod in pods:
            if (
                pod["spec"].get("nodeName")
                or "deletionTimestamp" in pod["metadata"]
                or pod["status"]["phase"] != "Pending"
            ):
                continue
            if pod["spec"].get("schedulingGates"):
                self._hold(pod, "SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates")
                continue
            lacks = Counter[str]()
            for node in nodes:
                name = node["metadata"]["name"]
                if lack := self._lack(pod, node, used.get(name, Counter())):
                    lacks.update(lack)
                    continue
                used.setdefault(name, Counter()).update(needs(pod))
                self._bind(pod, name)
                break
            else:
                self._refuse(pod, len(nodes), lacks)

    def _lack(self, pod: Doc, node: Doc, used: Counter[str]) -> list[str]:
        for taint in node["spec"]["taints"]:
            if taint["effect"] != "PreferNoSchedule" and tolerates(pod, taint) is None:
                return [f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"]
        if node["spec"].get("unschedulable"):
            return ["node(s) were unschedulable"]
        labels = node["metadata"]["labels"]
        if any(labels.get(name) != value for name, value in (pod["spec"].get("nodeSelector") or {}).items()):
            return ["node(s) didn't match Pod's node affinity/selector"]
        if not _has_affinity(pod, labels):
            return ["node(s) didn't match Pod's node affinity/selector"]
        has = node["status"]["allocatable"]
        return [
            "Too many pods" if name == "pods" else f"Insufficient {name}"
            for name, value in needs(pod).items()
            if value and used[name] + value > amount(has.get(name, "0"))
        ]

    def _bind(self, pod: Doc, node: str) -> None:
        now = self._objects.now()

        def bound(doc: Doc) -> None:
            doc["spec"]["nodeName"] = node
            doc["status"]["conditions"] = []
            set_condition(doc, "PodScheduled", "True", now)

        self._objects.edit(key_of("pods", pod), bound)
        said = f"Successfully assigned {pod['metadata']['namespace']}/{pod['metadata']['name']} to {node}"
        self._objects.note(pod, "Scheduled", said, by=_BY)

    def _refuse(self, pod: Doc, count: int, lacks: Counter[str]) -> None:
        why = ", ".join(f"{number} {lack}" for lack, number in sorted(lacks.items()))
        says = f"0/{count} nodes are available: {why}." if count else "no nodes available to schedule pods"
        before = {one.get("message") for one in pod["status"].get("conditions", [])}
        self._hold(pod, "Unschedulable", says)
        if says not in before:
            self._objects.note(pod, "FailedScheduling", says, by=_BY, kind="Warning")

    def _hold(self, pod: Doc, reason: str, says: str) -> None:
        now = self._objects.now()
        self._objects.edit(
            key_of("pods", pod), lambda doc: set_condition(doc, "PodScheduled", "False", now, reason, says)
        )


def _has_affinity(pod: Doc, labels: Mapping[str, str]) -> bool:
    """Whether a node is one that the pod's required node affinity names: operators In, NotIn, Exists, DoesNotExist."""
    asked = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if not asked:
        return True

    def agrees(one: Doc) -> bool:
        value, among = labels.get(one["key"]), one.get("values", [])
        return {
            "In": value in among,
            "NotIn": value not in among,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }[one["operator"]]

    return any(all(map(agrees, term.get("matchExpressions", []))) for term in asked["nodeSelectorTerms"])


def _lost(pod: Doc, now: float) -> None:
    """The node of a pod is no more."""
    if pod["status"]["phase"] not in ("Succeeded", "Failed"):
        says = "PodGC: node no longer exists"
        set_condition(pod, "DisruptionTarget", "True", now, "DeletionByPodGC", says)
        pod["status"]["phase"] = "Failed"
    pod["metadata"] |= {"deletionTimestamp": stamp(now), "deletionGracePeriodSeconds": 0}

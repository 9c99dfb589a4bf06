"""What documents say of a cluster of Kubernetes, whatever runs there."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from remuda.specs.strict import Seconds, Strict, Text, Texts, wrong

_WORD: Final = r"[a-zA-Z0-9]([-._a-zA-Z0-9]*[a-zA-Z0-9])?"
TOLERATION: Final = re.compile(r"([-._/a-zA-Z0-9]+)(=[-._a-zA-Z0-9]*)?(:(?:NoSchedule|PreferNoSchedule|NoExecute))?")
"""Key, `=` and value, `:` and effect."""
MOUNT: Final = re.compile(r"([a-z0-9](?:[-.a-z0-9]*[a-z0-9])?):(/[^:]*)(:ro)?")
"""Claim, path in the container, and whether it is for reading only."""
GPU: Final = "nvidia.com/gpu"
_OURS: Final = re.compile(r"/*((remuda|proc|sys|dev)(/.*)?)?|.*/\.\.?(/.*)?")
"""Paths where nothing is mounted."""


def _like(pattern: str | re.Pattern[str], what: str, hint: str = "") -> AfterValidator:
    """Only texts of that form, one or several."""

    def checked(value: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        for text in (value,) if isinstance(value, str) else value or ():
            if re.fullmatch(pattern, text) is None:
                raise wrong(f"must be {what}, not {text!r}", hint)
        return value

    return AfterValidator(checked)


def _as_labels(value: object) -> object:
    return [f"{key}={text}" for key, text in value.items()] if isinstance(value, dict) else value


def _apart(mounts: tuple[str, ...]) -> tuple[str, ...]:
    """Each of them where nothing else is."""
    paths = [MOUNT.sub(r"\2", text).rstrip("/") for text in mounts]
    for path in paths:
        if _OURS.fullmatch(path):
            raise wrong(f"cannot be at {path or '/'}", "choose a path of its own, e.g. /data")
        if paths.count(path) > 1:
            raise wrong(f"has {path} twice")
    return mounts


_NAME: Final = _like(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?", "a name that Kubernetes takes", "use a-z, 0-9, - and .")
_IMAGE: Final = _like(r"[a-zA-Z0-9][-._/:@a-zA-Z0-9]*", "an image of a registry", "write registry/name:tag")
_LABELS: Final = _like(rf"([-.a-zA-Z0-9]+/)?{_WORD}=({_WORD})?", "labels KEY=VALUE")
_TAINTS: Final = _like(TOLERATION, "KEY[=VALUE][:EFFECT]", "e.g. nvidia.com/gpu:NoSchedule")
_QUEUE: Final = _like(r"[a-z0-9]([-.a-z0-9]{0,61}[a-z0-9])?", "the name of a queue", "use a-z, 0-9, - and .")
_RESOURCE: Final = _like(rf"[-.a-z0-9]+/{_WORD}", "a resource of nodes", f"e.g. {GPU}")
_MOUNTS: Final = _like(
    MOUNT,
    "CLAIM:/path or CLAIM:/path:ro",
    "it is a PersistentVolumeClaim of the namespace; folders of nodes are not mounted",
)
_LIST: Final = {"anyOf": [{"type": "object"}, {"type": "array", "items": {"type": "string"}}]}


class KubernetesFields(Strict):
    """Where on Kubernetes something runs, and in what."""

    image: Annotated[Text, _IMAGE] | None = None
    """On Kubernetes: container image, with Python 3.9 or newer. Required there."""
    namespace: Annotated[Text, _NAME] | None = Field(default=None, json_schema_extra={"derived": "of the context"})
    """On Kubernetes: namespace."""
    context: Text | None = Field(default=None, json_schema_extra={"derived": "the current one"})
    """On Kubernetes: context of the kubeconfig."""
    kubeconfig: Text | None = Field(
        default=None, json_schema_extra={"derived": "`KUBECONFIG` of the host, `~/.kube/config`, or the pod it runs in"}
    )
    """On Kubernetes: file that says where the cluster is."""
    service_account: Annotated[Text, _NAME] | None = None
    """On Kubernetes: service account of the pod; unset: the namespace's default."""
    node_selector: Annotated[Texts, BeforeValidator(_as_labels), _LABELS, WithJsonSchema(_LIST)] = ()
    """On Kubernetes: labels that the node must have, `KEY=VALUE`."""
    tolerations: Annotated[Texts, _TAINTS] = ()
    """On Kubernetes: taints of nodes to tolerate, `KEY[=VALUE][:EFFECT]`; with GPUs, unless any is said, NVIDIA's."""
    image_pull_secrets: Annotated[Texts, _NAME] = ()
    """On Kubernetes: Secrets with which the image is pulled."""
    mounts: Annotated[Texts, _MOUNTS, AfterValidator(_apart)] = ()
    """On Kubernetes: existing PersistentVolumeClaims and where they are in the container, `CLAIM:/path[:ro]`."""
    queue: Annotated[Text, _QUEUE] | None = None
    """On Kubernetes: queue of Kueue that lets the Job start; unset: it starts when its pod has a node."""
    security: Literal["restricted"] | None = None
    """On Kubernetes: `restricted`: the container is as Pod Security's profile of that name wants it."""
    run_as_user: int | None = Field(default=None, ge=1)
    """On Kubernetes: number of the user that the container runs as; unset: the image's."""
    runtime_class: Annotated[Text, _NAME] | None = None
    """On Kubernetes: RuntimeClass of the pod, e.g. `gvisor`; unset: the cluster's usual one."""
    gpu_resource: Annotated[Text, _RESOURCE] = GPU
    """On Kubernetes: what `gpus` is a number of, as nodes offer it."""
    ttl: Seconds = 604800.0
    """On Kubernetes: time for which the Job and its pod are kept after their end; at least an hour."""

"""What documents say of a cluster of Kubernetes, whatever runs there."""

from __future__ import annotations

import re
from typing import Annotated, Final, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from remuda.specs.strict import Seconds, Strict, Text, Texts, wrong

_NAME: Final = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_IMAGE: Final = re.compile(r"[a-zA-Z0-9][-._/:@a-zA-Z0-9]*")
_WORD: Final = r"[a-zA-Z0-9]([-._a-zA-Z0-9]*[a-zA-Z0-9])?"
_LABEL: Final = re.compile(rf"([-.a-zA-Z0-9]+/)?{_WORD}=({_WORD})?")
_TOLERATION: Final = re.compile(r"([-._/a-zA-Z0-9]+)(=[-._a-zA-Z0-9]*)?(:(?:NoSchedule|PreferNoSchedule|NoExecute))?")


class Toleration(NamedTuple):
    """A taint that a pod bears."""

    key: str
    value: str | None
    """None: any."""
    effect: str
    """Empty: any."""


def read_toleration(text: str) -> Toleration:
    """`KEY[=VALUE][:EFFECT]` taken apart.

    Raises:
        ValueError: it is something else.
    """
    found = _TOLERATION.fullmatch(text)
    if found is None:
        raise ValueError(text)
    return Toleration(found[1], found[2][1:] if found[2] else None, (found[3] or ":")[1:])


def _named(name: str | None) -> str | None:
    if name is not None and _NAME.fullmatch(name) is None:
        raise wrong(f"must be a name that Kubernetes takes, not {name!r}", "use a-z, 0-9, - and .")
    return name


def _all_named(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        _named(name)
    return names


def _image(name: str | None) -> str | None:
    if name is not None and _IMAGE.fullmatch(name) is None:
        raise wrong(f"must be an image of a registry, not {name!r}", "write registry/name:tag")
    return name


def _as_labels(value: object) -> object:
    return [f"{key}={text}" for key, text in value.items()] if isinstance(value, dict) else value


def _labels(texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        if _LABEL.fullmatch(text) is None:
            raise wrong(f"must be labels KEY=VALUE, not {text!r}")
    return texts


def _tolerations(texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        try:
            read_toleration(text)
        except ValueError as error:
            raise wrong(f"must be KEY[=VALUE][:EFFECT], not {text!r}", "e.g. nvidia.com/gpu:NoSchedule") from error
    return texts


KubeName = Annotated[Text, AfterValidator(_named)]
_LIST: Final = {"anyOf": [{"type": "object"}, {"type": "array", "items": {"type": "string"}}]}


class KubernetesFields(Strict):
    """Where on Kubernetes something runs, and in what."""

    image: Annotated[Text, AfterValidator(_image)] | None = None
    """On Kubernetes: container image, with Python 3.9 or newer. Required there."""
    namespace: KubeName | None = Field(default=None, json_schema_extra={"derived": "of the context"})
    """On Kubernetes: namespace."""
    context: Text | None = Field(default=None, json_schema_extra={"derived": "the current one"})
    """On Kubernetes: context of the kubeconfig."""
    kubeconfig: Text | None = Field(
        default=None, json_schema_extra={"derived": "`KUBECONFIG` of the host, `~/.kube/config`, or the pod it runs in"}
    )
    """On Kubernetes: file that says where the cluster is."""
    service_account: KubeName | None = None
    """On Kubernetes: service account of the pod; unset: the namespace's default."""
    node_selector: Annotated[Texts, BeforeValidator(_as_labels), AfterValidator(_labels), WithJsonSchema(_LIST)] = ()
    """On Kubernetes: labels that the node must have, `KEY=VALUE`."""
    tolerations: Annotated[Texts, AfterValidator(_tolerations)] = ()
    """On Kubernetes: taints of nodes to tolerate, `KEY[=VALUE][:EFFECT]`; with GPUs, unless any is said, NVIDIA's."""
    image_pull_secrets: Annotated[Texts, AfterValidator(_all_named)] = ()
    """On Kubernetes: Secrets with which the image is pulled."""
    ttl: Seconds = 604800.0
    """On Kubernetes: time for which the Job and its pod are kept after their end; at least an hour."""

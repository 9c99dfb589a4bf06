"""What documents say of a cluster of Kubernetes, whatever runs there."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from remuda.specs.strict import Seconds, Strict, Text, Texts, wrong

_WORD: Final = r"[a-zA-Z0-9]([-._a-zA-Z0-9]*[a-zA-Z0-9])?"
TOLERATION: Final = re.compile(r"([-._/a-zA-Z0-9]+)(=[-._a-zA-Z0-9]*)?(:(?:NoSchedule|PreferNoSchedule|NoExecute))?")
"""Key, `=` and value, `:` and effect."""


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


_NAME: Final = _like(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?", "a name that Kubernetes takes", "use a-z, 0-9, - and .")
_IMAGE: Final = _like(r"[a-zA-Z0-9][-._/:@a-zA-Z0-9]*", "an image of a registry", "write registry/name:tag")
_LABELS: Final = _like(rf"([-.a-zA-Z0-9]+/)?{_WORD}=({_WORD})?", "labels KEY=VALUE")
_TAINTS: Final = _like(TOLERATION, "KEY[=VALUE][:EFFECT]", "e.g. nvidia.com/gpu:NoSchedule")
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
    ttl: Seconds = 604800.0
    """On Kubernetes: time for which the Job and its pod are kept after their end; at least an hour."""

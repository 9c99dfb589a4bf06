"""What speaks against a Job before it is accepted: the server's version, rights, and what it says of the Job itself."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from remuda.base.errors import BackendUnreachable, Conflict, InputError, NotFound, Rejected

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remuda.backends.kubernetes.client import KubernetesClient
    from remuda.backends.kubernetes.render import Doc

OLDEST: Final = (1, 29)
"""Version of a server that has all that Jobs are asked with."""
RIGHTS: Final = {
    "jobs": ("create", "get", "list", "patch", "delete"),
    "pods": ("get", "list", "delete"),
    "pods/log": ("get",),
    "secrets": ("create", "get"),
    "configmaps": ("create", "get"),
}
"""What is done in a namespace, as the Role of `docs/kubernetes.md` grants it."""
_FIELDS: Final = (
    (".image", "image"), (".imagePullSecrets", "image_pull_secrets"), (".nodeSelector", "node_selector"),
    (".tolerations", "tolerations"), (".serviceAccount", "service_account"), ("serviceaccount", "service_account"),
    (".ttlSecondsAfterFinished", "ttl"), (".activeDeadlineSeconds", "time_limit"), ("[nvidia.com/gpu]", "gpus"),
    ("[memory]", "mem"), ("[cpu]", "cpus_per_task"), ("namespaces", "namespace"),
)  # fmt: skip
"""What a server calls it -> the field that says it."""


class Exists(Conflict):
    """There is an object of that name: ours, when its annotations say so."""


async def check(client: KubernetesClient, jobs: Iterable[Doc]) -> None:
    """See that a cluster answers, lets its user do what is needed, and would take Jobs, quotas and webhooks too.

    What a server that has answered once cannot say just now speaks against nothing.

    Raises:
        BackendUnreachable: it does not answer.
        InputError: it is too old, a right is missing, or it refuses a Job for good; `where` is the field.
    """
    access = client.access
    try:
        version = await client.version()
    except BackendUnreachable as error:
        hint = f"nothing was accepted; it is {access.context}, and kubectl cluster-info asks the same"
        raise BackendUnreachable(f"the cluster does not answer: {error}", hint=hint) from error
    if version < OLDEST:
        said, least = ".".join(map(str, version)), ".".join(map(str, OLDEST))
        raise InputError(f"the API server {access.server} is {said}, and Jobs need {least} or newer", where="context")
    with suppress(BackendUnreachable):
        if lacking := await _lacking(client):
            raise InputError(
                f"{access.context} may not {lacking} in the namespace {access.namespace}", where="namespace",
                hint="kubectl auth can-i --list shows what it may; docs/kubernetes.md has the Role",
            )  # fmt: skip
    try:
        for job in jobs:
            with suppress(Exists, BackendUnreachable):
                await client.dry_run("jobs", job)
    except (NotFound, Rejected) as error:
        raise InputError(str(error), where=field_of(str(error))) from error


async def _lacking(client: KubernetesClient) -> str:
    """Rights that are missing, in words; empty where none is, or nobody says."""
    asked = [(verb, kind) for kind, verbs in RIGHTS.items() for verb in verbs]
    try:
        answers = await asyncio.gather(*(client.may(verb, kind) for verb, kind in asked))
    except Rejected:  # not even that may be asked
        return ""
    lacks: dict[str, list[str]] = {}
    for (verb, kind), may in zip(asked, answers, strict=True):
        if not may:
            lacks.setdefault(kind, []).append(verb)
    return "; ".join(f"{', '.join(verbs)} {kind}" for kind, verbs in lacks.items())


def field_of(said: str) -> str:
    """The field that a server's words speak of first; empty where they name none. Pure."""
    found = [(said.index(word), field) for word, field in _FIELDS if word in said]
    return min(found, default=(0, ""))[1]

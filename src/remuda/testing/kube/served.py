"""Which kinds are served, what discovery says of them, and what the server says instead of an object. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from remuda.testing.kube.objects import Doc

GIT_VERSION: Final = "v1.36.2"
REVIEWS: Final = "authorization.k8s.io/v1"
_VERBS: Final = ["create", "delete", "get", "list", "patch", "update", "watch"]


class Served(NamedTuple):
    """One kind of object."""

    plural: str
    kind: str
    short: str = ""
    group: str = ""
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """As documents name it."""
        return f"{self.group}/v1" if self.group else "v1"

    @property
    def full(self) -> str:
        """As error messages name it: `jobs.batch`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def path(self) -> str:
        """Below which it is served."""
        root = f"/apis/{self.group}/v1" if self.group else "/api/v1"
        return f"{root}/namespaces/{{namespace}}/{self.plural}" if self.namespaced else f"{root}/{self.plural}"


SERVED: Final = {
    one.plural: one
    for one in (
        Served("jobs", "Job", group="batch"),
        Served("pods", "Pod", "po"),
        Served("services", "Service", "svc"),
        Served("configmaps", "ConfigMap", "cm"),
        Served("secrets", "Secret"),
        Served("events", "Event", "ev"),
        Served("nodes", "Node", "no", namespaced=False),
        Served("namespaces", "Namespace", "ns", namespaced=False),
    )
}
GROUPS: Final = {one.group for one in SERVED.values()}


class Refusal(Exception):
    """A request that is answered with an error.

    Args:
        code: the HTTP status.
        reason: one word that programs read.
        message: what a user reads.
        details: what it is about.
        retry_after_s: when to ask again.
    """

    def __init__(
        self, code: int, reason: str, message: str, details: Doc | None = None, *, retry_after_s: int | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after_s = retry_after_s
        self._said = {"message": message, "reason": reason, "details": details or {}, "code": code}
        if retry_after_s is not None:
            self._said["details"] = (details or {}) | {"retryAfterSeconds": retry_after_s}

    def status(self) -> Doc:
        """The body of the answer."""
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", **self._said}


def not_found(kind: Served, name: str) -> Refusal:
    """There is no object of that name."""
    details = {"name": name, "group": kind.group, "kind": kind.plural}
    return Refusal(404, "NotFound", f'{kind.full} "{name}" not found', details)


def invalid(kind: Served, name: str, faults: list[tuple[str, str, str]]) -> Refusal:
    """A document that was read and breaks rules: field, reason and sentence of each."""
    causes = [{"field": field, "reason": reason, "message": text} for field, reason, text in faults]
    said = [f"{field}: {text}" for field, _, text in faults]
    listed = said[0] if len(said) == 1 else f"[{', '.join(said)}]"
    details = {"name": name, "group": kind.group, "kind": kind.kind, "causes": causes}
    title = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    return Refusal(422, "Invalid", f'{title} "{name}" is invalid: {listed}', details)


def discovery(path: str) -> Doc | None:
    """What the server says of itself at a path; None where it is silent."""
    minor = GIT_VERSION.split(".")[1]
    version = {"groupVersion": "batch/v1", "version": "v1"}
    group = {"name": "batch", "versions": [version], "preferredVersion": version}
    said: dict[str, Doc] = {
        "/version": {"major": "1", "minor": minor, "gitVersion": GIT_VERSION, "platform": "linux/amd64"},
        "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]},
        "/apis/batch": {"kind": "APIGroup", "apiVersion": "v1", **group},
        "/api/v1": _resources(""),
        "/apis/batch/v1": _resources("batch"),
        "/openapi/v3": {
            "paths": {
                name: {"serverRelativeURL": f"/openapi/v3/{name}?hash={GIT_VERSION}"}
                for name in ("api/v1", "apis/batch/v1")
            }
        },
        "/openapi/v3/api/v1": _openapi(""),
        "/openapi/v3/apis/batch/v1": _openapi("batch"),
    }
    return said.get(path)


def _resources(group: str) -> Doc:
    kinds = [one for one in SERVED.values() if one.group == group]
    listed: list[Doc] = [
        {
            "name": one.plural,
            "singularName": one.kind.lower(),
            "namespaced": one.namespaced,
            "kind": one.kind,
            "verbs": _VERBS,
        }
        | ({"shortNames": [one.short]} if one.short else {})
        for one in kinds
    ]
    if not group:
        below = {"namespaced": True, "singularName": ""}
        eviction = {"kind": "Eviction", "group": "policy", "version": "v1", "verbs": ["create"]}
        listed += [{"name": "pods/log", "kind": "Pod", "verbs": ["get"], **below}]
        listed += [{"name": "pods/eviction", **eviction, **below}]
    version = f"{group}/v1" if group else "v1"
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": listed}


def _openapi(group: str) -> Doc:
    """Enough of the schema for a client to learn that the server itself validates fields."""
    words = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in ("dryRun", "fieldValidation")]
    paths = {
        f"{one.path}/{{name}}": {
            "patch": {
                "parameters": words,
                "responses": {"200": {"description": "OK"}},
                "x-kubernetes-group-version-kind": {"group": group, "version": "v1", "kind": one.kind},
            }
        }
        for one in SERVED.values()
        if one.group == group
    }
    info = {"title": "Kubernetes", "version": GIT_VERSION}
    return {"openapi": "3.0.0", "info": info, "paths": paths}

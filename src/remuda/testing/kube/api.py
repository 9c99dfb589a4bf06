"""Requests to answers: create, read, list in pages, watch, patch, replace, delete, and what is below pods."""

from __future__ import annotations

import copy
import json
import secrets
import uuid
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from remuda.testing.kube.checks import check, check_change, complete
from remuda.testing.kube.objects import key_of, owner, set_condition
from remuda.testing.kube.selecting import selector
from remuda.testing.kube.served import GROUPS, REVIEWS, SERVED, Refusal, Served, discovery, invalid, not_found

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from remuda.testing.kube.objects import Changed, Doc, Key, Objects

_MERGING: Final = ("application/merge-patch+json", "application/strategic-merge-patch+json")
_EXPIRED: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter."
)


class ApiRequest(NamedTuple):
    """A request."""

    method: str
    path: str
    query: dict[str, str]
    body: bytes = b""
    content: str = "application/json"

    def document(self) -> Doc:
        """The body.

        Raises:
            Refusal: it is no object of JSON.
        """
        if self.content.endswith("protobuf"):
            says = "this stand-in takes JSON alone: add --dry-run=client -o json, and | kubectl create -f -"
            raise Refusal(415, "UnsupportedMediaType", says)
        try:
            doc = json.loads(self.body or b"{}")
        except ValueError as error:
            raise Refusal(400, "BadRequest", f"the object provided is unrecognized: {error}") from error
        if not isinstance(doc, dict):
            raise Refusal(400, "BadRequest", "the object provided is unrecognized: no object")
        return doc


class Answer(NamedTuple):
    """What goes back: a document, or lines as they come."""

    code: int
    doc: Doc | None = None
    lines: Iterator[bytes] | None = None
    content: str = "application/json"


class ApiPath(NamedTuple):
    """What a path names."""

    kind: Served
    namespace: str
    name: str
    below: str

    @property
    def key(self) -> Key:
        """Where it is kept."""
        return self.kind.plural, self.namespace, self.name


def target(path: str) -> ApiPath:
    """Read a path.

    Raises:
        Refusal: 404, nothing is served there.
    """
    words = path.strip("/").split("/")
    rest, group = (words[2:], "") if words[0] == "api" else (words[3:], words[1] if len(words) > 1 else "")
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces" and rest[2] in SERVED:
        namespace, rest = rest[1], rest[2:]
    kind = SERVED.get(rest[0]) if rest else None
    if kind is None or kind.group != group or group not in GROUPS or bool(namespace) > kind.namespaced:
        raise Refusal(404, "NotFound", "the server could not find the requested resource")
    rest += ["", ""]
    return ApiPath(kind, namespace, rest[1], rest[2])


class Api:
    """The server's answers.

    Args:
        objects: the cluster.
    """

    logs: Callable[[Doc, dict[str, str]], Iterator[bytes]]
    """Lines of a pod's log, by the options of a request."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self.denied: set[tuple[str, str]] = set()
        """Verb and resource (`pods/log`) that reviews of access deny; nothing else does."""
        self._pages: dict[str, tuple[list[Doc], int]] = {}

    def expire_pages(self) -> None:
        """Forget lists that are read in pages, as a server does after minutes."""
        self._pages.clear()

    def answer(self, asked: ApiRequest) -> Answer:
        """Answer a request.

        Raises:
            Refusal: it is answered with an error.
        """
        said = discovery(asked.path)
        if said is not None:
            return Answer(200, said)
        if (asked.method, asked.path) == ("POST", f"/apis/{REVIEWS}/selfsubjectaccessreviews"):
            return Answer(201, self._reviewed(asked.document()))
        to = target(asked.path)
        if to.below:
            return self._below(to, asked)
        if asked.method == "GET" and not to.name:
            return self._watch(to, asked) if asked.query.get("watch") in ("true", "1") else self._list(to, asked)
        verb = {
            ("GET", True): self._get,
            ("POST", False): self._create,
            ("PUT", True): self._replace,
            ("PATCH", True): self._patch,
            ("DELETE", True): self._delete,
        }.get((asked.method, bool(to.name)))
        if verb is None:
            says = "the server does not allow this method on the requested resource"
            raise Refusal(405, "MethodNotAllowed", says)
        with self.objects.lock:
            return verb(to, asked)

    def _one(self, to: ApiPath) -> Doc:
        found = self.objects.get(to.key)
        if found is None:
            raise not_found(to.kind, to.name)
        return found

    def _get(self, to: ApiPath, _: ApiRequest) -> Answer:
        return Answer(200, self._one(to))

    def _create(self, to: ApiPath, asked: ApiRequest) -> Answer:
        doc = asked.document()
        if (doc.get("kind"), doc.get("apiVersion")) != (to.kind.kind, to.kind.api_version):
            says = f"the API version in the data ({doc.get('apiVersion')}) does not match the expected API version"
            raise Refusal(400, "BadRequest", f"{says} ({to.kind.api_version}), or the kind {doc.get('kind')} does not")
        if to.namespace and self.objects.get(("namespaces", "", to.namespace)) is None:
            raise not_found(SERVED["namespaces"], to.namespace)
        meta = doc.setdefault("metadata", {})
        if "name" not in meta and meta.get("generateName"):
            meta["name"] = meta["generateName"] + secrets.token_hex(3)[:5]
        if not meta.get("name"):
            raise invalid(
                to.kind,
                "",
                [("metadata.name", "FieldValueRequired", "Required value: name or generateName is required")],
            )
        if to.namespace and meta.setdefault("namespace", to.namespace) != to.namespace:
            raise Refusal(
                400,
                "BadRequest",
                "the namespace of the provided object does not match the namespace sent on the request",
            )
        doc.pop("status", None)
        meta["uid"] = str(uuid.uuid4())
        complete(to.kind, doc)
        check(to.kind, doc)
        key = key_of(to.kind.plural, doc)
        if self.objects.get(key) is not None:
            details = {"name": meta["name"], "group": to.kind.group, "kind": to.kind.plural}
            raise Refusal(409, "AlreadyExists", f'{to.kind.full} "{meta["name"]}" already exists', details)
        return Answer(201, doc if _is_dry(asked) else self.objects.create(key, doc))

    def _replace(self, to: ApiPath, asked: ApiRequest) -> Answer:
        return self._changed(to, asked, asked.document())

    def _patch(self, to: ApiPath, asked: ApiRequest) -> Answer:
        if asked.content not in _MERGING:
            raise Refusal(
                415,
                "UnsupportedMediaType",
                f"the body of the request was in an unknown format - accepted media types: {', '.join(_MERGING)}",
            )
        return self._changed(to, asked, merged(self._one(to), asked.document()))

    def _changed(self, to: ApiPath, asked: ApiRequest, after: Doc) -> Answer:
        before = self._one(to)
        own = {name: before["metadata"].get(name) for name in ("uid", "creationTimestamp", "deletionTimestamp")}
        version = after["metadata"].get("resourceVersion")
        if version and version != before["metadata"]["resourceVersion"]:
            says = "the object has been modified; please apply your changes to the latest version and try again"
            details = {"name": to.name, "group": to.kind.group, "kind": to.kind.plural}
            raise Refusal(
                409, "Conflict", f'Operation cannot be fulfilled on {to.kind.full} "{to.name}": {says}', details
            )
        after["metadata"] |= {name: value for name, value in own.items() if value}
        after["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"]
        if "status" in before:
            after["status"] = before["status"]
        complete(to.kind, after)
        check(to.kind, after)
        check_change(to.kind, before, after)

        def take(doc: Doc) -> None:
            doc.clear()
            doc |= after
            if doc.get("spec") != before.get("spec"):
                doc["metadata"]["generation"] = before["metadata"].get("generation", 1) + 1

        return Answer(200, after if _is_dry(asked) else self.objects.edit(to.key, take) or {})

    def _delete(self, to: ApiPath, asked: ApiRequest) -> Answer:
        options: Doc = asked.query | asked.document()
        before = self._one(to)
        for name, value in (options.get("preconditions") or {}).items():
            if before["metadata"].get(name) != value:
                says = (
                    f"the {'UID' if name == 'uid' else 'ResourceVersion'} in the precondition ({value}) does not match"
                )
                raise Refusal(
                    409,
                    "Conflict",
                    f'Operation cannot be fulfilled on {to.kind.full} "{to.name}": Precondition failed: {says}',
                )
        if _is_dry(asked) or options.get("dryRun"):
            return Answer(200, before)
        policy = options.get("propagationPolicy") or ("Orphan" if to.kind.plural == "jobs" else "Background")
        grace = options.get("gracePeriodSeconds")
        after = self._ended(to, before, policy, None if grace is None else int(grace))
        if after is not None and self.objects.get(to.key) is not None:
            return Answer(200, after)
        details = {"name": to.name, "group": to.kind.group, "kind": to.kind.plural, "uid": before["metadata"]["uid"]}
        return Answer(
            200, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
        )

    def _ended(self, to: ApiPath, doc: Doc, policy: str, grace_s: int | None) -> Doc | None:
        if to.kind.plural == "pods":
            return self.objects.end_pod(doc, grace_s)
        if policy == "Foreground":
            self.objects.edit(to.key, lambda one: one["metadata"].update(finalizers=["foregroundDeletion"]))
        elif policy == "Orphan":
            for key, one in self.objects.owned():
                if owner(one) == doc["metadata"]["uid"]:
                    self.objects.edit(key, _orphaned)
        return self.objects.end(to.key)

    def _reviewed(self, doc: Doc) -> Doc:
        said = doc["spec"]["resourceAttributes"]
        resource = "/".join(word for word in (said.get("resource"), said.get("subresource")) if word)
        return doc | {"status": {"allowed": (said.get("verb"), resource) not in self.denied}}

    # Lists

    def _list(self, to: ApiPath, asked: ApiRequest) -> Answer:
        wanted = selector(to.kind.plural, asked.query.get("labelSelector", ""), asked.query.get("fieldSelector", ""))
        limit = int(asked.query.get("limit") or 0)
        if token := asked.query.get("continue"):
            page = self._pages.get(token)
            if page is None:
                raise Refusal(410, "Expired", _EXPIRED)
            found, version = page
        else:
            with self.objects.lock:
                found, version = self.objects.every(to.kind.plural, to.namespace), self.objects.version
            found = [doc for doc in found if wanted(doc)]
        meta: Doc = {"resourceVersion": str(version)}
        if limit and len(found) > limit:
            meta |= {"continue": secrets.token_urlsafe(12), "remainingItemCount": len(found) - limit}
            self._pages[meta["continue"]] = found[limit:], version
            found = found[:limit]
        items = [{name: part for name, part in doc.items() if name not in ("kind", "apiVersion")} for doc in found]
        title = {"kind": f"{to.kind.kind}List", "apiVersion": to.kind.api_version}
        return Answer(200, {**title, "metadata": meta, "items": items})

    def _watch(self, to: ApiPath, asked: ApiRequest) -> Answer:
        wanted = selector(to.kind.plural, asked.query.get("labelSelector", ""), asked.query.get("fieldSelector", ""))
        since = int(asked.query.get("resourceVersion") or 0)
        with self.objects.lock:
            first: list[Doc] = []
            if not since or asked.query.get("sendInitialEvents") == "true":
                first = [doc for doc in self.objects.every(to.kind.plural, to.namespace) if wanted(doc)]
                since = self.objects.version
            if since < self.objects.oldest:
                raise Refusal(410, "Expired", f"too old resource version: {since} ({self.objects.oldest})")
        return Answer(200, lines=self._news(to, asked, wanted, first, since))

    def _news(
        self, to: ApiPath, asked: ApiRequest, wanted: Callable[[Doc], bool], first: list[Doc], since: int
    ) -> Iterator[bytes]:
        yield from (_line("ADDED", doc) for doc in first)
        if asked.query.get("sendInitialEvents") == "true":
            yield self._bookmark(to, since, {"k8s.io/initial-events-end": "true"})
        until = self.objects.now() + int(asked.query.get("timeoutSeconds") or 300)
        while not self.objects.closing.is_set() and self.objects.now() < until:
            with self.objects.lock:
                self.objects.lock.wait_for(lambda: self.objects.version > since, timeout=1)  # noqa: B023 - asked now
                news = [one for one in self.objects.changes if one.version > since]
                since = self.objects.version
            for one in news:
                if one.key[0] == to.kind.plural and to.namespace in ("", one.key[1]) and (line := _told(one, wanted)):
                    yield line
        if asked.query.get("allowWatchBookmarks") == "true":
            yield self._bookmark(to, since, {})

    def _bookmark(self, to: ApiPath, version: int, annotations: Doc) -> bytes:
        meta = {"resourceVersion": str(version), "annotations": annotations, "creationTimestamp": None}
        return _line("BOOKMARK", {"kind": to.kind.kind, "apiVersion": to.kind.api_version, "metadata": meta})

    # Below pods

    def _below(self, to: ApiPath, asked: ApiRequest) -> Answer:
        pod = self._one(to)
        if (to.kind.plural, to.below, asked.method) == ("pods", "log", "GET"):
            return Answer(200, lines=self.logs(pod, asked.query), content="text/plain")
        if (to.kind.plural, to.below, asked.method) == ("pods", "eviction", "POST"):
            return self._evict(to, pod, asked)
        raise Refusal(404, "NotFound", "the server could not find the requested resource")

    def _evict(self, to: ApiPath, pod: Doc, asked: ApiRequest) -> Answer:
        options = asked.document().get("deleteOptions") or {}
        now = self.objects.now()
        if not _is_dry(asked) and not options.get("dryRun"):
            says = "Eviction API: evicting"
            self.objects.edit(
                to.key, lambda doc: set_condition(doc, "DisruptionTarget", "True", now, "EvictionByEvictionAPI", says)
            )
            self.objects.end_pod(pod, options.get("gracePeriodSeconds"))
        return Answer(201, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})


def merged(doc: Any, patch: Any) -> Any:
    """A document with a merge patch in it (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    after = copy.deepcopy(doc) if isinstance(doc, dict) else {}
    for name, value in patch.items():
        if value is None:
            after.pop(name, None)
        else:
            after[name] = merged(after.get(name), value)
    return after


def _orphaned(doc: Doc) -> None:
    for name in ("ownerReferences", "finalizers"):
        doc["metadata"].pop(name, None)


def _is_dry(asked: ApiRequest) -> bool:
    return asked.query.get("dryRun") == "All"


def _line(kind: str, doc: Doc) -> bytes:
    return json.dumps({"type": kind, "object": doc}).encode() + b"\n"


def _told(one: Changed, wanted: Callable[[Doc], bool]) -> bytes:
    """What a watch says of a change; nothing when it is about neither an object that was meant nor one that is."""
    was = one.before is not None and wanted(one.before)
    if one.after is not None and wanted(one.after):
        return _line("MODIFIED" if was else "ADDED", one.after)
    if not was or one.before is None:
        return b""
    gone = copy.deepcopy(one.after or one.before)
    gone["metadata"]["resourceVersion"] = str(one.version)
    return _line("DELETED", gone)

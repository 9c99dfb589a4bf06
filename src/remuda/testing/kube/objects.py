"""Every object of a cluster with its version, what changed lately, and threads that wait for changes.

An object is never changed in place: a change stores a new one. So a reader may keep what it got without a copy.
"""

from __future__ import annotations

import copy
import hashlib
import threading
import time
import uuid
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

Doc: TypeAlias = dict[str, Any]
Key: TypeAlias = tuple[str, str, str]
"""Plural, namespace (empty where there is none) and name."""


class Changed(NamedTuple):
    """One step of the cluster."""

    version: int
    key: Key
    before: Doc | None
    after: Doc | None


def stamp(at: float) -> str:
    """A time as Kubernetes writes it, to the second."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(text: str) -> float:
    """The time that a stamp names."""
    return datetime.fromisoformat(text).timestamp()


def owner(doc: Doc) -> str:
    """The uid of what an object belongs to; empty when it belongs to none."""
    references = doc["metadata"].get("ownerReferences") or [{}]
    return str(references[0].get("uid", ""))


def set_condition(doc: Doc, kind: str, status: str, at: float, reason: str = "", message: str = "") -> None:
    """Set one of an object's conditions; its time changes when its status does."""
    conditions = doc.setdefault("status", {}).setdefault("conditions", [])
    found = next((one for one in conditions if one["type"] == kind), None)
    if found is None:
        conditions.append(found := {"type": kind, "status": ""})
    if found["status"] != status:
        found |= {"status": status, "lastTransitionTime": stamp(at)}
    found |= {name: text for name, text in (("reason", reason), ("message", message)) if text}


def has_condition(doc: Doc, *kinds: str) -> bool:
    """Whether one of these conditions is true."""
    conditions = doc.get("status", {}).get("conditions", [])
    return any(one["type"] in kinds and one["status"] == "True" for one in conditions)


class Objects:
    """What the cluster is. All that reads twice, or reads and writes, holds `lock`.

    Args:
        keep: how many changes a watch can go back.
    """

    def __init__(self, keep: int = 20_000) -> None:
        self.lock = threading.Condition()
        self.version = 1000
        self.ahead_s = 0.0
        """How far the cluster's clock is ahead of the machine's."""
        self.changes: deque[Changed] = deque(maxlen=keep)
        self.oldest = 0
        """The version before the first change that is still known."""
        self.closing = threading.Event()
        self._docs: dict[Key, Doc] = {}

    def expire_changes(self) -> None:
        """Forget what changed, so that no watch can go back, as a server does after minutes."""
        with self.lock:
            self.changes.clear()
            self.oldest = self.version

    def now(self) -> float:
        """The cluster's time."""
        return time.time() + self.ahead_s

    def get(self, key: Key) -> Doc | None:
        """One object."""
        return self._docs.get(key)

    def every(self, plural: str, namespace: str = "") -> list[Doc]:
        """All of one kind, in the order of namespace and name."""
        with self.lock:
            found = [key for key in self._docs if key[0] == plural and namespace in ("", key[1])]
            return [self._docs[key] for key in sorted(found)]

    def owned(self) -> list[tuple[Key, Doc]]:
        """All that belongs to another object."""
        return [(key, doc) for key, doc in self._docs.items() if owner(doc)]

    def uids(self) -> dict[str, Doc]:
        """All objects by their uid."""
        return {doc["metadata"]["uid"]: doc for doc in self._docs.values()}

    def create(self, key: Key, doc: Doc) -> Doc:
        """Store a new object, which gets its uid and time."""
        doc["metadata"]["creationTimestamp"] = stamp(self.now())
        doc["metadata"].setdefault("uid", str(uuid.uuid4()))
        return self._store(key, doc)

    def edit(self, key: Key, change: Callable[[Doc], None]) -> Doc | None:
        """Change a copy of an object and store it if it differs; one that is to go and is held by nothing goes.

        Returns:
            The object as it is now, or as it was last; None where there was none.
        """
        with self.lock:
            before = self._docs.get(key)
            if before is None:
                return None
            after = copy.deepcopy(before)
            change(after)
            if after == before:
                return before
            return self._store(key, after)

    def _store(self, key: Key, doc: Doc) -> Doc:
        with self.lock:
            self.version += 1
            doc["metadata"]["resourceVersion"] = str(self.version)
            meta = doc["metadata"]
            is_gone = (
                "deletionTimestamp" in meta
                and not meta.get("finalizers")
                and not meta.get("deletionGracePeriodSeconds")
            )
            before = self._docs.pop(key, None)
            if not is_gone:
                self._docs[key] = doc
            if len(self.changes) == self.changes.maxlen:
                self.oldest = self.changes[0].version
            self.changes.append(Changed(self.version, key, before, None if is_gone else doc))
            self.lock.notify_all()
            return doc

    def end(self, key: Key, grace_s: int = 0) -> Doc | None:
        """Ask for the end of an object: at once, or when its finalizers are gone. The shortest grace counts."""

        def mark(doc: Doc) -> None:
            meta = doc["metadata"]
            meta["deletionGracePeriodSeconds"] = min(grace_s, meta.get("deletionGracePeriodSeconds", grace_s))
            meta.setdefault("deletionTimestamp", stamp(self.now() + grace_s))

        return self.edit(key, mark)

    def end_pod(self, pod: Doc, grace_s: int | None = None) -> Doc | None:
        """Ask for the end of a pod: within its grace where it may run, else at once."""
        runs = pod["spec"].get("nodeName") and pod["status"]["phase"] in ("Pending", "Running")
        own = pod["spec"]["terminationGracePeriodSeconds"] if grace_s is None else grace_s
        return self.end(key_of("pods", pod), own if runs else 0)

    def note(self, about: Doc, reason: str, message: str, *, by: str, kind: str = "Normal") -> None:
        """Record an event of an object; one that is there is counted."""
        meta = about["metadata"]
        digest = hashlib.sha256(f"{meta['uid']}{reason}{message}".encode()).hexdigest()[:16]
        name, namespace = f"{meta['name']}.{digest}", meta.get("namespace", "default")
        with self.lock:
            key, now = ("events", namespace, name), stamp(self.now())
            if self.get(key) is not None:
                self.edit(key, lambda doc: doc.update(count=doc["count"] + 1, lastTimestamp=now))
                return
            involved = {name: meta[name] for name in ("name", "uid", "resourceVersion")}
            involved |= {"kind": about["kind"], "apiVersion": about["apiVersion"], "namespace": namespace}
            doc = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": namespace}}
            said = {"type": kind, "reason": reason, "message": message, "count": 1, "source": {"component": by}}
            times = {"firstTimestamp": now, "lastTimestamp": now, "reportingComponent": by}
            self.create(key, doc | said | times | {"involvedObject": involved})


def key_of(plural: str, doc: Doc) -> Key:
    """Where an object is kept."""
    return plural, doc["metadata"].get("namespace", ""), doc["metadata"]["name"]

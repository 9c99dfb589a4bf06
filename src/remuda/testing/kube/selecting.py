"""Label and field selectors of lists and watches: text to a question about an object. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from remuda.testing.kube.served import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.testing.kube.objects import Doc

_FIELDS: Final = {
    "pods": "spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName status.phase status.podIP",
    "jobs": "status.successful",
    "events": "involvedObject.kind involvedObject.namespace involvedObject.name involvedObject.uid "
    "involvedObject.apiVersion involvedObject.resourceVersion involvedObject.fieldPath reason type source",
    "secrets": "type",
    "nodes": "spec.unschedulable",
    "namespaces": "status.phase",
}
_COMMA: Final = re.compile(r",(?![^(]*\))")
_SET: Final = re.compile(r"^(\S+)\s+(in|notin)\s+\(([^)]*)\)$")
_NAME: Final = re.compile(r"^[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?$")


def selector(plural: str, labels: str, fields: str) -> Callable[[Doc], bool]:
    """Whether an object is meant.

    Raises:
        Refusal: a selector cannot be read, or names a field that is not served.
    """
    asked = [_label(part.strip()) for part in _COMMA.split(labels) if part.strip()]
    asked += [_field(plural, part.strip()) for part in fields.split(",") if part.strip()]
    return lambda doc: all(one(doc) for one in asked)


def _label(part: str) -> Callable[[Doc], bool]:
    if match := _SET.match(part):
        name, among = match[1], {value.strip() for value in match[3].split(",")}
        if match[2] == "in":
            return lambda doc: _labels(doc).get(name) in among
        return lambda doc: _labels(doc).get(name) not in among
    name, sign, value = _compared(part)
    if not _NAME.match(name.lstrip("!")):
        raise Refusal(400, "BadRequest", f"unable to parse requirement: found '{part}', expected: identifier")
    if sign == "!=":
        return lambda doc: _labels(doc).get(name) != value
    if sign:
        return lambda doc: _labels(doc).get(name) == value
    if name.startswith("!"):
        return lambda doc: name[1:] not in _labels(doc)
    return lambda doc: name in _labels(doc)


def _field(plural: str, part: str) -> Callable[[Doc], bool]:
    name, sign, value = _compared(part)
    if name not in ("metadata.name", "metadata.namespace", *_FIELDS.get(plural, "").split()):
        raise Refusal(400, "BadRequest", f"field label not supported: {name}")
    return lambda doc: (_at(doc, name) == value) is (sign != "!=")


def _compared(part: str) -> tuple[str, str, str]:
    for sign in ("!=", "==", "="):
        name, found, value = part.partition(sign)
        if found:
            return name.strip(), sign, value.strip()
    return part, "", ""


def _labels(doc: Doc) -> Doc:
    found: Doc = doc["metadata"].get("labels") or {}
    return found


def _at(doc: Doc, name: str) -> str:
    if name == "status.successful":
        return str(doc.get("status", {}).get("succeeded", 0))
    if name == "source":
        return str(doc.get("source", {}).get("component", ""))
    value: object = doc
    for word in name.split("."):
        value = value.get(word, "") if isinstance(value, dict) else ""
    return str(value).lower() if isinstance(value, bool) else str(value)

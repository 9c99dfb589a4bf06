"""What the server fills into a document, and the rules it refuses one by, in the words of 1.36. Pure."""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Final

from remuda.testing.kube.served import Refusal, invalid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from remuda.testing.kube.objects import Doc
    from remuda.testing.kube.served import Served

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SUBDOMAIN_SAYS: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    f"'{_SUBDOMAIN.pattern}')"
)
_VALUE: Final = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_VALUE_SAYS: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    f"'{_VALUE.pattern}')"
)
_MEBIBYTE: Final = 1 << 20
_ANNOTATIONS: Final = 256 << 10
_FAULTS = list[tuple[str, str, str]]


def _bad(field: str, value: object, says: str) -> tuple[str, str, str]:
    shown = f'"{value}"' if isinstance(value, str) else str(value)
    return field, "FieldValueInvalid", f"Invalid value: {shown}: {says}"


def _lacks(field: str, says: str = "") -> tuple[str, str, str]:
    return field, "FieldValueRequired", f"Required value{': ' if says else ''}{says}"


def _forbidden(field: str, says: str) -> tuple[str, str, str]:
    return field, "FieldValueForbidden", f"Forbidden: {says}"


def complete(kind: Served, doc: Doc) -> None:
    """Fill in what was left out."""
    doc.setdefault("metadata", {}).setdefault("generation", 1)
    if kind.plural == "jobs":
        _complete_job(doc["metadata"], doc.setdefault("spec", {}))
    elif kind.plural == "pods":
        complete_pod(doc.setdefault("spec", {}))
        doc.setdefault("status", {"phase": "Pending", "qosClass": "BestEffort"})
    elif kind.plural == "secrets":
        plain = {key: base64.b64encode(text.encode()).decode() for key, text in doc.pop("stringData", {}).items()}
        doc["data"] = doc.get("data", {}) | plain
        doc.setdefault("type", "Opaque")


def job_labels(meta: Doc) -> dict[str, str]:
    """What the pods of a Job are found by."""
    own = {"job-name": meta["name"], "controller-uid": meta["uid"]}
    return own | {f"batch.kubernetes.io/{key}": value for key, value in own.items()}


def _complete_job(meta: Doc, spec: Doc) -> None:
    # Without a number of completions one success of any pod ends a Job: that is no gang, and the same as one here.
    spec.setdefault("parallelism", 1)
    spec.setdefault("completions", 1)
    spec.setdefault("backoffLimit", 6 if spec.get("backoffLimitPerIndex") is None else 2**31 - 1)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("podReplacementPolicy", "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed")
    labels = job_labels(meta)
    uid = "batch.kubernetes.io/controller-uid"
    spec.setdefault("selector", {"matchLabels": {uid: labels[uid]}})
    template = spec.setdefault("template", {})
    about = template.setdefault("metadata", {})
    about["labels"] = (about.get("labels") or {}) | labels
    complete_pod(template.setdefault("spec", {}))


def complete_pod(spec: Doc) -> None:
    """Fill in a pod's, or a template's, specification."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("securityContext", {})
    for container in spec.get("containers") or ():
        container.setdefault("imagePullPolicy", "IfNotPresent")
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        resources = container.setdefault("resources", {})
        for part in ("limits", "requests"):
            if part in resources:
                resources[part] = {name: str(value) for name, value in resources[part].items()}
        if "limits" in resources:
            resources["requests"] = resources["limits"] | resources.get("requests", {})


def check(kind: Served, doc: Doc) -> None:
    """Whether a new document may be stored.

    Raises:
        Refusal: 422 with every fault that was found.
    """
    name = doc["metadata"]["name"]
    faults = [*_meta(doc["metadata"])]
    if kind.plural == "jobs":
        faults += [*_job(name, doc["spec"]), *_pod("spec.template.spec", doc["spec"]["template"]["spec"])]
    elif kind.plural == "pods":
        faults += _pod("spec", doc["spec"])
    elif kind.plural in ("secrets", "configmaps"):
        faults += _data(kind.plural, doc)
    if faults:
        raise invalid(kind, name, faults)


def check_change(kind: Served, before: Doc, after: Doc) -> None:
    """Whether a document may take the place of another.

    Raises:
        Refusal: 422; a field cannot be changed.
    """
    faults: _FAULTS = []
    if kind.plural == "jobs":
        old, new = before["spec"], after["spec"]
        fixed = ["template", "selector", "completionMode", "backoffLimitPerIndex", "podFailurePolicy", "managedBy"]
        is_elastic = new["completionMode"] == "Indexed" and new["completions"] == new["parallelism"]
        fixed += [] if is_elastic else ["completions"]
        faults += [
            _bad(f"spec.{one}", new.get(one), "field is immutable") for one in fixed if old.get(one) != new.get(one)
        ]
    elif kind.plural == "pods" and before["spec"] != after["spec"]:
        says = "pod updates may not change fields other than `spec.containers[*].image`,`spec.activeDeadlineSeconds`"
        faults += [_forbidden("spec", says)]
    elif before.get("immutable"):
        says = "field is immutable when `immutable` is set"
        faults += [_forbidden(one, says) for one in ("data", "binaryData") if before.get(one) != after.get(one)]
    if faults:
        raise invalid(kind, after["metadata"]["name"], faults)


def _meta(meta: Doc) -> Iterator[tuple[str, str, str]]:
    name = meta["name"]
    if len(name) > 253:
        yield _bad("metadata.name", name, "must be no more than 253 bytes")
    if not _SUBDOMAIN.fullmatch(name):
        yield _bad("metadata.name", name, _SUBDOMAIN_SAYS)
    for value in (meta.get("labels") or {}).values():
        if len(value) > 63:
            yield _bad("metadata.labels", value, "must be no more than 63 bytes")
        if not _VALUE.fullmatch(value):
            yield _bad("metadata.labels", value, _VALUE_SAYS)
    if sum(len(key) + len(text.encode()) for key, text in (meta.get("annotations") or {}).items()) > _ANNOTATIONS:
        yield "metadata.annotations", "FieldValueTooLong", f"Too long: may not be more than {_ANNOTATIONS} bytes"


def _job(name: str, spec: Doc) -> Iterator[tuple[str, str, str]]:
    is_indexed = spec["completionMode"] == "Indexed"
    last = f"{name}-{spec['completions'] - 1}"
    if is_indexed and not (_LABEL.fullmatch(last) and len(last) <= 63):
        yield _bad("metadata.name", last, f"will not able to create pod with invalid DNS label: {last}")
    for number in ("parallelism", "completions", "backoffLimit", "ttlSecondsAfterFinished", "activeDeadlineSeconds"):
        if (spec.get(number) or 0) < 0:
            yield _bad(f"spec.{number}", spec[number], "must be greater than or equal to 0")
    if spec.get("backoffLimitPerIndex") is not None and not is_indexed:
        yield _bad("spec.backoffLimitPerIndex", spec["backoffLimitPerIndex"], "requires indexed completion mode")
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        yield _lacks("spec.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    rules = (spec.get("podFailurePolicy") or {}).get("rules", [])
    if len(rules) > 20:
        yield "spec.podFailurePolicy.rules", "FieldValueTooMany", f"Too many: {len(rules)}: must have at most 20 items"
    policy = spec["template"]["spec"]["restartPolicy"]
    if rules and policy != "Never":
        yield _bad(
            "spec.template.spec.restartPolicy", policy, 'only "Never" is supported when podFailurePolicy is specified'
        )
    if rules and spec["podReplacementPolicy"] != "Failed":
        says = 'Unsupported value: "TerminatingOrFailed": supported values: "Failed"'
        yield "spec.podReplacementPolicy", "FieldValueNotSupported", says
    if policy == "Always":
        says = 'Unsupported value: "Always": supported values: "OnFailure", "Never"'
        yield "spec.template.spec.restartPolicy", "FieldValueNotSupported", says


def _pod(at: str, spec: Doc) -> Iterator[tuple[str, str, str]]:
    if not spec.get("containers"):
        yield _lacks(f"{at}.containers")
    if spec["restartPolicy"] != "Never":  # a rule of this stand-in alone
        yield _forbidden(f"{at}.restartPolicy", "this stand-in of a cluster restarts no containers: ask for Never")
    volumes = {one["name"] for one in spec.get("volumes") or ()}
    for index, container in enumerate(spec.get("containers") or ()):
        where = f"{at}.containers[{index}]"
        if not _LABEL.fullmatch(container.get("name", "")):
            yield _lacks(f"{where}.name")
        if not container.get("image"):
            yield _lacks(f"{where}.image")
        for number, mount in enumerate(container.get("volumeMounts") or ()):
            if mount["name"] not in volumes:
                yield f"{where}.volumeMounts[{number}].name", "FieldValueNotFound", f'Not found: "{mount["name"]}"'
        for name, value in container["resources"].get("limits", {}).items():
            if "/" in name and not value.isdigit():
                yield _bad(f"{where}.resources.limits[{name}]", value, "must be an integer")


def _data(plural: str, doc: Doc) -> Iterator[tuple[str, str, str]]:
    total = 0
    coded = {"secrets": ["data"], "configmaps": ["binaryData"]}[plural]
    for field in ("data", "binaryData"):
        for key, text in (doc.get(field) or {}).items():
            try:
                total += len(base64.b64decode(text, validate=True) if field in coded else text.encode())
            except binascii.Error as error:
                raise Refusal(400, "BadRequest", f'{doc["kind"]} in version "v1" cannot be handled: {error}') from error
            if not re.fullmatch(r"[-._a-zA-Z0-9]+", key):
                yield _bad(
                    f"{field}[{key}]",
                    key,
                    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
                )
    if total > _MEBIBYTE:
        field = "data" if plural == "secrets" else "[]"
        yield field, "FieldValueTooLong", f"Too long: may not be more than {_MEBIBYTE} bytes"

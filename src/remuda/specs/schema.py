"""JSON Schema of each kind of document, for editors. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remuda.base.errors import InputError
from remuda.specs.help import describe
from remuda.specs.kinds import KINDS
from remuda.specs.kubernetes import KubernetesFields

if TYPE_CHECKING:
    from collections.abc import Mapping

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_of(kind: str) -> dict[str, Any]:
    """The schema of one kind of document.

    Besides what the models say, it accepts what files may say shorter: one word for a backend or router, and `null`
    for «as if nobody had said it».

    Raises:
        InputError: there is no such kind.
    """
    if kind not in KINDS:
        raise InputError(f"there is no document of kind {kind!r}", hint=f"known: {', '.join(KINDS)}")
    describe(KINDS[kind].model)
    schema = KINDS[kind].model.model_json_schema(mode="validation")
    if issubclass(KINDS[kind].model, KubernetesFields):
        _with_places(schema)
    for part in [schema, *schema.get("$defs", {}).values()]:
        _loosen(part)
    for name in ("backend", "router"):
        if name in schema["properties"]:
            schema["properties"][name] = _or_word(schema["properties"][name])
    return {"$schema": DIALECT, "title": f"remuda {kind}", **{k: v for k, v in schema.items() if k != "title"}}


def _with_places(schema: dict[str, Any]) -> None:
    """A backend may be a mapping of its `type` and fields of Kubernetes."""
    own = schema["properties"]["backend"]
    kept = {key: own.pop(key) for key in ("description", "default") if key in own}
    describe(KubernetesFields)
    place = KubernetesFields.model_json_schema(mode="validation")
    place["properties"] = {"type": {**own, "description": "Type of backend."}, **place["properties"]}
    schema["$defs"]["KubernetesFields"] = {**place, "required": ["type"]}
    schema["properties"]["backend"] = {**kept, "anyOf": [own, {"$ref": "#/$defs/KubernetesFields"}]}


def _loosen(part: dict[str, Any]) -> None:
    """Numbers may be written as text, and everything that is not required may be null."""
    required = part.get("required", [])
    for name, field in part.get("properties", {}).items():
        _drop_titles(field)
        field.pop("derived", None)
        if name not in required and not _takes_null(field):
            if isinstance(field.get("type"), str) and "enum" not in field and "const" not in field:
                field["type"] = [field["type"], "null"]
            elif isinstance(field.get("type"), list):
                field["type"] = [*field["type"], "null"]
            elif "anyOf" in field:
                field["anyOf"] = [*field["anyOf"], {"type": "null"}]


def _drop_titles(field: Any) -> None:
    if isinstance(field, dict):
        field.pop("title", None)
        for value in field.values():
            _drop_titles(value)
    elif isinstance(field, list):
        for value in field:
            _drop_titles(value)


def _takes_null(field: Mapping[str, Any]) -> bool:
    return "null" in str(field.get("type")) or any(_takes_null(option) for option in field.get("anyOf", []))


def _or_word(field: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {key: field.pop(key) for key in ("description", "default") if key in field}
    return {**kept, "anyOf": [field, {"type": "string"}]}

"""What pydantic found wrong, as sentences with a place and the nearest known key. Pure."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from remuda.base.secrets import looks_secret
from remuda.specs.backend import PodBackend
from remuda.specs.help import help_of
from remuda.specs.reading.document import Problem
from remuda.specs.reading.fields import dotted, lookup, model_at, walk
from remuda.specs.reading.resolve import BUILT_IN
from remuda.specs.strict import Plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

    from remuda.specs.reading.document import Path
    from remuda.specs.reading.resolve import Resolved

_TYPES = {
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
}


def problems_of(error: ValidationError, model: type[BaseModel], resolved: Resolved) -> list[Problem]:
    """One problem for each thing that pydantic found."""
    found = error.errors(include_url=False)
    inside = {details["loc"][:length] for details in found for length in range(len(details["loc"]))}
    # Without its wrong items a list is too short: that is no fault of its own.
    own = [details for details in found if details["type"] != "too_short" or details["loc"] not in inside]
    return [_problem(details, model, resolved) for details in own]


def _problem(details: ErrorDetails, model: type[BaseModel], resolved: Resolved) -> Problem:
    path = _path(details, resolved.data)
    kind, context = details["type"], details.get("ctx", {})
    if kind == "union_tag_invalid":
        path = (*path, "type")
    if kind == "extra_forbidden":
        message, hint = _unknown(path, model, resolved.data)
    elif kind == "missing":
        message, hint = f"`{dotted(path)}` is required", _purpose(path, model, resolved.data)
    elif kind == "said_at":
        path = (*path, context["at"])
        message, hint = context["sentence"], context["hint"]
    elif kind == "said":
        message, hint = f"`{dotted(path)}` {context['sentence']}", context["hint"]
    else:
        message, hint = _sentence(kind, path, lookup(resolved.data, path), context)
    on_key = kind in ("extra_forbidden", "missing", "said_at")
    origin = resolved.key(path) if on_key or resolved.origin(path) is BUILT_IN else resolved.origin(path)
    return Problem("" if origin is BUILT_IN else origin.where, message, hint, (origin.line, origin.column))


def _path(details: ErrorDetails, data: object) -> Path:
    """The place in the data: pydantic also names the members of unions, which are no keys."""
    path: list[str | int] = []
    location = details["loc"]
    for index, part in enumerate(location):
        below = lookup(data, (part,))
        if below is not None:
            data = below
        elif index + 1 < len(location) or details["type"] != "missing":
            continue
        path.append(part)
    return tuple(path)


def _sentence(kind: str, path: Path, value: object, context: Mapping[str, Any]) -> tuple[str, str]:
    name = dotted(path) or "the document"
    given = _given(path, value)
    if kind in _TYPES:
        return f"`{name}` {_TYPES[kind]}, not {given}", ""
    if kind in ("literal_error", "union_tag_invalid"):
        choices = str(context.get("expected") or context.get("expected_tags")).replace(" or ", ", ").replace("'", "")
        known = choices.split(", ")
        must = f"one of {', '.join(known)}" if known[1:] else f"`{known[0]}`"
        return f"`{name}` must be {must}, not {given}", _nearest(str(value), known)
    bounds = {
        "greater_than_equal": ("ge", "at least"), "less_than_equal": ("le", "at most"),
        "greater_than": ("gt", "more than"), "less_than": ("lt", "less than"),
    }  # fmt: skip
    if kind in bounds:
        key, words = bounds[kind]
        return f"`{name}` must be {words} {context[key]}, not {given}", ""
    if kind == "too_short":
        return f"`{name}` must have at least {context['min_length']}", ""
    if kind == "string_too_short":
        return f"`{name}` must not be empty", ""
    return f"`{name}` is wrong: {kind.replace('_', ' ')}", ""


def _given(path: Path, value: object) -> str:
    if any(looks_secret(str(part)) for part in path):
        return "what is there"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    if value is None:
        return "nothing"
    text = str(value) if isinstance(value, Plain) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _unknown(path: Path, model: type[BaseModel], data: dict[str, Any]) -> tuple[str, str]:
    key = str(path[-1])
    owner = model_at(model, path[:-1], data)
    known = list(owner.model_fields) if owner else []
    where = f" in `{dotted(path[:-1])}`" if path[:-1] else ""
    near = _nearest(key, known)
    if not near:
        elsewhere = [at for at, _, _ in walk(model) if at.split(".")[-1] == key]
        near = f"did you mean `{elsewhere[0]}`?" if elsewhere else f"known: {', '.join(sorted(known))}"
        if key in elsewhere:
            near = f"`{key}` stands at the top" + ("; a replica is one pod" if owner is PodBackend else "")
    return f"unknown key {key!r}{where}", near


def nearest_key(key: str, known: Iterable[str]) -> str:
    """The known key that `key` was probably meant to be, empty when none is near."""
    close = difflib.get_close_matches(key.lower().replace("-", "_"), list(known), n=1, cutoff=0.6)
    return close[0] if close else ""


def _nearest(key: str, known: Iterable[str]) -> str:
    near = nearest_key(key, known)
    return f"did you mean {near!r}?" if near else ""


def _purpose(path: Path, model: type[BaseModel], data: dict[str, Any]) -> str:
    owner = model_at(model, path[:-1], data)
    return help_of(owner, str(path[-1])).partition("\n")[0].rstrip(".") if owner else ""

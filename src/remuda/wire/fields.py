"""Fields of records: read from JSON or taken from other records, and which numbers in them count.

Python 3.9, standard library only.
"""

from __future__ import annotations

import json
import math
from dataclasses import fields
from typing import Any, Callable, TypeVar

T = TypeVar("T")
_INT64 = 2**63


def is_int(value: object) -> bool:
    """Whether it is a whole number that a database can keep."""
    return isinstance(value, int) and not isinstance(value, bool) and -_INT64 <= value < _INT64


def is_number(value: object) -> bool:
    """Whether it is a number that JSON and a database can carry."""
    return (isinstance(value, float) and math.isfinite(value)) or is_int(value)


def floats(told: object) -> dict[str, float]:
    """The numbers by name of what was read; whatever else is in it is left out."""
    if not isinstance(told, dict):
        return {}
    return {str(name): float(value) for name, value in told.items() if is_number(value)}


def names_of(kind: Any) -> Any:
    """The fields of a dataclass, a named tuple or a model."""
    return getattr(kind, "_fields", None) or getattr(kind, "model_fields", None) or [item.name for item in fields(kind)]


def known(kind: Any, data: Any) -> dict[str, Any]:
    """The values that it has fields for; those of newer programs are left out."""
    return {name: data[name] for name in names_of(kind) if name in data}


def alike(kind: Any, *records: object) -> dict[str, Any]:
    """The values that records have under the names of its fields; of several the last one's."""
    return {name: getattr(one, name) for one in records for name in names_of(kind) if hasattr(one, name)}


def read(kind: Callable[..., T], text: str | bytes, what: str) -> T:
    """Read a dataclass or named tuple.

    Raises:
        ValueError: not JSON, not an object, or a field is missing.
    """
    data: Any = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError(f"{what} is a JSON object")  # noqa: TRY004 - callers catch ValueError
    try:
        return kind(**known(kind, data))
    except TypeError as error:
        raise ValueError(str(error)) from error

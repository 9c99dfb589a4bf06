"""Numbers that programs tell of themselves. Here they are floats, however JSON has them."""

from __future__ import annotations

import math

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

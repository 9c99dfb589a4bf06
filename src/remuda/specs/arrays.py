"""The indices of an array of runs, as sbatch has them (`1-50%4`, `1,3,7`, `0-30:3`): taken apart. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from remuda.base.errors import InputError

MOST: Final = 1_000
"""Tasks of one array: every look at it goes through all of them."""
HIGHEST: Final = 4_000_000
"""Index: no Slurm has a higher one."""
_ITEM = re.compile(r"(\d{1,18})(?:-(\d{1,18})(?::([1-9]\d{0,17}))?)?", re.ASCII)
_HINT = "write 1-50, 1,3,7 or 0-30:3, with %4 behind it for four at a time"


@dataclass(frozen=True)
class Array:
    """Which tasks there are, and how many of them at a time."""

    indices: tuple[int, ...]
    """Rising."""
    at_most: int = 0
    """0: all of them."""


def parse_array(text: str) -> Array:
    """Read an array; the words of its errors go on from the name of the field.

    Raises:
        InputError: it is none, or names an index twice, or too many.
    """
    listed, percent, limit = text.strip().partition("%")
    indices: set[int] = set()
    for item in listed.split(","):
        numbers = _numbers(item)
        if len(indices) + len(numbers) > MOST:
            raise InputError(f"names more than {MOST:,} tasks", hint="make several arrays of it")
        twice = indices.intersection(numbers)
        if twice:
            raise InputError(f"names index {min(twice)} twice", hint=_HINT)
        indices.update(numbers)
    if percent and not (limit.isdecimal() and len(limit) < 10 and int(limit)):
        raise InputError(f"has {limit!r} behind its %, which is not a number of tasks at a time", hint=_HINT)
    return Array(tuple(sorted(indices)), int(limit or 0))


def _numbers(item: str) -> range:
    match = _ITEM.fullmatch(item)
    if match is None:
        raise InputError(f"has {item!r}, which is neither an index nor a range", hint=_HINT)
    first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
    if last < first:
        raise InputError(f"has {item!r}, which ends before it begins", hint=_HINT)
    if last > HIGHEST:
        raise InputError(f"has index {last:,}, and {HIGHEST:,} is the highest", hint=_HINT)
    return range(first, last + 1, step)

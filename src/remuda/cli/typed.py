"""Values of flags where click's own words name neither the flag nor what to write: one sentence each."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import orjson

from remuda.base.errors import InputError, located
from remuda.base.text import brief, did_you_mean
from remuda.base.units import parse_duration

if TYPE_CHECKING:
    from collections.abc import Sequence


def number(text: str, flag: str, example: str) -> float:
    """A number.

    Raises:
        InputError: it is none.
    """
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if math.isnan(found):
        raise InputError(f"must be a number, not {brief(text)!r}", where=flag, hint=f"write {flag} {example}")
    return found


def duration(text: str, flag: str) -> float:
    """Seconds.

    Raises:
        InputError: it is no duration.
    """
    with located(flag):
        return parse_duration(text)


def one_of(text: str, words: Sequence[str], flag: str) -> str:
    """One of some words.

    Raises:
        InputError: it is none of them, or nothing was said.
    """
    if text in words:
        return text
    hint = did_you_mean(text, words, f"write {flag} {words[0]}")
    said = f", not {brief(text)!r}" if text else ""
    raise InputError(f"must be {' or '.join(words)}{said}", where=flag, hint=hint)


def json_object(text: str, flag: str) -> dict[str, Any]:
    """A JSON object.

    Raises:
        InputError: it is none.
    """
    hint = f"""write {flag} '{{"top_k": 1}}'"""
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        words = str(error).partition(": line")[0]
        raise InputError(f"must be JSON, not {brief(text)!r}: {words}", where=flag, hint=hint) from error
    if not isinstance(found, dict):
        raise InputError(f"must be a JSON object, not {brief(text)!r}", where=flag, hint=hint)
    return found

"""What servers send, made into what can be stored: an answer counts, whatever stands beside it. Pure."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

import orjson

#: More tokens than this in one request are not believed; sums over all rows of a job stay far below 64 bits.
MOST_TOKENS: Final = 1 << 31
_LONGEST_WORD: Final = 200
#: What nests deeper is not looked at; Python's own parser gives up at about a thousand.
_DEEPEST: Final = 200
#: Never goes back, whatever a server sends: a text without an end reaches to the end of all.
_TOKEN: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)


def parse(body: bytes) -> Any:
    """The JSON value of a body, taken generously where it breaks the rules.

    NaN and infinity are null, bytes that are no UTF-8 and lone surrogates become U+FFFD, and what nests too deeply is
    null. So an answer that was paid for is not asked again for a flaw beside it.

    Raises:
        ValueError: it is not valid JSON.
    """
    try:
        return orjson.loads(body)
    except ValueError:
        return _generous(body.decode("utf-8", "replace"))


def _generous(text: str) -> Any:
    try:
        value = json.loads(
            _shallow(text), strict=False, parse_int=_whole, parse_float=_fraction, parse_constant=lambda _: None
        )
    except RecursionError as error:
        raise ValueError("it nests too deeply") from error
    return clean(value)


def _shallow(text: str) -> str:
    """The text with null in place of what nests deeper than `_DEEPEST`."""
    kept: list[str] = []
    depth = start = 0
    for found in _TOKEN.finditer(text):
        mark = found[0]
        if mark in "[{":
            depth += 1
            if depth == _DEEPEST + 1:
                kept += text[start : found.start()], "null"
        elif mark in "]}":
            depth -= 1
            if depth == _DEEPEST:
                start = found.end()
    return "".join(kept) + text[start:] if kept else text


def _whole(digits: str) -> int | float | None:
    return int(digits) if len(digits) < 19 else _fraction(digits)


def _fraction(digits: str) -> float | None:
    value = float(digits)
    return value if math.isfinite(value) else None


def clean(value: Any) -> Any:
    """A JSON-like value whose texts can be encoded: a lone surrogate becomes U+FFFD, a pair of them its character."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean(name): clean(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(item) for item in value]
    return value


def clean_text(text: str) -> str:
    """See `clean`."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def count(value: Any) -> int:
    """A number of tokens as a server says it; 0 for what is none (5.5, 2**64, "five", null)."""
    if type(value) is not int:
        digits = isinstance(value, str) and len(value) <= 10 and value.isascii() and value.isdigit()
        if not digits and not (isinstance(value, float) and value.is_integer()):
            return 0
        value = int(value)
    return value if 0 <= value <= MOST_TOKENS else 0


def word(value: Any) -> str:
    """A short text as a server says it, empty for what is none."""
    return value[:_LONGEST_WORD] if isinstance(value, str) else ""


def text(value: Any) -> str:
    """Text as it is, anything else as JSON.

    Raises:
        TypeError: it nests too deeply to be written.
    """
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def excerpt(value: Any) -> str:
    """The beginning of a reply, for an error."""
    try:
        return orjson.dumps(value).decode()[:_LONGEST_WORD]
    except TypeError:
        return repr(value)[:_LONGEST_WORD]


def numbers(value: Any) -> list[Any] | None:
    """A vector, or several, as floats; null stays null. None for what is no list of numbers."""
    if not isinstance(value, list) or not value:
        return None
    kinds = set(map(type, value))
    if kinds == {float}:
        return value
    if kinds <= {float, int, type(None)}:
        return [None if item is None else float(item) for item in value]
    found = [numbers(item) for item in value]
    return None if None in found else found


def settled(record: list[Any]) -> list[Any]:
    """A record of the checkpoint whose counts and finish reason can be written, whichever version made it.

    What is no number of tokens is null: nobody knows how many there were.
    """
    for place in (2, 3):
        if type(record[place]) is not int or not 0 <= record[place] <= MOST_TOKENS:
            record[place] = count(record[place]) or None
    if not isinstance(record[4], str):
        record[4] = "" if record[4] is None else excerpt(record[4])
    return record

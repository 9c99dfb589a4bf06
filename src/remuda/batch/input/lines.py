"""Jsonl, line by line: what is not a JSON object becomes a row of its own that says so."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_BOM: Final = b"\xef\xbb\xbf"
#: From here on orjson reads an integer as a float where 64 bits do not hold it.
_DOUBTFUL: Final = float(1 << 63)


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is no row.

    Attributes:
        message: what is wrong with it, with file and line.
        raw: its bytes.
    """

    message: str
    raw: bytes


def read_lines(path: Path, rows: int) -> Iterator[tuple[list[dict[str, Any]], dict[int, BadLine]]]:
    """Records of a file, `rows` lines at a time, and which of them are bad; a bad one's record is empty.

    Empty lines are not rows.
    """
    with path.open("rb") as file:
        number = 0
        while lines := list(itertools.islice(file, rows)):
            records: list[dict[str, Any]] = []
            bad: dict[int, BadLine] = {}
            for line in lines:
                number += 1
                raw = line.removeprefix(_BOM) if number == 1 else line
                if not raw.strip():
                    continue
                record = _record(raw, path, number)
                if isinstance(record, BadLine):
                    bad[len(records)] = record
                    record = {}
                records.append(record)
            if records:
                yield records, bad


def _record(line: bytes, path: Path, number: int) -> dict[str, Any] | BadLine:
    try:
        record = orjson.loads(line)
        if _is_doubtful(record):
            record = json.loads(line)
    except ValueError as error:
        return BadLine(f"{path}:{number}: not JSON: {error}", line)
    except RecursionError:
        return BadLine(f"{path}:{number}: nested too deeply", line)
    if not isinstance(record, dict):
        return BadLine(f"{path}:{number}: a line must be a JSON object, this is {type(record).__name__}", line)
    return record


def _is_doubtful(value: Any) -> bool:
    """Whether it holds a number that may have been an integer of more than 64 bits."""
    kind = type(value)
    if kind is float:
        return not -_DOUBTFUL < value < _DOUBTFUL
    if kind is dict:
        return any(map(_is_doubtful, value.values()))
    return kind is list and any(map(_is_doubtful, value))


def to_line(record: dict[str, Any]) -> bytes:
    """A record as a line; what JSON has no word for (dates, decimals) is written as text."""
    try:
        return orjson.dumps(
            record, default=str, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
        )
    except TypeError:
        # Integers above 64 bits, hundreds of levels.
        return json.dumps(record, ensure_ascii=False, default=str).encode() + b"\n"

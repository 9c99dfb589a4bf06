"""Recorded arrivals: when requests came, and how long they were. Pure."""

from __future__ import annotations

import csv
import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from remuda.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Seconds in a unit of time.
UNITS: Final = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_KEYS: Final = ("timestamp", "input_length", "output_length")
_HINT: Final = 'write {"timestamp": 0, "input_length": 512, "output_length": 64}, one a line, or CSV with these columns'


@dataclass(frozen=True)
class Trace:
    """Requests by their index, in the order in which they came.

    Attributes:
        times: seconds after the first, ascending.
        inputs: input tokens; empty where the record does not say.
        outputs: output tokens; empty where it does not say.
    """

    times: tuple[float, ...]
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()

    @property
    def rate(self) -> float:
        """Requests a second in the mean; `inf` where all came at once."""
        return (len(self.times) - 1) / self.times[-1] if self.times[-1] > 0 else math.inf

    @property
    def digest(self) -> str:
        """Of all that it says."""
        return hashlib.sha256(orjson.dumps(self)).hexdigest()[:16]

    def head(self, requests: int, duration_s: float) -> Trace:
        """Its first so many requests, or those of its first seconds; 0: all."""
        count = sum(1 for at in self.times if at < duration_s) if duration_s else len(self.times)
        count = min(count, requests or count)
        return Trace(self.times[:count], self.inputs[:count], self.outputs[:count])


def read_trace(text: str, name: str, unit: str = "ms") -> Trace:
    """Read a trace: JSON lines (Mooncake's keys), or CSV with or without a line of names.

    Args:
        text: of the file.
        name: of the file, for errors.
        unit: of time stamps.

    Raises:
        InputError: a line is none of a trace; says which.
    """
    lines = _json_lines(text, name) if text.lstrip().startswith("{") else _csv_lines(text, name)
    times: list[float] = []
    lengths: dict[str, list[int]] = {key: [] for key in _KEYS[1:]}
    for where, said in lines:
        at = _number(said, "timestamp", where)
        if times and at < times[-1]:
            raise InputError(f"`timestamp` {at:g} is before that of the line above", where=where, hint="sort the file")
        for key, found in lengths.items():
            is_said = said.get(key) is not None
            if times and is_said != bool(found):
                words = "is not in the lines above" if is_said else "is missing, and other lines have it"
                raise InputError(f"`{key}` {words}", where=where, hint=_HINT)
            if is_said:
                found.append(_length(said, key, where))
        times.append(at)
    if not times:
        raise InputError("holds no request", where=name, hint=_HINT)
    scaled = tuple((at - times[0]) * UNITS[unit] for at in times)
    return Trace(scaled, *(tuple(found) for found in lengths.values()))


def _json_lines(text: str, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            said = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise InputError(f"is not JSON: {str(error)[:80]}", where=f"{name}:{number}", hint=_HINT) from error
        if not isinstance(said, dict):
            raise InputError("is not a JSON object", where=f"{name}:{number}", hint=_HINT)
        yield f"{name}:{number}", said


def _csv_lines(text: str, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    reader = csv.reader(text.splitlines(), skipinitialspace=True)
    names: list[str] | None = None
    try:
        for cells in reader:
            where = f"{name}:{reader.line_num}"
            if not any(cell.strip() for cell in cells):
                continue
            if names is None:
                names = [cell.strip().lower() for cell in cells]
                if "timestamp" in names:
                    continue
                names = list(_KEYS)
            yield where, dict(zip(names, (cell.strip() or None for cell in cells), strict=False))
    except csv.Error as error:
        raise InputError(f"is not valid CSV: {error}", where=f"{name}:{reader.line_num}", hint=_HINT) from error


def _number(said: Mapping[str, Any], key: str, where: str) -> float:
    value = said.get(key)
    try:
        number = math.nan if isinstance(value, bool) or value is None else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        words = "is missing" if value is None else f"must be a number, not {str(value)[:60]!r}"
        raise InputError(f"`{key}` {words}", where=where, hint=_HINT)
    return number


def _length(said: Mapping[str, Any], key: str, where: str) -> int:
    number = _number(said, key, where)
    if number < 1 or number != int(number):
        raise InputError(f"`{key}` must be a whole number of tokens, at least 1, not {said[key]}", where=where)
    return int(number)

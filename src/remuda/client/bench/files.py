"""Points out of files of other tools, and into them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from remuda.base.disk.files import read_whole
from remuda.base.errors import InputError
from remuda.bench.judging.measures import is_measured, window_of
from remuda.bench.reporting import foreign, formats
from remuda.client.bench.benchmarks import Measured

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from remuda.bench.generator.reading import RequestRow
    from remuda.bench.point import Point
    from remuda.bench.store import PointStore

#: Larger than any result with the details of each request.
_MOST_BYTES: Final = 1 << 30


def export(kept: PointStore, points: Sequence[Point], kind: str, said: Mapping[str, str]) -> str:
    """The text of a file with these points.

    Raises:
        InputError: they lack what the format needs.
    """
    formats.check_set(said, kind)
    return formats.export([(point, _rows(kept, point) if kind == "vllm" else []) for point in points], kind, said)


def _rows(kept: PointStore, point: Point) -> list[RequestRow]:
    """Those that the numbers are of, and those that failed."""
    rows = kept.rows(point)
    window = window_of(rows, point.load)
    return [row for row in rows if not row.is_ok or is_measured(row, window)]


def take_in(kept: PointStore, files: Sequence[Path]) -> list[Measured]:
    """Store the results of files: all of them, or none where a file is bad. What is there is not stored again.

    Raises:
        InputError: a file is none of a known tool; says which, and where in it.
        Unwritable: they cannot be stored.
    """
    known = {point.id: point for point in kept.points()}
    found = []
    for point in [point for file in files for point in _read(file)]:
        stored = known.get(point.id)
        known[point.id] = stored or kept.write(point, [])
        found.append(Measured(known[point.id], is_stored=stored is not None))
    return found


def _read(file: Path) -> list[Point]:
    try:
        text = read_whole(file, _MOST_BYTES).decode("utf-8-sig")
        changed_at = file.stat().st_mtime
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(file), hint="see its path") from error
    except UnicodeDecodeError as error:
        raise InputError("is not text: JSON in UTF-8 is required", where=str(file)) from error
    return [
        replace(point, meta={**point.meta, "file": file.name}, started_at=point.started_at or changed_at)
        for point in foreign.read(text, str(file))
    ]

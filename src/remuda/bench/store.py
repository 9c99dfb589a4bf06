"""Points on disk: a directory each, `ID-REPEAT/point.json` and `requests.parquet`. Written whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import secrets
import shutil
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import orjson

from remuda.base.disk.files import write_atomic
from remuda.base.disk.private import make_private
from remuda.base.errors import InputError, NotFound, Unwritable
from remuda.base.extras import need_batch
from remuda.bench.point import Point

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from remuda.bench.generator.reading import RequestRow

POINT: Final = "point.json"
REQUESTS: Final = "requests.parquet"
ANSWERS: Final = "answers.jsonl"
#: Digits of the id in a directory's name.
_DIGITS: Final = 16
_UNFINISHED: Final = ".part-"
_COMMANDS: Final = ".commands"
#: No writer is still at a directory that is so old: one takes seconds.
_LEFT_S: Final = 3600.0
#: An empty file for each time that a load was begun: to know it no point has to be read.
_BEGUN: Final = ".begun"


class PointStore:
    """All points under one directory. Two benchmarks may write to it at the same time.

    Args:
        root: made when the first point is written, in a state directory that is made with it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def points(self) -> list[Point]:
        """All of them, the oldest first. What is no point is passed over."""
        return self._read("*")

    def _read(self, names: str) -> list[Point]:
        found = self._parse(folder for folder in self.root.glob(names) if not folder.name.startswith("."))
        return sorted(found, key=lambda point: (point.started_at, point.repeat))

    def _parse(self, folders: Iterable[Path]) -> Iterator[Point]:
        for folder in folders:
            with contextlib.suppress(OSError, ValueError):
                yield Point.from_json(orjson.loads((folder / POINT).read_bytes()))

    def of(self, point_id: str) -> list[Point]:
        """The repeats of one address, the oldest first."""
        return [point for point in self._read(f"{point_id[:_DIGITS]}-*") if point.id == point_id]

    def begin(self, load: str, endpoint: str) -> int:
        """Note that a load is offered to an endpoint now; returns how often it was before.

        Args:
            load: its digest.
            endpoint: URL.

        Raises:
            Unwritable: the directory cannot be written.
        """
        name = hashlib.sha256(f"{load} {endpoint}".encode()).hexdigest()[:_DIGITS]
        try:
            folder = make_private(self.root / _BEGUN, below=self.root.parent)
            for count in itertools.count(len(list(folder.glob(f"{name}-*")))):
                with contextlib.suppress(FileExistsError):  # Another benchmark of the same has just begun.
                    (folder / f"{name}-{count}").touch(mode=0o600, exist_ok=False)
                    return count
        except OSError as error:
            hint = "make room there, or name another directory: REMUDA_HOME"
            raise Unwritable(f"{self.root} cannot be written: {error.strerror or error}", hint=hint) from error
        raise AssertionError  # The count has no end.

    def find(self, name: str) -> Point:
        """One point by its name or the beginning of its id (then its newest repeat).

        Raises:
            NotFound: there is none.
            InputError: several begin like that.
        """
        return named(self.points(), name)[-1]

    def folder(self, point: Point) -> Path:
        """Where its files are."""
        return self.root / f"{point.id[:_DIGITS]}-{point.repeat}"

    def has_run(self, address: str) -> bool:
        """Whether a command of this address has ended with 0."""
        return (self.root / _COMMANDS / address).exists()

    def ran(self, address: str) -> None:
        """Note that one has.

        Raises:
            Unwritable: the disk is full, or the directory cannot be written.
        """
        try:
            write_atomic(make_private(self.root / _COMMANDS, below=self.root.parent) / address, b"", mode=0o600)
        except OSError as error:
            raise Unwritable(f"{self.root} cannot be written: {error.strerror or error}") from error

    def rows(self, point: Point) -> list[RequestRow]:
        """The requests of a point; none where they were not kept, as of a point that was imported."""
        need_batch("to read the requests of a point takes")
        import pyarrow.parquet as pq

        from remuda.bench.generator.reading import RequestRow

        try:
            table = pq.read_table(self.folder(point) / REQUESTS)
        except (OSError, ValueError):  # Arrow's own errors are of these.
            return []
        names = [name for name in table.column_names if name != "chunks"]
        found = [RequestRow(first_out=values.pop("n_first"), **values) for values in table.select(names).to_pylist()]
        for row, chunks in zip(found, table["chunks"].to_pylist(), strict=True):
            row.chunks.extend(chunks)
        return found

    def write(self, point: Point, rows: Sequence[RequestRow], answers: bytes = b"") -> Point:
        """Store it as the next repeat of its address; returns it with that number.

        Args:
            point: what was measured.
            rows: its requests.
            answers: to questions, in place of requests.

        Raises:
            Unwritable: the disk is full, or the directory cannot be written.
        """
        part = self.root / f"{_UNFINISHED}{secrets.token_hex(6)}"
        try:
            make_private(self.root, below=self.root.parent)
            self._sweep()
            part.mkdir(mode=0o700)
            if point.accuracy is None:
                _write_rows(part / REQUESTS, rows)
            else:
                write_atomic(part / ANSWERS, answers, mode=0o600)
            repeat = 1
            while True:
                whole = replace(point, repeat=repeat)
                data = orjson.dumps(whole.to_json(), option=orjson.OPT_INDENT_2)
                write_atomic(part / POINT, data, mode=0o600)
                if not self.folder(whole).exists():
                    with contextlib.suppress(OSError):  # Another benchmark was faster: its number is taken.
                        part.rename(self.folder(whole))
                        return whole
                    if not self.folder(whole).exists():
                        part.rename(self.folder(whole))
                repeat += 1
        except OSError as error:
            raise Unwritable(
                f"the point cannot be stored in {self.root}: {error.strerror or error}",
                hint="make room there; the point is lost and has to be measured again",
            ) from error
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def _sweep(self) -> None:
        """Remove what writers left that were killed; others may be writing now."""
        for left in self.root.glob(f"{_UNFINISHED}*"):
            with contextlib.suppress(OSError):
                if left.stat().st_mtime < time.time() - _LEFT_S:
                    shutil.rmtree(left)


def named(points: Sequence[Point], name: str) -> list[Point]:
    """The points that a name means: `3f9a01c2-2` that one, the beginning of an id all its repeats, the oldest first.

    Raises:
        NotFound: there is none.
        InputError: several ids begin like that.
    """
    stem, dash, repeat = name.rpartition("-")
    begin = stem if dash else name
    found = [point for point in points if begin and point.id.startswith(begin)]
    if dash:
        found = [point for point in found if str(point.repeat) == repeat]
    if not found:
        raise NotFound(f"there is no point {name!r}", hint="see `remuda bench list`")
    if len({point.id for point in found}) > 1:
        raise InputError(f"{name!r} is the beginning of several points", hint="write more of it: remuda bench list")
    return found


def _write_rows(path: Path, rows: Sequence[RequestRow]) -> None:
    import pyarrow.parquet as pq

    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        pq.write_table(table_of(rows), file, compression="zstd")
        file.flush()
        os.fsync(file.fileno())


def table_of(rows: Sequence[RequestRow]) -> pa.Table:
    """A row a request; times in ns of CLOCK_MONOTONIC, `chunks` in microseconds after `sent`."""
    import pyarrow as pa

    columns = {
        "index": pa.int64(), "process": pa.int32(), "sched": pa.int64(), "sent": pa.int64(), "first": pa.int64(),
        "last": pa.int64(), "ended": pa.int64(), "asked_in": pa.int64(), "asked_out": pa.int64(), "n_in": pa.int64(),
        "n_out": pa.int64(), "n_first": pa.int64(), "cached": pa.int64(), "status": pa.int32(), "finish": pa.string(),
        "error": pa.string(), "text": pa.string(),
    }  # fmt: skip
    arrays = {name: pa.array([getattr(row, name) for row in rows], kind) for name, kind in columns.items()}
    arrays["chunks"] = pa.array([row.chunks for row in rows], pa.list_(pa.int64()))
    return pa.table(arrays)

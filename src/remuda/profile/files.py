"""Recordings on disk: spools, the Parquet that is made of them when they have ended, and files of others.

A Parquet file has a row group a minute, the columns that `profile.rows` describes, and in its own words (`remuda`) the
headers and notes of the recordings in it. A folder may have both it and spools: of one that it has, the file counts.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from remuda.base.errors import Conflict, InputError, NotFound, Unwritable
from remuda.profile.columns import COUNTERS, Recorded, alone, join
from remuda.profile.rows import SpoolSource, fitted, minutes, schema, tracks
from remuda.wire.spool import CLOSED, OPEN, block_files, spools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from remuda.profile.columns import Attempt, Said, Track
    from remuda.wire.recording import Gpu
    from remuda.wire.spool import Spool

_WORDS: Final = b"remuda"
_VERSION: Final = 1
_LEFT_S: Final = 3600.0
#: The year 9999, after which nobody can write a time.
_LATEST_US: Final = 253_402_300_799_000_000
#: What a file raises that was not written by remuda, though it looks like it: other columns, types or sizes.
_STRANGE: Final = (
    pa.ArrowException, ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError,
)  # fmt: skip
#: Gauges that seldom have the same value twice.
_NUMBERS: Final = frozenset({"round", "memory", "memory_clock"})


def read(
    *paths: Path,
    name: str = "",
    attempt_of: Callable[[str], Attempt] = alone,
    processes: bool = True,
    last_s: float = 0.0,
) -> Recorded:
    """Read recordings as one timeline.

    Args:
        paths: folders of recordings or spools, whole or cut off anywhere, ended or not; Parquet files; JSON of gswarm.
        name: of the whole; empty for that of the first recording that has one.
        attempt_of: whose a token is.
        processes: whether they are wanted, too.
        last_s: the newest so many seconds of the whole, which are quick to get while it is recorded; 0 for all.

    Raises:
        NotFound: nothing is at one of the paths, or nothing has been recorded there yet.
        InputError: a file is none that this room can read.
    """
    from remuda.profile.gswarm import read_gswarm

    found: list[Track] = []
    notes: list[Said] = []
    names: list[str] = []
    gpus: dict[tuple[str, str, int], tuple[str, Gpu]] = {}
    for path in paths:
        if path.suffix == ".json" and path.is_file():
            found += read_gswarm(path)
            names.append(path.stem)
            continue
        try:
            table, sources = _read_folder(path, last_s) if path.is_dir() else _read_file(path, processes=processes)
            found += tracks(table, sources)
            notes += [said for source in sources for said in source.said()]
            for header in (source.header for source in sources):
                names.append(header.name)
                gpus |= {(header.node, gpu.uuid, gpu.index): (header.node, gpu) for gpu in header.gpus}
            _check_times([*(int(at) for track in found for at in track.times[[0, -1]]), *(one.at_us for one in notes)])
        except _STRANGE as error:
            raise InputError(f"it is not a recording: {type(error).__name__}: {error}", where=str(path)) from error
    if not found:
        where = ", ".join(map(str, paths[:3]))
        raise NotFound(f"nothing is recorded in {where}", hint="see: remuda profiler sessions")
    told = name or next((one for one in names if one), "")
    seen = {(track.node, track.gpu.uuid) for track in found}
    unseen = tuple(one for (node, uuid, _), one in gpus.items() if (node, uuid) not in seen)
    whole = Recorded(join(found), told, tuple(sorted(set(notes))), attempt_of, unseen)
    return whole.last(last_s) if last_s else whole


def _check_times(times: Sequence[int]) -> None:
    if not all(0 <= at < _LATEST_US for at in times):
        raise ValueError(f"times from {min(times)} to {max(times)} µs since 1970")


def _read_file(path: Path, *, processes: bool = True) -> tuple[pa.Table, list[SpoolSource]]:
    try:
        with pq.ParquetFile(path) as file:
            sources = _sources(file.metadata.metadata, path)
            wanted = [name for name in file.schema_arrow.names if processes or name != "processes"]
            return file.read(columns=wanted), sources
    except FileNotFoundError as error:
        raise NotFound(f"there is no {path}", hint="see: remuda profiler sessions") from error
    except (OSError, pa.ArrowInvalid) as error:
        raise InputError(f"it is not a recording: {error}", where=str(path)) from error


def _read_words(path: Path) -> list[SpoolSource]:
    try:
        return _sources(pq.read_metadata(path).metadata, path)
    except (OSError, pa.ArrowInvalid) as error:
        raise InputError(f"it is not a recording: {error}", where=str(path)) from error


def _sources(words: Any, path: Path) -> list[SpoolSource]:
    try:
        told = json.loads((words or {})[_WORDS])
        version = told["version"]
        if version == _VERSION:
            return [SpoolSource.from_json(one) for one in told["recordings"]]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"it is not a recording of remuda: {error}", where=str(path)) from error
    raise InputError(f"it is of version {version} of the format, which this remuda does not read", where=str(path))


def _read_folder(folder: Path, last_s: float) -> tuple[pa.Table, list[SpoolSource]]:
    """Once more where somebody closed it meanwhile: what was a spool is in the file then."""
    while True:
        before = _stamp(folder / CLOSED)
        found = _read_parts(folder, last_s)
        if _stamp(folder / CLOSED) == before:
            return found


def _stamp(path: Path) -> tuple[int, int]:
    try:
        seen = path.stat()
    except OSError:
        return 0, 0
    return seen.st_ino, seen.st_mtime_ns


def _read_parts(folder: Path, last_s: float) -> tuple[pa.Table, list[SpoolSource]]:
    closed = folder / CLOSED
    tables: list[pa.Table] = []
    sources: list[SpoolSource] = []
    if closed.exists():
        table, sources = _read_file(closed)
        tables.append(table)
    for spool in _open(folder, sources):
        source = SpoolSource(spool.header)
        tables += minutes(spool, source, len(sources), last_s)
        sources.append(source)
    names = {name for source in sources for name in source.names}
    whole = schema(names)
    return pa.concat_tables([fitted(table, whole) for table in tables] or [whole.empty_table()]), sources


def _open(folder: Path, closed: Sequence[SpoolSource]) -> list[Spool]:
    """Spools of which the file has nothing."""
    known = {source.key for source in closed}
    return [spool for spool in spools(folder) if SpoolSource(spool.header).key not in known]


def close(folder: Path) -> Path:
    """Turn the spools of a recording that has ended into one Parquet file beside them, and remove what they held.

    Killed anywhere, nothing is lost: the file appears whole, spools go after that, and the next call goes on.

    Returns:
        The file.

    Raises:
        NotFound: nothing is recorded there.
        Conflict: it is being recorded: the spools changed meanwhile.
        Unwritable: the disk is full, or the folder cannot be written.
    """
    path = folder / CLOSED
    every = spools(folder)
    before = _sizes(every)
    closed = _read_words(path) if path.exists() else []
    fresh = _open(folder, closed)
    if not fresh and not closed:
        raise NotFound(f"nothing is recorded in {folder}", hint="see: remuda profiler sessions")

    def tables(sources: list[SpoolSource]) -> Iterator[pa.Table]:
        sources += closed
        if closed:
            yield from _row_groups(path)
        for spool in fresh:
            source = SpoolSource(spool.header)
            sources.append(source)
            yield from minutes(spool, source, len(sources) - 1)

    def check() -> None:
        if _sizes(every) != before:
            raise Conflict(f"{folder} is still being recorded", hint="end it first: remuda profiler stop")

    if fresh:
        write(path, tables, check)
    for spool in every:
        for file in (*block_files(spool.folder), spool.folder / OPEN):
            file.unlink(missing_ok=True)
    return path


def _sizes(every: Sequence[Spool]) -> dict[Path, int]:
    files = (path for spool in every for path in (*block_files(spool.folder), spool.folder / OPEN))
    return {path: path.stat().st_size for path in files if path.exists()}


def _row_groups(path: Path) -> Iterator[pa.Table]:
    with pq.ParquetFile(path) as file:
        for number in range(file.num_row_groups):
            yield file.read_row_group(number)


# Parquet


class _Wider(Exception):
    """A minute has columns that those before it had not."""


def write(
    path: Path, tables: Callable[[list[SpoolSource]], Iterator[pa.Table]], check: Callable[[], None] = lambda: None
) -> None:
    """Write a file whole or not at all.

    Args:
        path: of the file.
        tables: gives rows, a row group each, and fills the list that it is given; asked again where columns were added.
        check: asked before the file takes its place; what it raises leaves everything as it was.

    Raises:
        Unwritable: the disk is full, or the folder cannot be written.
    """
    names: set[str] = set()
    with whole(path) as part:
        _sweep(path)
        if path.name == CLOSED:
            part.touch(mode=0o600)
        while True:
            with suppress(_Wider):
                _write(part, tables, names)
                break
        check()


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Where to write a file that takes its place at the end.

    Raises:
        Unwritable: the disk is full, or the folder cannot be written.
    """
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        yield part
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise Unwritable(f"{path} cannot be written: {error.strerror or error}", hint="make room there") from error
    finally:
        part.unlink(missing_ok=True)


def _sweep(path: Path) -> None:
    """Remove what writers left that were killed; others may be writing now."""
    for left in path.parent.glob(f".{path.name}.*"):
        with suppress(OSError):
            if left.stat().st_mtime < time.time() - _LEFT_S:
                left.unlink()


def _write(part: Path, tables: Callable[[list[SpoolSource]], Iterator[pa.Table]], names: set[str]) -> None:
    sources: list[SpoolSource] = []
    writer: pq.ParquetWriter | None = None
    try:
        for table in tables(sources):
            new = {*table.column_names} - names
            names |= new
            if writer is None:
                writer = _writer(part, schema(names))
            elif new:
                raise _Wider
            writer.write_table(fitted(table, writer.schema), row_group_size=max(1, len(table)))
        if writer is None:
            writer = _writer(part, schema(names))
        words = {"version": _VERSION, "recordings": [source.to_json() for source in sources]}
        writer.add_key_value_metadata({_WORDS.decode(): json.dumps(words)})
    finally:
        if writer is not None:
            writer.close()


def _writer(path: Path, to: pa.Schema) -> pq.ParquetWriter:
    """Few different values are dictionaries, counters are differences; of times and power equal bytes are together."""
    numbers = {name: "DELTA_BINARY_PACKED" for name in to.names if name in COUNTERS or name in _NUMBERS}
    numbers |= dict.fromkeys(("time", "power"), "BYTE_STREAM_SPLIT")
    words = [name for name in to.names if name not in numbers]
    return pq.ParquetWriter(
        path, to, compression="zstd", compression_level=6, use_dictionary=words, column_encoding=numbers,
        write_statistics=["time"], store_schema=True,
    )  # fmt: skip

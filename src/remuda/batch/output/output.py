"""The answers, in input order, with the input's columns: a second pass over the input beside the records of the log."""

from __future__ import annotations

import dataclasses
import math
import os
import re
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from zlib import crc32

import pyarrow as pa

from remuda.base.disk.files import create
from remuda.base.errors import InputError, Interrupted, RemudaError
from remuda.base.text import first_line
from remuda.batch.input.digest import content_digests
from remuda.batch.input.expand import FORMATS, would_find
from remuda.batch.input.infer import TypeUnion, as_text, to_array
from remuda.batch.input.lines import to_line
from remuda.batch.input.source import to_batch
from remuda.batch.output.fit import open_arrow, output_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from remuda.batch.input.source import Chunk, Source
    from remuda.batch.output.checkpoint import Checkpoint

_GROUP_BYTES: Final = 16 << 20
_GROUP_ROWS: Final = 65536
_PART: Final = re.compile(r"part-\d{5}\.parquet")
USAGE_COLUMNS: Final = ("prompt_tokens", "completion_tokens", "finish_reason")
#: What the file system has to take before anything is asked.
_TRIAL: Final = bytes(4096)
_TYPE_NAMES: Final = {"string": pa.string(), "double": pa.float64()}


@dataclass(frozen=True)
class OutputTarget:
    """Where answers go.

    Attributes:
        path: a file, or a directory for a parquet dataset.
        kind: parquet, jsonl, csv, or directory.
        files: files of a directory; rows are split evenly between them, in order.
        options: forwarded to the parquet writer (`compression`, ...).
    """

    path: Path
    kind: str
    files: int = 1
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ColumnLayout:
    """Which columns the output gets.

    Attributes:
        names: the job's output columns.
        types: their types where known (`string`, `double`), by name.
        usage: whether token counts are added.
    """

    names: tuple[str, ...]
    types: dict[str, str]
    usage: bool

    @property
    def added(self) -> tuple[str, ...]:
        """Every column that is added to the input's."""
        return (*self.names, "error", *(USAGE_COLUMNS if self.usage else ()))


def plan_target(
    output: str, *, files: int, options: dict[str, Any], inputs: Sequence[Path], pattern: str
) -> OutputTarget:
    """Check `--output` before anything is spent.

    Args:
        output: what it says.
        files: how many a directory is to have.
        options: of the format.
        inputs: files that are read.
        pattern: what they were found by, and would be next time.

    Raises:
        InputError: the suffix is unknown, the output is the input, or a directory holds files of others.
    """
    path = Path(output)
    try:
        kind = _kind(output, path)
        _see_inputs(path, kind, inputs)
        if would_find(pattern, path / "part-00000.parquet" if kind == "directory" else path):
            hint = "write it elsewhere: the same command would read its own answers the next time"
            raise InputError(f"the output {path} would be one of the input's files", hint=hint, where="--output")
        if kind == "directory" and path.is_dir():
            _see_others(path)
        (path if kind == "directory" else path.parent).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{output} cannot be made: {error.strerror}", where="--output") from error
    return OutputTarget(path, kind, files, options)


def see_stranger(target: OutputTarget) -> None:
    """See that no file is lost that no job has written.

    Raises:
        InputError: there is one in the output's place.
    """
    path = target.path
    if target.kind != "directory" and path.is_file() and path.stat().st_size:
        hint = "choose another name; --no-resume overwrites it"
        raise InputError(f"the output {path} exists without a checkpoint", hint=hint, where="--output")


def _kind(output: str, path: Path) -> str:
    kind = FORMATS.get(path.suffix.lower(), "")
    if path.is_dir() or output.endswith("/") or not path.suffix:
        if kind in {"jsonl", "csv"}:
            hint = "a directory gets parquet files: give it a name without suffix"
            raise InputError(f"the output {output} is a directory", hint=hint, where="--output")
        if path.exists() and not path.is_dir():
            hint = f"known suffixes of files: {', '.join(FORMATS)}"
            raise InputError(f"the output {output} exists and is not a directory", hint=hint, where="--output")
        return "directory"
    if not kind:
        raise InputError(
            f"cannot tell the format of {output}",
            hint=f"known suffixes: {', '.join(FORMATS)}; no suffix makes a directory",
            where="--output",
        )
    return kind


def _see_inputs(path: Path, kind: str, inputs: Sequence[Path]) -> None:
    real = path.resolve()
    for item in inputs:
        if item.resolve() == real or (kind == "directory" and item.resolve().parent == real):
            raise InputError(f"the output {path} would overwrite the input", where="--output")


def _see_others(path: Path) -> None:
    found = [item for item in path.iterdir() if item.suffix == ".parquet"]
    if others := [item.name for item in found if not _PART.fullmatch(item.name) or item.is_dir()]:
        hint = "a reader of the directory would mix them; choose an empty one"
        raise InputError(f"the directory {path} holds other files ({min(others)})", hint=hint, where="--output")


class _Writer(Protocol):
    def write(self, chunk: Chunk, added: dict[str, list[Any]]) -> None: ...
    def close(self) -> None: ...


class _ArrowWriter:
    """Parquet and csv: input columns and answers as one batch."""

    def __init__(self, target: OutputTarget, path: Path, schema: pa.Schema, inputs: pa.Schema) -> None:
        self._schema, self._inputs = schema, inputs
        self._pending: list[pa.RecordBatch] = []
        self._bytes = self._rows = 0
        self._csv = target.kind == "csv"
        self._file = create(path)
        self._out = open_arrow(self._file, schema, target)

    def write(self, chunk: Chunk, added: dict[str, list[Any]]) -> None:
        batch = to_batch(chunk, self._inputs)
        columns = []
        for item in self._schema:
            if item.name in added:
                columns.append(to_array(added[item.name], item.type))
                continue
            column = batch.column(item.name)
            same = column.type.equals(item.type)
            columns.append(column if same else pa.array([as_text(v) for v in column.to_pylist()], item.type))
        made = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        if self._csv:
            self._out.write_batch(made)
            return
        self._pending.append(made)
        self._rows += made.num_rows
        self._bytes += made.nbytes
        if self._rows >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            self._out.write_table(pa.Table.from_batches(self._pending, self._schema))
            self._pending, self._rows, self._bytes = [], 0, 0

    def close(self) -> None:
        self._flush()
        self._out.close()
        self._file.close()


class _LinesWriter:
    """Jsonl: a line per row; what JSON has no word for (dates, decimals) is written as text."""

    def __init__(self, path: Path) -> None:
        self._file = create(path)

    def write(self, chunk: Chunk, added: dict[str, list[Any]]) -> None:
        records = chunk.records if chunk.records is not None else chunk.batch.to_pylist()  # type: ignore[union-attr]
        lines = [
            to_line({**record, **{name: values[number] for name, values in added.items()}})
            for number, record in enumerate(records)
        ]
        self._file.write(b"".join(lines))

    def close(self) -> None:
        self._file.close()


class OutputPass:
    """Writes one output. `run` may be called in a thread; `stop` ends it from another."""

    def __init__(
        self, source: Source, checkpoint: Checkpoint, target: OutputTarget, layout: ColumnLayout, column: str
    ) -> None:
        """`column` is the input column; the answers must be those of its values."""
        self.rows = 0
        self.failed = 0
        self.stop = threading.Event()
        self._source, self._checkpoint, self._target, self._layout = source, checkpoint, target, layout
        self._column = column

    def try_out(self) -> None:
        """See that the file system takes the output's first file, before anything is spent.

        Raises:
            InputError: it does not.
        """
        path = self._temporary([])
        try:
            with create(path) as file:
                file.write(_TRIAL)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            message = f"the output {self._target.path} cannot be written: {error.strerror}"
            raise InputError(message, hint="nothing was asked", where="--output") from error
        finally:
            with suppress(OSError):
                path.unlink(missing_ok=True)

    def run(self, total: int) -> list[Path]:
        """Write everything beside its place, then rename it into place.

        Args:
            total: rows of the input.

        Returns:
            The files written.

        Raises:
            RemudaError: the output cannot be written.
            Interrupted: `stop` was set; what was there before is untouched.
        """
        temporary: list[Path] = []
        try:
            self._write(total, temporary)
            return self._put_in_place(temporary)
        except OSError as error:
            message = f"the output {self._target.path} cannot be written: {error.strerror or error}"
            raise RemudaError(message, hint="type the same command again: no row is asked twice") from error
        except (pa.ArrowException, LookupError, TypeError, ValueError) as error:
            reason = first_line(error)
            message = f"the output {self._target.path} cannot be written behind row {self.rows}: {reason}"
            raise RemudaError(message, hint="the answers are kept; write another format") from error
        finally:
            for path in temporary:
                with suppress(OSError):
                    path.unlink(missing_ok=True)

    def _write(self, total: int, temporary: list[Path]) -> None:
        open_writer = self._opener()
        per_file = max(1, math.ceil(total / max(1, self._target.files)))
        writer: _Writer | None = None
        try:
            for chunk in self._source.chunks():
                if self.stop.is_set():
                    raise Interrupted("stopped while writing the output")
                added = self._added(chunk)
                for piece, values in self._pieces(chunk, added, per_file):
                    if writer is None or self.rows >= per_file * len(temporary):
                        if writer is not None:
                            writer.close()
                        writer = open_writer(self._temporary(temporary))
                    writer.write(piece, values)
                    self.rows += piece.rows
            while len(temporary) < (self._target.files if self._target.kind == "directory" else 1):
                if writer is not None:
                    writer.close()
                writer = open_writer(self._temporary(temporary))
        finally:
            if writer is not None:
                writer.close()

    def _pieces(
        self, chunk: Chunk, added: dict[str, list[Any]], per_file: int
    ) -> list[tuple[Chunk, dict[str, list[Any]]]]:
        """The chunk cut where a new file begins."""
        room = per_file - self.rows % per_file
        if self._target.kind != "directory" or chunk.rows <= room:
            return [(chunk, added)]
        made, start = [], 0
        while start < chunk.rows:
            count = min(room, chunk.rows - start)
            batch = None if chunk.batch is None else chunk.batch.slice(start, count)
            records = None if chunk.records is None else chunk.records[start : start + count]
            piece = dataclasses.replace(chunk, first=chunk.first + start, rows=count, batch=batch, records=records)
            made.append((piece, {name: values[start : start + count] for name, values in added.items()}))
            start, room = start + count, per_file
        return made

    def _temporary(self, made: list[Path]) -> Path:
        path = self._target.path
        name = f"part-{len(made):05d}.parquet" if self._target.kind == "directory" else path.name
        folder = path if self._target.kind == "directory" else path.parent
        # The same name in every run of one checkpoint, so that what a kill leaves is written over by the next run.
        tag = crc32(os.fsencode(self._checkpoint.folder.resolve()))
        made.append(folder / f".{name}.{tag:08x}.tmp")
        return made[-1]

    def _added(self, chunk: Chunk) -> dict[str, list[Any]]:
        records = self._checkpoint.read(chunk.first, chunk.rows)
        if missing := [chunk.first + n for n, record in enumerate(records) if record is None]:
            raise self._changed(missing[0])
        for number, content in enumerate(content_digests(chunk, self._column), start=chunk.first):
            if not self._checkpoint.same_input(number, content):
                raise self._changed(number)
        found = [record for record in records if record is not None]
        width = len(self._layout.names)
        blank = [None] * width
        values = [record[0] if record[1] is None else blank for record in found]
        added = {name: [value[n] for value in values] for n, name in enumerate(self._layout.names)}
        added["error"] = [record[1] for record in found]
        self.failed += sum(error is not None for error in added["error"])
        if self._layout.usage:
            for n, name in enumerate(USAGE_COLUMNS, start=2):
                said = [record[n] if record[1] is None else None for record in found]
                added[name] = [as_text(value) if name == "finish_reason" else _count(value) for value in said]
        return added

    def _changed(self, row: int) -> RemudaError:
        return RemudaError(
            f"row {row} of {self._source.pattern} is not what was asked: the input changed while the job ran",
            hint="type the same command again: only changed rows are asked",
        )

    def _opener(self) -> Callable[[Path], _Writer]:
        if self._target.kind == "jsonl":
            return _LinesWriter
        inputs = self._source.schema
        schema = output_schema(inputs, self._layout, self._kinds(), self._target)
        return lambda path: _ArrowWriter(self._target, path, schema, inputs)

    def _kinds(self) -> dict[str, pa.DataType]:
        kinds = {name: _TYPE_NAMES[kind] for name, kind in self._layout.types.items()}
        unknown = [name for name in self._layout.names if name not in kinds]
        if not unknown:
            return kinds
        unions = {name: TypeUnion() for name in unknown}
        at = {name: self._layout.names.index(name) for name in unknown}
        batch: list[list[Any]] = []
        for outputs in self._checkpoint.outputs():
            batch.append(outputs)
            if len(batch) >= 4096:
                self._learn(unions, at, batch)
                batch = []
        self._learn(unions, at, batch)
        return kinds | {name: union.type for name, union in unions.items()}

    @staticmethod
    def _learn(unions: dict[str, TypeUnion], at: dict[str, int], batch: list[list[Any]]) -> None:
        for name, union in unions.items():
            union.add([outputs[at[name]] for outputs in batch])

    def _put_in_place(self, temporary: list[Path]) -> list[Path]:
        path = self._target.path
        for item in temporary:
            with item.open("rb") as file:
                os.fsync(file.fileno())
        if self._target.kind != "directory":
            temporary[0].replace(path)
            return [path]
        made = []
        for number, item in enumerate(temporary):
            made.append(path / f"part-{number:05d}.parquet")
            item.replace(made[-1])
        for old in path.glob("part-*.parquet"):
            if _PART.fullmatch(old.name) and old not in made:
                old.unlink()
        return made


def _count(value: Any) -> int | None:
    """A number of tokens as a server said it, where a column can hold it."""
    return value if type(value) is int and -(1 << 63) <= value < 1 << 63 else None

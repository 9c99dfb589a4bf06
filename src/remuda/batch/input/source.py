"""The rows of a job's input as a stream of chunks: parquet, jsonl and csv, one file or many."""

from __future__ import annotations

import codecs
import csv
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from remuda.base.errors import InputError, Interrupted
from remuda.base.text import did_you_mean, first_line
from remuda.batch.input.csvfile import CSV_OPTIONS, CsvFormat
from remuda.batch.input.expand import expand_input, format_of
from remuda.batch.input.infer import TypeUnion, to_array
from remuda.batch.input.lines import BadLine, read_lines
from remuda.batch.input.partitions import Partitions
from remuda.batch.input.schemas import merge, see_twins

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Mapping, Sequence

CHUNK_ROWS: Final = 1024
_READ_BUFFER: Final = 1 << 20
_EMPTY_BYTES: Final = 4096
"""More white space than that is no empty file to anybody."""
_JSONL: Final = "jsonl is one JSON object a line, in UTF-8"
#: Accepted and without effect: reading always streams.
_NO_EFFECT: Final = frozenset({"use_scan", "engine"})


@dataclass(slots=True)
class Chunk:
    """Some rows that follow each other. Exactly one of `batch` and `records` is there."""

    first: int
    """Global position of the first row, from 0."""
    rows: int
    batch: pa.RecordBatch | None = None
    records: list[dict[str, Any]] | None = None
    bad: dict[int, BadLine] = field(default_factory=dict)
    """Rows, counted from the chunk's first, that could not be read; their records are empty."""

    def values(self, column: str) -> list[Any]:
        """One column as Python values; None where a row lacks it."""
        if self.records is not None:
            return [record.get(column) for record in self.records]
        assert self.batch is not None
        return self.batch.column(column).to_pylist()  # type: ignore[no-any-return]

    def cut(self, rows: int) -> Chunk:
        """The first `rows` rows."""
        batch = None if self.batch is None else self.batch.slice(0, rows)
        bad = {number: line for number, line in self.bad.items() if number < rows}
        return Chunk(self.first, rows, batch, None if self.records is None else self.records[:rows], bad)


class Source:
    """An input that can be streamed more than once."""

    def __init__(self, pattern: str, *, limit: int = 0, read_kwargs: Mapping[str, Any] | None = None) -> None:
        """Find the files and look at the columns; reads footers and first lines only.

        Args:
            pattern: what `--input` says; see `expand_input`.
            limit: rows to take, 0 for all.
            read_kwargs: `batch_size`, and for csv `delimiter`, `quote_char`, `escape_char`, `column_types`, `encoding`.

        Raises:
            InputError: a file is missing or cannot be read, or an option is unknown.
        """
        self.pattern = pattern
        self.limit = limit
        self.files = expand_input(pattern)
        is_folder = Path(pattern).is_dir()
        self._partitions = Partitions(Path(pattern), self.files if is_folder else [])
        self.format = format_of(self.files[0])
        self.empty = [path for path in self.files if self.format != "parquet" and _is_empty(path)]
        """Text files without a word: they have no rows, and no columns."""
        options = {name: value for name, value in (read_kwargs or {}).items() if name not in _NO_EFFECT}
        self._chunk_rows = _batch_size(options.pop("batch_size", CHUNK_ROWS))
        if unknown := sorted(set(options) - (CSV_OPTIONS if self.format == "csv" else set())):
            raise InputError(
                f"unknown read option {unknown[0]!r} for {self.format} input", where="--backend-read-kwargs"
            )
        self._csv = CsvFormat(options if self.format == "csv" else {})
        self._schema: pa.Schema | None = None
        self._names: list[str] | None = None
        self._doubtful: list[str] = []
        self.lossy: dict[str, str] = {}
        """Jsonl columns whose numbers no Arrow type holds as they are, and why; known after a survey with types."""
        self.bad = 0
        """Jsonl lines that are no rows, and what is wrong with the first; known after a survey."""
        self.first_bad = ""
        self._begins_badly = False
        self.total: int | None = None
        if self.format != "jsonl":
            self._read_schemas()

    def _read_schemas(self) -> None:
        """Footers of parquet files, first lines of csv files."""
        rows = 0
        schemas = []
        # Where all are empty, the first of them is told to be.
        files = [path for path in self.files if path not in self.empty] or self.files[:1]
        for path in files:
            with _named(path):
                if self.format == "csv":
                    schemas.append((path, self._csv.schema(path)))
                    continue
                footer = pq.read_metadata(path)
                rows += footer.num_rows
                schemas.append((path, footer.schema.to_arrow_schema()))
        see_twins(schemas[0][1], files[0])
        self._schema, self._doubtful = merge(schemas)
        for item in self._partitions.schema:
            if item.name not in self._schema.names:  # what a file says of its rows itself counts
                self._schema = self._schema.append(item)
        if self.format == "parquet":
            self.total = min(rows, self.limit) if self.limit else rows

    def survey(self, *, types: bool, stop: threading.Event | None = None) -> None:
        """Read once what only reading tells, before anything is spent.

        That is: whether csv and jsonl can be read to the end, all columns of jsonl, how many rows there are, and
        whether columns that have several types in several files fit the common one.

        Args:
            types: find the types of jsonl columns, too.
            stop: ends it early.

        Raises:
            InputError: a file cannot be read, or is no jsonl at all.
            Interrupted: `stop` was set.
        """
        if self.format == "parquet" and not self._doubtful:
            return
        rows, names, self.bad = 0, dict[str, TypeUnion](), 0
        for chunk in self.chunks(self._doubtful if self.format == "parquet" else None):
            if stop is not None and stop.is_set():
                raise Interrupted("the job was stopped; nothing was asked")
            self._note_bad(chunk)
            rows += chunk.rows
            if chunk.records is not None:
                _add_types(names, chunk, types=types)
        self.total = rows
        if self.format != "jsonl":
            return
        if self._begins_badly and 2 * self.bad >= rows:
            # One bad line is a row of its own; a file that begins so and goes on so is of another format.
            raise InputError(f"{self.first_bad}; {self.bad} of {rows} lines are not rows", hint=_JSONL)
        self._names = list(names)
        if types:
            self._schema = pa.schema([(name, union.type) for name, union in names.items()])
            self.lossy = {name: union.lossy for name, union in names.items() if union.lossy}

    def _note_bad(self, chunk: Chunk) -> None:
        if not chunk.bad:
            return
        if not self.bad:
            number, line = next(iter(chunk.bad.items()))
            self.first_bad, self._begins_badly = line.message, chunk.first + number == 0
        self.bad += len(chunk.bad)

    @property
    def columns(self) -> list[str]:
        """Column names; of a jsonl input those of its first chunk until it was surveyed."""
        if self._names is None and self.format == "jsonl":
            with _named(self.files[0]):
                first, bad = next(read_lines(self.files[0], self._chunk_rows), ([], {}))
            names = list(dict.fromkeys(name for record in first for name in record))
            if bad and not names:
                raise InputError(bad[0].message, hint=_JSONL)
            return names
        return list(self._names) if self._names is not None else list(self.schema.names)

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema, with the first file's metadata.

        For jsonl the union of the types found in a reading of the whole input, which is done if nobody has.
        """
        if self._schema is None:
            self.survey(types=True)
        assert self._schema is not None
        return self._schema

    def require(self, column: str, *, where: str) -> str:
        """Return `column` if the input has it.

        Raises:
            InputError: it has not; the hint names the nearest one.
        """
        names = self.columns
        if column in names:
            return column
        hint = f"{did_you_mean(column, names)} it has: {', '.join(names[:20])}".strip()
        raise InputError(f"input {self.pattern} has no column {column!r}", hint=hint, where=where)

    def identity(self) -> dict[str, list[int]]:
        """What changes when the input changes, without reading it: `name: [bytes, mtime in ns]` per file.

        Raises:
            InputError: a file is gone.
        """
        made: dict[str, list[int]] = {}
        for number, path in enumerate(self.files):
            with _named(path):
                stat = path.stat()
            name = path.name if path.name not in made else f"{path.name}#{number}"
            made[name] = [stat.st_size, stat.st_mtime_ns]
        return made

    def chunks(self, columns: Sequence[str] | None = None) -> Iterator[Chunk]:
        """Stream the rows in order.

        Args:
            columns: which columns to read; None reads all.

        Raises:
            InputError: a file cannot be read or lacks a column.
        """
        first, left = 0, self.limit or None
        for path in self.files:
            for chunk in self._file_chunks(path, columns):
                chunk.first = first
                if left is not None and chunk.rows >= left:
                    yield chunk.cut(left)
                    return
                yield chunk
                first += chunk.rows
                left = None if left is None else left - chunk.rows

    def count(self) -> int:
        """Number of rows, within the limit; reads the input once where its format does not say."""
        if self.total is None:
            self.total = sum(chunk.rows for chunk in self.chunks())
        return self.total

    def _file_chunks(self, path: Path, columns: Sequence[str] | None) -> Iterator[Chunk]:
        named = _named(path)
        with named:
            iterator = iter(self._chunks_of(path, columns))
        while True:
            with named:
                chunk = next(iterator, None)
            if chunk is None:
                return
            named.rows += chunk.rows
            yield chunk

    def _chunks_of(self, path: Path, columns: Sequence[str] | None) -> Iterator[Chunk]:
        if path in self.empty:
            return
        if self.format == "jsonl":
            said = self._partitions.of(path)
            for records, bad in read_lines(path, self._chunk_rows):
                # In the order of the columns; what a row says itself counts.
                told = [{**record, **said, **record} for record in records] if said else records
                yield Chunk(0, len(records), records=told, bad=bad)
            return
        for batch in self._parquet(path, columns) if self.format == "parquet" else self._csv.batches(path):
            if batch.num_rows:
                yield from self._slices(self._conform(batch, columns, path))

    def _slices(self, batch: pa.RecordBatch) -> Iterator[Chunk]:
        for start in range(0, batch.num_rows, self._chunk_rows):
            piece = batch.slice(start, self._chunk_rows)
            yield Chunk(0, piece.num_rows, batch=piece)

    def _parquet(self, path: Path, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        # Without pre-buffering and with a read buffer, a row group of any size streams through constant memory.
        file = pq.ParquetFile(path, pre_buffer=False, buffer_size=_READ_BUFFER)
        with file:
            there = file.schema_arrow.names
            # A column that only other files have is made of nulls: any other one tells how many.
            names = ([name for name in columns if name in there] or there[:1]) if columns is not None else None
            yield from file.iter_batches(batch_size=self._chunk_rows, columns=names, use_threads=False)

    def _conform(self, batch: pa.RecordBatch, columns: Sequence[str] | None, path: Path) -> pa.RecordBatch:
        """The batch with the columns and types that all files have in common."""
        wanted = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
        if batch.schema.equals(wanted):
            return batch
        arrays = []
        for item in wanted:
            if item.name not in batch.schema.names:
                value = pa.scalar(self._partitions.of(path).get(item.name), item.type)
                arrays.append(pa.repeat(value, batch.num_rows))
                continue
            column = batch.column(item.name)
            try:
                arrays.append(column if column.type.equals(item.type) else column.cast(item.type))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                both = f"{column.type} in {path}, and {item.type} for all files together"
                raise InputError(f"column {item.name!r} is {both}: {first_line(error)}") from error
        return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _is_empty(path: Path) -> bool:
    """Whether there is nothing but white space in a file."""
    try:
        with path.open("rb") as file:
            return not file.read(_EMPTY_BYTES).removeprefix(codecs.BOM_UTF8).strip() and not file.read(1)
    except OSError:
        return False  # who reads it says why it cannot be read


def _add_types(names: dict[str, TypeUnion], chunk: Chunk, *, types: bool) -> None:
    assert chunk.records is not None
    for name in dict.fromkeys(name for record in chunk.records for name in record):
        union = names.setdefault(name, TypeUnion())
        if types:
            union.add(chunk.values(name))


def _batch_size(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"batch_size is {value!r}; it must be an integer above zero", where="--backend-read-kwargs")
    return value


def to_batch(chunk: Chunk, schema: pa.Schema) -> pa.RecordBatch:
    """A chunk as Arrow, whatever it was read from."""
    if chunk.batch is not None:
        return chunk.batch
    return pa.RecordBatch.from_arrays([to_array(chunk.values(f.name), f.type) for f in schema], schema=schema)


class _named:  # noqa: N801 - reads as a word in `with`
    """Turn what Arrow and the system say about a file into one sentence with its name and place."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.rows = 0
        """Rows that have been read of it."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # LookupError, TypeError and ValueError are what pyarrow and csv say besides their own errors.
        if isinstance(error, (pa.ArrowException, OSError, ValueError, LookupError, TypeError, csv.Error)):
            place = f" behind row {self.rows}" if self.rows else ""
            reason = error.strerror or str(error) if isinstance(error, OSError) else first_line(error)
            raise InputError(f"{self._path} cannot be read{place}: {reason}") from error

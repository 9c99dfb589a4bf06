"""The rows of a job's input as a stream of chunks: parquet, jsonl and csv, one file or many."""

from __future__ import annotations

import difflib
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from remuda.base.errors import InputError
from remuda.batch.expand import expand_input, format_of
from remuda.batch.infer import TypeUnion, to_array

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

CHUNK_ROWS: Final = 1024
_READ_BUFFER: Final = 1 << 20
_CSV_OPTIONS: Final = frozenset({"delimiter", "quote_char", "escape_char", "column_types", "encoding"})
_CSV_PARSE: Final = frozenset({"delimiter", "quote_char", "escape_char"})
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

    def values(self, column: str) -> list[Any]:
        """One column as Python values; None where a row lacks it."""
        if self.records is not None:
            return [record.get(column) for record in self.records]
        assert self.batch is not None
        return self.batch.column(column).to_pylist()  # type: ignore[no-any-return]

    def cut(self, rows: int) -> Chunk:
        """The first `rows` rows."""
        batch = None if self.batch is None else self.batch.slice(0, rows)
        return Chunk(self.first, rows, batch, None if self.records is None else self.records[:rows])


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
        self.format = format_of(self.files[0])
        options = {name: value for name, value in (read_kwargs or {}).items() if name not in _NO_EFFECT}
        self._chunk_rows = int(options.pop("batch_size", CHUNK_ROWS))
        if unknown := sorted(set(options) - (_CSV_OPTIONS if self.format == "csv" else set())):
            raise InputError(
                f"unknown read option {unknown[0]!r} for {self.format} input", where="--backend-read-kwargs"
            )
        self._options = options
        self._schema: pa.Schema | None = None
        self.total: int | None = None
        if self.format == "parquet":
            rows = 0
            for path in self.files:
                with _named(path):
                    footer = pq.read_metadata(path)
                rows += footer.num_rows
            self.total = min(rows, limit) if limit else rows

    @property
    def columns(self) -> list[str]:
        """Column names; of a jsonl file those of its first chunk."""
        if self.format == "jsonl":
            first = next(self._jsonl(self.files[0]), [])
            return list(dict.fromkeys(name for record in first for name in record))
        return list(self.schema.names)

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema. For jsonl this reads the whole input once and takes the union of the types found."""
        if self._schema is None:
            with _named(self.files[0]):
                if self.format == "parquet":
                    self._schema = pq.read_schema(self.files[0]).remove_metadata()
                elif self.format == "csv":
                    self._schema = self._csv_reader(self.files[0]).schema
                else:
                    self._schema = self._jsonl_schema()
        return self._schema

    def require(self, column: str, *, where: str) -> str:
        """Return `column` if the input has it.

        Raises:
            InputError: it has not; the hint names the nearest one.
        """
        names = self.columns
        if column in names:
            return column
        close = difflib.get_close_matches(column, names, n=1)
        known = f"it has: {', '.join(names[:20])}"
        hint = f"did you mean {close[0]!r}? {known}" if close else known
        raise InputError(f"input {self.pattern} has no column {column!r}", hint=hint, where=where)

    def identity(self) -> dict[str, list[int]]:
        """What changes when the input changes, without reading it: `name: [bytes, mtime in ns]` per file."""
        made: dict[str, list[int]] = {}
        for number, path in enumerate(self.files):
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
        if self.format == "jsonl":
            for records in self._jsonl(path):
                yield Chunk(0, len(records), records=records)
            return
        with _named(path):
            iterator = iter(self._parquet(path, columns) if self.format == "parquet" else self._csv_reader(path))
        while True:
            with _named(path):
                batch = next(iterator, None)
            if batch is None:
                return
            if batch.num_rows:
                yield from self._slices(self._conform(batch, columns, path))

    def _slices(self, batch: pa.RecordBatch) -> Iterator[Chunk]:
        for start in range(0, batch.num_rows, self._chunk_rows):
            piece = batch.slice(start, self._chunk_rows)
            yield Chunk(0, piece.num_rows, batch=piece)

    def _parquet(self, path: Path, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        # Without pre-buffering and with a read buffer, a row group of any size streams through constant memory.
        file = pq.ParquetFile(path, pre_buffer=False, buffer_size=_READ_BUFFER)
        names = [name for name in columns if name in file.schema_arrow.names] if columns is not None else None
        yield from file.iter_batches(batch_size=self._chunk_rows, columns=names, use_threads=False)

    def _conform(self, batch: pa.RecordBatch, columns: Sequence[str] | None, path: Path) -> pa.RecordBatch:
        """The batch with the columns and types of the first file."""
        wanted = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
        if batch.schema.equals(wanted):
            return batch
        arrays = []
        for field in wanted:
            if field.name not in batch.schema.names:
                raise InputError(f"{path} has no column {field.name!r}, which {self.files[0]} has")
            column = batch.column(field.name)
            try:
                arrays.append(column if column.type.equals(field.type) else column.cast(field.type))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                both = f"{column.type} in {path} and {field.type} in {self.files[0]}"
                raise InputError(f"column {field.name!r} is {both}") from error
        return pa.RecordBatch.from_arrays(arrays, schema=wanted)

    def _csv_reader(self, path: Path) -> pacsv.CSVStreamingReader:
        """Columns are text unless `column_types` says otherwise: a type guessed from the first rows breaks later."""
        parse = {name: value for name, value in self._options.items() if name in _CSV_PARSE}
        encoding = self._options.get("encoding", "utf8")
        with path.open(encoding=encoding, newline="") as file:
            import csv

            names = next(csv.reader(file, delimiter=parse.get("delimiter", ",")), [])
        if not names:
            raise InputError(f"{path} is empty")
        types: dict[str, Any] = dict.fromkeys(names, pa.string())
        for name, text in dict(self._options.get("column_types", {})).items():
            types[name] = pa.type_for_alias(text)
        return pacsv.open_csv(
            path,
            read_options=pacsv.ReadOptions(block_size=_READ_BUFFER * 4, use_threads=False, encoding=encoding),
            parse_options=pacsv.ParseOptions(newlines_in_values=True, **parse),
            convert_options=pacsv.ConvertOptions(
                column_types=types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
            ),
        )

    def _jsonl(self, path: Path) -> Iterator[list[dict[str, Any]]]:
        with path.open("rb") as file:
            number = 0
            while lines := list(itertools.islice(file, self._chunk_rows)):
                records = []
                for line in lines:
                    number += 1
                    if line.strip():
                        records.append(_record(line, path, number))
                if records:
                    yield records

    def _jsonl_schema(self) -> pa.Schema:
        unions: dict[str, TypeUnion] = {}
        for chunk in self.chunks():
            assert chunk.records is not None
            for name in dict.fromkeys(name for record in chunk.records for name in record):
                unions.setdefault(name, TypeUnion()).add(chunk.values(name))
        return pa.schema([(name, union.type) for name, union in unions.items()])


def to_batch(chunk: Chunk, schema: pa.Schema) -> pa.RecordBatch:
    """A chunk as Arrow, whatever it was read from."""
    if chunk.batch is not None:
        return chunk.batch
    return pa.RecordBatch.from_arrays([to_array(chunk.values(f.name), f.type) for f in schema], schema=schema)


def _record(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        record = orjson.loads(line)
    except ValueError as error:
        raise InputError(f"not JSON: {error}", where=f"{path}:{number}") from error
    if not isinstance(record, dict):
        raise InputError(f"a line must be a JSON object, this is {type(record).__name__}", where=f"{path}:{number}")
    return record


class _named:  # noqa: N801 - reads as a word in `with`
    """Turn what Arrow and the system say about a file into one sentence with its name."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (pa.ArrowException, OSError, UnicodeError)):
            raise InputError(f"{self._path} cannot be read: {str(error).splitlines()[0]}") from error

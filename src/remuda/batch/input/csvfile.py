"""Csv as a stream of Arrow batches; columns are text unless the user says otherwise."""

from __future__ import annotations

import csv
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.csv as pacsv

from remuda.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

CSV_OPTIONS: Final = frozenset({"delimiter", "quote_char", "escape_char", "column_types", "encoding"})
_PARSE: Final = ("delimiter", "quote_char", "escape_char")
_BLOCK: Final = 4 << 20
_WHERE: Final = "--backend-read-kwargs"


class CsvFormat:
    """How csv files are read: parsed options, checked once."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Check options.

        Raises:
            InputError: a value is none that csv knows.
        """
        self._encoding = str(options.get("encoding", "utf8"))
        self._given = {name: options[name] for name in _PARSE if name in options}
        try:
            "".encode(self._encoding)
            self._parse = pacsv.ParseOptions(newlines_in_values=True, **self._given)
            types = dict(options.get("column_types") or {})
            self._types = {name: pa.type_for_alias(text) for name, text in types.items()}
        except (LookupError, TypeError, ValueError, pa.ArrowException) as error:
            raise InputError(f"a csv option is wrong: {error}", where=_WHERE) from error

    def schema(self, path: Path) -> pa.Schema:
        """Columns of a file, from its first line.

        Raises:
            InputError: it has none, or an option names a column that it lacks.
        """
        # With "utf8" a byte-order mark would become a part of the first name.
        encoding = "utf-8-sig" if self._encoding.lower().replace("-", "").replace("_", "") == "utf8" else self._encoding
        with self._decoding(path), path.open(encoding=encoding, newline="") as file:
            names = next(csv.reader(file, **self._dialect()), [])
        if not names:
            raise InputError(f"{path} is empty")
        if unknown := [name for name in self._types if name not in names]:
            raise InputError(f"column_types names {unknown[0]!r}, which {path} does not have", where=_WHERE)
        return pa.schema([(name, self._types.get(name, pa.string())) for name in names])

    def _dialect(self) -> dict[str, Any]:
        made: dict[str, Any] = {"delimiter": self._given.get("delimiter", ",")}
        if quote := self._given.get("quote_char", '"'):
            return made | {"quotechar": quote}
        return made | {"quoting": csv.QUOTE_NONE}

    def batches(self, path: Path) -> Iterator[pa.RecordBatch]:
        """Batches of a file.

        Raises:
            InputError: it has no columns, or a line is not in the encoding that it should be in.
        """
        schema = self.schema(path)
        with self._decoding(path):
            yield from pacsv.open_csv(
                path,
                read_options=pacsv.ReadOptions(block_size=_BLOCK, use_threads=False, encoding=self._encoding),
                parse_options=self._parse,
                convert_options=pacsv.ConvertOptions(
                    column_types={item.name: item.type for item in schema},
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )

    @contextmanager
    def _decoding(self, path: Path) -> Iterator[None]:
        """Name the line where a file turns out to be in another encoding."""
        try:
            yield
        except (pa.ArrowInvalid, UnicodeError) as error:
            if isinstance(error, pa.ArrowInvalid) and "UTF8" not in str(error):
                raise
            number = self._undecodable(path)
            if not number:
                raise
            hint = 'name its encoding, for example --backend-read-kwargs \'{"encoding": "latin-1"}\''
            raise InputError(f"{path}:{number}: the line is not {self._encoding}", hint=hint) from error

    def _undecodable(self, path: Path) -> int:
        """The first line that is not in the encoding, from 1; 0 where all are, or where bytes do not tell lines."""
        if "\n".encode(self._encoding) != b"\n":
            return 0
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    line.decode(self._encoding)
                except UnicodeError:
                    return number
        return 0

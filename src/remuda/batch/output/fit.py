"""Whether an output can hold what will be written into it, seen before the first request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from remuda.base.errors import InputError
from remuda.base.text import first_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.batch.input.source import Source
    from remuda.batch.output.output import ColumnLayout, OutputTarget

#: Types of columns that are always the same.
KINDS = {
    "error": pa.string(),
    "finish_reason": pa.string(),
    "prompt_tokens": pa.int64(),
    "completion_tokens": pa.int64(),
}


def check_fit(source: Source, layout: ColumnLayout, target: OutputTarget) -> None:
    """See that every column can be written, unchanged, and that none hides another.

    Raises:
        InputError: one cannot; it is named.
    """
    _check_names(source, layout)
    if target.kind == "jsonl":
        if source.format == "parquet":
            _refuse_binary(source.schema, target)
        return
    schema = source.schema
    if target.kind == "csv":
        _refuse_binary(schema, target)
    elif source.lossy:
        name, why = next(iter(source.lossy.items()))
        raise InputError(
            f"column {name!r} cannot be written to parquet unchanged: {why}",
            hint="write .jsonl or .csv, or make the column text",
            where="--output",
        )
    _try(output_schema(schema, layout, dict.fromkeys(layout.names, pa.string()), target), target)


def output_schema(
    inputs: pa.Schema, layout: ColumnLayout, kinds: Mapping[str, pa.DataType], target: OutputTarget
) -> pa.Schema:
    """The output's columns: those of the input, with its metadata, and those that are added.

    Args:
        inputs: the input's.
        layout: what is added.
        kinds: types of the job's own columns.
        target: csv gets lists and structs as JSON text.
    """
    kinds = KINDS | dict(kinds)
    fields = [*inputs, *(pa.field(name, kinds[name]) for name in layout.added)]
    if target.kind == "csv":
        fields = [pa.field(item.name, pa.string()) if pa.types.is_nested(item.type) else item for item in fields]
    return pa.schema(fields, metadata=inputs.metadata)


def open_arrow(where: Any, schema: pa.Schema, target: OutputTarget) -> Any:
    """A writer of parquet or csv."""
    return pacsv.CSVWriter(where, schema) if target.kind == "csv" else pq.ParquetWriter(where, schema, **target.options)


def _check_names(source: Source, layout: ColumnLayout) -> None:
    added = layout.added
    if double := [name for n, name in enumerate(added) if name in added[:n]]:
        raise InputError(f"the output would have two columns {double[0]!r}", where="--output-column")
    for name in source.columns:
        if name in layout.names:
            raise InputError(
                f"the input has a column {name!r} already",
                hint="name the answers with --output-column",
                where="--input",
            )
        if name in added:
            raise InputError(
                f"the input has a column {name!r}, which the output needs for itself",
                hint="give the input's another name",
                where="--input",
            )


def _refuse_binary(schema: pa.Schema, target: OutputTarget) -> None:
    for item in schema:
        if _has_binary(item.type):
            raise InputError(
                f"column {item.name!r} is {item.type}: {target.kind} cannot store bytes",
                hint="write .parquet, or leave the column out of the input",
                where="--output",
            )


def _has_binary(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return False
    if pa.types.is_dictionary(kind):
        return _has_binary(kind.value_type)
    if pa.types.is_nested(kind):
        return any(_has_binary(kind.field(n).type) for n in range(kind.num_fields))
    binary = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)
    return any(test(kind) for test in binary)


def _try(schema: pa.Schema, target: OutputTarget) -> None:
    """Write one row of nothing to memory."""
    error = _refusal(schema, target, target.options)
    if error is None:
        return
    for item in schema:
        if (wrong := _refusal(pa.schema([item]), target, {})) is not None:
            raise InputError(
                f"column {item.name!r} is {item.type}, which {target.kind} cannot hold: {first_line(wrong)}",
                hint="write another format, or leave the column out of the input",
                where="--output",
            ) from wrong
    word = "unknown" if isinstance(error, TypeError) else "wrong"
    raise InputError(f"{word} write option: {first_line(error)}", where="--backend-write-kwargs") from error


def _refusal(schema: pa.Schema, target: OutputTarget, options: Mapping[str, Any]) -> Exception | None:
    loose = pa.schema([item.with_nullable(True) for item in schema], metadata=schema.metadata)
    try:
        made = pa.BufferOutputStream()
        row = pa.RecordBatch.from_arrays([pa.nulls(1, item.type) for item in loose], schema=loose)
        if target.kind == "csv":
            with pacsv.CSVWriter(made, loose) as text:
                text.write_batch(row)
        else:
            with pq.ParquetWriter(made, loose, **options) as file:
                file.write_batch(row)
    except (pa.ArrowException, OSError, TypeError, ValueError, LookupError) as error:
        return error
    return None

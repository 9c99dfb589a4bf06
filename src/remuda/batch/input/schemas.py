"""One schema for the files of an input, or a sentence that names the column and the files that do not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from remuda.base.errors import InputError
from remuda.batch.input.infer import unified

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def see_twins(schema: pa.Schema, path: Path) -> pa.Schema:
    """The schema, if no two of its columns have the same name.

    Raises:
        InputError: two have.
    """
    seen: set[str] = set()
    for name in schema.names:
        if name in seen:
            raise InputError(
                f"{path} has two columns {name!r}", hint="give each column a name of its own", where="--input"
            )
        seen.add(name)
    return schema


def merge(files: Sequence[tuple[Path, pa.Schema]]) -> tuple[pa.Schema, list[str]]:
    """The schema that all files fit, with the first one's metadata, and the columns whose values must be looked at.

    Columns that only later files have are there, too; the first file's must be in all.

    Raises:
        InputError: a file lacks a column, or its types fit no common one.
    """
    first, schema = files[0]
    wanted = {item.name: item for item in schema}
    doubtful: dict[str, None] = {}
    for path, other in files[1:]:
        if other.equals(schema):
            continue
        see_twins(other, path)
        if missing := [name for name in schema.names if name not in other.names]:
            raise InputError(f"{path} has no column {missing[0]!r}, which {first} has", where="--input")
        for item in other:
            known = wanted.setdefault(item.name, item.with_nullable(True))
            if known.type.equals(item.type):
                continue
            kind = _common(known.type, item.type)
            if kind is None:
                both = f"{item.type} in {path} and {known.type} in {first}"
                raise InputError(f"column {item.name!r} is {both}", hint="give it one type", where="--input")
            wanted[item.name] = known.with_type(kind)
            doubtful[item.name] = None
    return pa.schema(list(wanted.values()), metadata=schema.metadata), list(doubtful)


def _common(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    """A type to which values of both can be cast, as far as types tell."""
    if pa.types.is_dictionary(first) or pa.types.is_dictionary(second):
        plain = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in (first, second)]
        return _common(plain[0], plain[1])
    if first.equals(second):
        return first
    if pa.uint64() in (first, second) and (pa.types.is_signed_integer(first) or pa.types.is_signed_integer(second)):
        return None
    try:
        kind = unified(first, second)
        for each in (first, second):
            pa.nulls(0, each).cast(kind)
    except pa.ArrowException:
        return None
    return kind

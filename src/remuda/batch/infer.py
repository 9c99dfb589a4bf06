"""Column types for values that are only known as JSON: found in a stream, in constant memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence


class TypeUnion:
    """The one Arrow type that all values seen so far fit in; text (JSON) where there is none."""

    def __init__(self) -> None:
        self._type: pa.DataType = pa.null()
        self._mixed = False

    def add(self, values: Sequence[Any]) -> None:
        """Take some more values into account."""
        if self._mixed:
            return
        try:
            found = pa.array(values).type
            fields = [pa.schema([("x", self._type)]), pa.schema([("x", found)])]
            self._type = pa.unify_schemas(fields, promote_options="permissive").field("x").type
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
            self._mixed = True

    @property
    def type(self) -> pa.DataType:
        """The type; text when nothing but null was seen, or when the values do not fit together."""
        return pa.string() if self._mixed or pa.types.is_null(self._type) or not storable(self._type) else self._type


def storable(kind: pa.DataType) -> bool:
    """Whether parquet can hold it: a struct without fields it cannot."""
    if pa.types.is_struct(kind):
        return kind.num_fields > 0 and all(storable(kind.field(i).type) for i in range(kind.num_fields))
    if pa.types.is_list(kind):
        return storable(kind.value_type)
    return not pa.types.is_null(kind)


def as_text(value: Any) -> str | None:
    """A value for a text column: text as it is, null as null, anything else as JSON."""
    if value is None or isinstance(value, str):
        return value
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS, default=str).decode()


def to_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """`values` as a column of `kind`; in a text column, what is no text is written as JSON."""
    if pa.types.is_string(kind):
        try:
            return pa.array(values, kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            return pa.array([as_text(value) for value in values], kind)
    return pa.array(values, kind)

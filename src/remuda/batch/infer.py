"""Column types for values that are only known as JSON: found in a stream, in constant memory."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Final

import orjson
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

_CODES: Final = {pa.int64(): "q", pa.float64(): "d"}
_SIMPLE: Final = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
_PLAIN: Final = frozenset({int, float, type(None)})


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
            found = _plain_type(values) or pa.array(values).type
            fields = [pa.schema([("x", self._type)]), pa.schema([("x", found)])]
            self._type = pa.unify_schemas(fields, promote_options="permissive").field("x").type
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
            self._mixed = True

    @property
    def type(self) -> pa.DataType:
        """The type; text when nothing but null was seen, or when the values do not fit together."""
        return pa.string() if self._mixed or pa.types.is_null(self._type) or not storable(self._type) else self._type


def _plain_type(values: Sequence[Any]) -> pa.DataType | None:
    """The type of values that are all alike and simple; None where Arrow has to look."""
    kinds = {type(value) for value in values} - {type(None)}
    if not kinds:
        return pa.null()
    kind = _SIMPLE.get(kinds.pop()) if len(kinds) == 1 else None
    if kind == pa.int64() and any(value is not None and abs(value) >= 1 << 63 for value in values):
        return None
    return kind


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
    """`values` as a column of `kind`; in a text column, what is no text is written as JSON.

    Text and numbers take a way around `pa.array`, which imports pandas (60 MB, half a second) just to see that a list
    is no Series.
    """
    if pa.types.is_string(kind):
        builder = pa.lib.StringBuilder()
        try:
            builder.append_values(values)
        except TypeError:
            builder = pa.lib.StringBuilder()
            builder.append_values([as_text(value) for value in values])
        return builder.finish()
    code = _CODES.get(kind)
    if code is not None and all(type(value) in _PLAIN for value in values):
        return _numbers(values, kind, code)
    return pa.array(values, kind)


def _numbers(values: Sequence[Any], kind: pa.DataType, code: str) -> pa.Array:
    present = [value is not None for value in values]
    data = pa.py_buffer(array(code, [value if value is not None else 0 for value in values]))
    if all(present):
        return pa.Array.from_buffers(kind, len(values), [None, data])
    bits = sum(1 << number for number, there in enumerate(present) if there)
    mask = pa.py_buffer(bits.to_bytes((len(values) + 7) // 8, "little"))
    return pa.Array.from_buffers(kind, len(values), [mask, data])

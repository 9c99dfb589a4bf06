"""Column types for values that are only known as JSON: found in a stream, in constant memory."""

from __future__ import annotations

import json
from array import array
from typing import TYPE_CHECKING, Any, Final

import orjson
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

_CODES: Final = {pa.int64(): "q", pa.float64(): "d"}
_SIMPLE: Final = {str: pa.string(), float: pa.float64(), bool: pa.bool_()}
#: Integers up to here are floats exactly.
_EXACT: Final = 1 << 53
_PLAIN: Final = frozenset({int, float, type(None)})


class TypeUnion:
    """The one Arrow type that all values seen so far fit in; text (JSON) where there is none.

    Attributes:
        lossy: why numbers would have to become text or to be rounded, a part of a sentence; empty where they need not.
    """

    def __init__(self) -> None:
        self.lossy = ""
        self._type: pa.DataType = pa.null()
        self._mixed = False
        self._low = self._high = 0

    def add(self, values: Sequence[Any]) -> None:
        """Take some more values into account."""
        if self._mixed:
            return
        kinds = {type(value) for value in values} - {type(None)}
        try:
            found = self._whole(values) if kinds == {int} else self._other(values, kinds)
            is_whole = kinds == {int} and (pa.types.is_integer(self._type) or pa.types.is_null(self._type))
            self._type = found if is_whole else unified(self._type, found)
        except _NoType as error:
            self._mixed, self.lossy = True, str(error)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
            self._mixed = True
            if isinstance(error, OverflowError):
                self.lossy = "it has integers of more than 63 bits beside other values"
            elif kinds <= {int, float}:
                self.lossy = "it has fractions beside integers that no float is exactly"
        if pa.types.is_floating(self._type) and max(self._high, -self._low) > _EXACT and not self._mixed:
            self._mixed = True
            largest = self._high if self._high > -self._low else self._low
            self.lossy = f"it has fractions beside {largest}, which no float is exactly"

    def _whole(self, values: Sequence[Any]) -> pa.DataType:
        """The type of all integers so far, these included."""
        present = [value for value in values if value is not None]
        self._low, self._high = min(self._low, *present), max(self._high, *present)
        if self._low >= -(1 << 63) and self._high < 1 << 63:
            return pa.int64()
        if self._low >= 0 and self._high < 1 << 64:
            return pa.uint64()
        if self._low >= -(1 << 63) and self._high < 1 << 64:
            raise _NoType(f"it has {self._low} and {self._high}, which no integer type has both")
        largest = self._high if self._high >= 1 << 64 else self._low
        raise _NoType(f"it has {largest}, an integer of more than 64 bits")

    @staticmethod
    def _other(values: Sequence[Any], kinds: set[type]) -> pa.DataType:
        if not kinds:
            return pa.null()
        simple = _SIMPLE.get(next(iter(kinds))) if len(kinds) == 1 else None
        return simple if simple is not None else pa.array(values).type

    @property
    def type(self) -> pa.DataType:
        """The type; text when nothing but null was seen, or when the values do not fit together."""
        return pa.string() if self._mixed or pa.types.is_null(self._type) or not storable(self._type) else self._type


class _NoType(Exception):
    """No Arrow type holds these numbers as they are; the message says which."""


def unified(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    """A type for values of both; Arrow raises where it knows none."""
    fields = [pa.schema([("x", first)]), pa.schema([("x", second)])]
    return pa.unify_schemas(fields, promote_options="permissive").field("x").type


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
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS, default=str).decode()
    except TypeError:
        # Integers above 64 bits, hundreds of levels.
        return json.dumps(value, ensure_ascii=False, default=str)


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

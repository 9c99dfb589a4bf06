"""JSON schemas for structured output: compiled once, checked for each reply."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from remuda.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable


def read_schema(schema: Any) -> dict[str, Any]:
    """A schema given as an object, as JSON text, or as the path of a JSON file.

    Raises:
        InputError: it is none of these.
    """
    if isinstance(schema, str):
        text = schema if schema.lstrip().startswith("{") else _file(schema)
        try:
            schema = orjson.loads(text)
        except ValueError as error:
            raise InputError(f"the schema is not JSON: {error}", where="schema") from error
    if not isinstance(schema, dict):
        raise InputError("the schema must be a JSON object", where="schema")
    return schema


def _file(path: str) -> str:
    try:
        return Path(path).expanduser().read_text()
    except OSError as error:
        raise InputError(f"schema file {path} cannot be read: {error.strerror}", where="schema") from error


def compile_schema(schema: dict[str, Any]) -> Callable[[Any], str]:
    """A function that says in one sentence what is wrong with a value, or an empty string.

    Raises:
        InputError: the schema itself is wrong.
    """
    import jsonschema_rs

    try:
        validator = jsonschema_rs.validator_for(schema)
    except jsonschema_rs.ValidationError as error:
        raise InputError(f"not a valid JSON schema: {error.message}", where="schema") from error

    def check(value: Any) -> str:
        for error in validator.iter_errors(value):
            place = "/".join(str(part) for part in error.instance_path)
            return f"{place}: {error.message}" if place else str(error.message)
        return ""

    return check

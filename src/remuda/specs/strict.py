"""What all documents of users have in common: strict, frozen models, and field types that are kind to YAML."""

from __future__ import annotations

import re
import shlex
from typing import Annotated, Any, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from remuda.base.errors import InputError
from remuda.base.units import INTERVALS, parse_duration, parse_interval, parse_size, show_interval

_Value = TypeVar("_Value")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_SECRET = re.compile(r"[a-z0-9][-.a-z0-9]{0,252}/[-._a-zA-Z0-9]{1,253}")
_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?")


class Plain(str):
    """Text that stood in a file without quotes: it is a number or a boolean where the field wants one."""

    __slots__ = ()


class Strict(BaseModel):
    """Base of all specs: unknown keys are errors, values do not change, docstrings are the help text."""

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True, hide_input_in_errors=True)


def plain_value(text: str) -> object:
    """What unquoted text means where any JSON value may stand: null, boolean, number, else the text."""
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if re.fullmatch(r"[-+]?(0|[1-9][0-9]*)", text):
        return int(text)
    if re.fullmatch(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?", text):
        return float(text)
    return str(text)


def wrong(sentence: str, hint: str = "") -> PydanticCustomError:
    """An error for a validator to raise; `sentence` goes on from the name of the field."""
    return PydanticCustomError("said", "{sentence}", {"sentence": sentence, "hint": hint})


def contradiction(at: str, sentence: str, hint: str = "") -> Exception:
    """An error of two fields that do not fit together, told at the field `at`."""
    return PydanticCustomError("said_at", "", {"at": at, "sentence": sentence, "hint": hint})


def _as_json(value: object) -> object:
    if isinstance(value, Plain):
        return plain_value(value)
    if isinstance(value, dict):
        return {str(key): _as_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_json(item) for item in value]
    return value


def _as_text(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    return value


_LONGEST_S = 36525 * 86400.0
"""Sums of a time and a longer duration are no times any more."""


def _as_seconds(value: object) -> object:
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        try:
            seconds = float(value) if _NUMBER.fullmatch(str(value)) else parse_duration(value)
        except InputError as error:
            raise wrong(f"must be a duration, not {str(value)!r}", error.hint) from error
        if seconds < 0:
            raise wrong(f"must not be negative, but is {value}")
        if seconds > _LONGEST_S:
            raise wrong(f"must be 100 years at most, but is {value}")
        return seconds
    raise wrong("must be a duration", "write seconds, 90s, 1h30m, 2d or 36:00:00")


def _as_interval(value: object) -> object:
    word = str(value).lower()
    if word in ("true", "false", "", "0"):
        return USUAL_INTERVAL if word == "true" else ""
    if not isinstance(value, (str, int, float)):
        raise wrong("must say how often", INTERVALS)
    try:
        return show_interval(parse_interval(value))
    except InputError as error:
        raise wrong(f"must say how often, from 100Hz to once a minute, not {str(value)!r}", error.hint) from error


USUAL_INTERVAL = "10Hz"
"""How often GPUs are looked at, where that is not said."""


def _as_size(value: object) -> object:
    text = _as_text(value)
    if not isinstance(text, str):
        raise wrong("must be a size", "write 512MB, 16GB or 1.5TiB")
    try:
        parse_size(text)
    except InputError as error:
        raise wrong(f"must be a size, not {text!r}", error.hint) from error
    return text


def split_words(text: str) -> tuple[str, ...]:
    """Split as a shell splits into words; nothing else that a shell does is done.

    A backslash at the end of a line joins it to the next, as in a script.

    Raises:
        ValueError: a quotation is not closed.
    """
    return tuple(shlex.split(re.sub(r"\\\r?\n", " ", text)))


def _as_words(value: object) -> object:
    value = _as_text(value)
    if isinstance(value, str):
        try:
            return split_words(value)
        except ValueError as error:
            raise wrong(f"cannot be split into words: {str(error).lower()}", "close the quotation") from error
    if isinstance(value, (list, tuple)):
        words = [_as_text(item) for item in value]
        if all(isinstance(word, str) for word in words):
            return tuple(words)
    raise wrong("must be text or a list of texts")


def _as_texts(value: object) -> object:
    return (value,) if isinstance(value, (str, int, float)) else value


def _as_variables(env: dict[str, _Value]) -> dict[str, _Value]:
    for name in env:
        if _VARIABLE.fullmatch(name) is None:
            raise wrong(f"has {name!r}, which cannot be the name of a variable")
    return env


_ANY_TEXT = {"type": ["string", "number", "boolean"]}
Text = Annotated[str, BeforeValidator(_as_text), WithJsonSchema(_ANY_TEXT)]
"""Text. Numbers and booleans are taken as the text that the user wrote."""

Texts = Annotated[
    tuple[Text, ...],
    BeforeValidator(_as_texts),
    WithJsonSchema({"anyOf": [_ANY_TEXT, {"type": "array", "items": _ANY_TEXT}]}),
]
"""A list of texts; one text is a list of one."""

Json = Annotated[Any, BeforeValidator(_as_json)]
"""Any JSON value, handed on as it is."""

Seconds = Annotated[
    float, BeforeValidator(_as_seconds), WithJsonSchema({"type": ["number", "string"], "title": "duration"})
]
"""Seconds, or a duration like `90s`, `10m`, `1h30m`, `36:00:00`."""

Interval = Annotated[
    str, BeforeValidator(_as_interval), WithJsonSchema({"type": ["number", "string", "boolean"], "title": "how often"})
]
"""How often something is looked at: `10Hz`, `100ms`, a number of milliseconds, or `true` for 10 Hz; empty: never."""

Size = Annotated[str, BeforeValidator(_as_size), WithJsonSchema({"type": ["string", "integer"], "title": "size"})]
"""A size like `16GB`, kept as it was written."""

Words = Annotated[
    tuple[str, ...],
    BeforeValidator(_as_words),
    WithJsonSchema({"anyOf": [_ANY_TEXT, {"type": "array", "items": _ANY_TEXT}]}),
]
"""Arguments: a list (each item is one argument), or text that is split into words. Never seen by a shell."""


Env = Annotated[dict[str, Text], AfterValidator(_as_variables)]
"""Environment variables: name to value."""


class SecretSource(Strict):
    """Where a secret is. The value itself is never written into a spec."""

    file: Text = ""
    """File whose content is the secret; keep it mode 0600."""
    env: Text = ""
    """Environment variable that holds the secret on the machine where it is used."""

    @model_validator(mode="before")
    @classmethod
    def _reference_only(cls, value: object) -> object:
        if isinstance(value, str):
            raise wrong("must say where the secret is, not be the secret", "write {env: NAME} or {file: PATH}")
        return value

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if sum(bool(value) for _, value in self) != 1:
            names = [f"`{name}`" for name in type(self).model_fields]
            raise wrong(f"needs either {', '.join(names[:-1])} or {names[-1]}", "write {env: NAME} or {file: PATH}")
        return self


class EnvSecret(SecretSource):
    """Where the secret of a variable is."""

    secret: Text = ""
    """On Kubernetes: Secret of the namespace and its key, `NAME/KEY`, which the cluster gives to the container."""

    @field_validator("secret")
    @classmethod
    def _named(cls, text: str) -> str:
        if text and not _OF_SECRET.fullmatch(text):
            raise wrong(f"must be a Secret and its key, not {text!r}", "write {secret: NAME/KEY}")
        return text


SecretEnv = Annotated[dict[str, EnvSecret], AfterValidator(_as_variables)]
"""Environment variables whose values are secrets: name to where the secret is."""

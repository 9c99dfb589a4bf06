"""Flags of a wrong type: what, what was given, what to write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from remuda.base.errors import InputError
from remuda.cli import typed

if TYPE_CHECKING:
    from collections.abc import Callable


def test_what_is_right() -> None:
    assert typed.number("2.5", "--min", "1") == 2.5
    assert typed.one_of("rate", ("concurrency", "rate"), "--maximise") == "rate"
    assert typed.json_object('{"top_k": 1}', "--extra-body") == {"top_k": 1}


@pytest.mark.parametrize(
    ("ask", "text", "words", "hint"),
    [
        (typed.number, "x", "--f: must be a number, not 'x'", "write --f 1"),
        (typed.number, "nan", "--f: must be a number, not 'nan'", "write --f 1"),
        (typed.one_of, "", "--f: must be concurrency or rate", "write --f concurrency"),
        (typed.one_of, "rates", "--f: must be concurrency or rate, not 'rates'", "did you mean 'rate'?"),
        (typed.json_object, "{", "--f: must be JSON, not '{': unexpected end of data", "write --f '{\"top_k\": 1}'"),
        (typed.json_object, "[1]", "--f: must be a JSON object, not '[1]'", "write --f '{\"top_k\": 1}'"),
    ],
)
def test_what_is_wrong_is_one_sentence(ask: Callable[..., Any], text: str, words: str, hint: str) -> None:
    more: dict[Any, tuple[Any, ...]] = {typed.number: ("--f", "1"), typed.one_of: (("concurrency", "rate"), "--f")}
    with pytest.raises(InputError) as caught:
        ask(text, *more.get(ask, ("--f",)))
    assert str(caught.value) == words
    assert caught.value.hint == hint

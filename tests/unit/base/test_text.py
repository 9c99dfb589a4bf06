"""What strangers wrote, on a user's terminal."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.base.text import clean, clean_json


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        pytest.param("plain\ttext\nof two lines", "plain\ttext\nof two lines", id="plain"),
        pytest.param("größer, 日本語, 👩‍🔬", "größer, 日本語, 👩‍🔬", id="languages"),
        pytest.param("\x1b[1;31mred\x1b[0m", "red", id="colour"),
        pytest.param("\x1b[38;2;1;2;3mred\x1b[m", "red", id="many colours"),
        pytest.param("a\x1b[2J\x1b[Hb", "ab", id="a screen that is wiped"),
        pytest.param("\x1b]0;title\x07text", "text", id="title"),
        pytest.param("\x1b]52;c;cm0gLXJm\x1b\\text", "text", id="clipboard"),
        pytest.param("\x1b]8;;http://evil\x1b\\here\x1b]8;;\x1b\\", "here", id="link"),
        pytest.param("\x1bP1$r0m\x1b\\text", "text", id="device control"),
        pytest.param("\x1b]0;never ends", "0;never ends", id="a title that never ends"),
        pytest.param("\x1bc text", " text", id="reset"),
        pytest.param("\x9b31mred\x9b0m", "red", id="colour in one byte"),
        pytest.param("\x9d0;title\x9ctext", "text", id="title in one byte"),
        pytest.param("\x1b\x1b[0m[31mred", "\\x1b[31mred", id="a sequence in a sequence"),
        pytest.param("\x1b[31", "31", id="cut off"),
        pytest.param("rm -rf /\rok      ", "rm -rf /\nok      ", id="carriage return"),
        pytest.param("dos\r\nlines\r\n", "dos\nlines\n", id="lines of another system"),
        pytest.param("10%\r20%\r", "10%\n20%", id="a bar"),
        pytest.param("evil\x08\x08\x08\x08good", "evil\\x08\\x08\\x08\\x08good", id="backspaces"),
        pytest.param("a\x00\x07\x7f\x85b", "a\\x00\\x07\\x7f\\x85b", id="controls"),
        pytest.param("user\u202etxt.exe", "user\\u202etxt.exe", id="direction"),
        pytest.param("a\u2066b\u2069\u200b\ufeff", "a\\u2066b\\u2069\\u200b\\ufeff", id="isolates and nothing at all"),
        pytest.param("tag\U000e0041", "tag\\U000e0041", id="tags"),
        pytest.param("half\udc80", "half\\udc80", id="a byte that is no text"),
    ],
)
def test_what_is_shown(said: str, shown: str) -> None:
    assert clean(said) == shown


def test_a_cell_is_one_line() -> None:
    assert clean("ok\nreplica/1  ready", one_line=True) == "ok replica/1  ready"
    assert clean("a\r b\t c\n", one_line=True) == "a b c "


@given(st.text(st.characters() | st.sampled_from("\x1b[]0;m\x07\\\x9b\x9d\x9c\r\n\u202e")))
def test_nothing_that_acts_comes_through(said: str) -> None:
    shown = clean(said)
    assert all(character.isprintable() or character in "\n\t" or character.isspace() or ord(character) > 0xA0
               for character in shown)  # fmt: skip
    assert not set(shown) & {chr(code) for code in (*range(9), *range(0x0B, 0x20), *range(0x7F, 0xA0), 0x202E)}
    assert clean(shown) == shown
    shown.encode()
    assert "\n" not in clean(said, one_line=True)


@given(st.text())
def test_json_says_what_it_said(said: str) -> None:
    shown = clean_json(json.dumps({"line": said}, ensure_ascii=False))
    assert json.loads(shown) == {"line": said}
    assert clean(shown) == shown


@pytest.mark.parametrize(
    "said",
    [
        pytest.param("\r" * 30_000 + "x", id="carriage returns"),
        pytest.param("\x9d" * 30_000, id="titles that never end"),
        pytest.param("\x1b]" * 30_000, id="titles in two bytes"),
        pytest.param("\x1b[" + "0" * 30_000, id="a sequence that never ends"),
        pytest.param(" " * 30_000 + "x", id="spaces"),
        pytest.param(" \t" * 30_000 + "x", id="spaces and tabs"),
    ],
)
@pytest.mark.parametrize("one_line", [False, True])
def test_cleaning_takes_no_longer_than_the_text_is_long(said: str, one_line: bool) -> None:
    began = time.process_time()
    clean(said, one_line=one_line)
    assert time.process_time() - began < 1

"""What is said of a server that starts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.node.child.loading import EVERY_S, MAX_CHARS, LastLine, last_line, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("\n \n", ""),
        ("one\ntwo\n\n", "two"),
        ("10%\r50%\r90%", "90%"),
        ("\x1b[32mINFO\x1b[0m loading weights", "INFO loading weights"),
        ("\x07bell", "bell"),
        ("x" * 500, "x" * (MAX_CHARS - 1) + "…"),
    ],
)
def test_the_last_line(text: str, expected: str) -> None:
    assert last_line(text) == expected


@given(st.text(max_size=300))
def test_it_is_one_printable_line(text: str) -> None:
    line = last_line(text)
    assert len(line) <= MAX_CHARS
    assert line.isprintable()


@pytest.mark.parametrize(
    ("reason", "line", "used", "expected"),
    [
        ("", "", 0, "loading"),
        ("nothing listens on the port", "", 0, "nothing listens on the port"),
        ("nothing listens on the port", "2 of 8 shards", 0, "nothing listens on the port; log: 2 of 8 shards"),
        ("", "2 of 8 shards", 1, "restart 1 of 3; loading; log: 2 of 8 shards"),
        ("exit code 1; restart 1 of 3 in 5 s", "", 1, "exit code 1; restart 1 of 3 in 5 s"),
    ],
)
def test_one_sentence(reason: str, line: str, used: int, expected: str) -> None:
    assert words(reason, line, used, 3) == expected


class Output:
    """Output whose last lines are `text`."""

    text = "first"

    def tail(self, max_chars: int) -> str:
        return self.text[-max_chars:]


def test_a_flood_of_lines_is_told_now_and_then() -> None:
    output, line = Output(), LastLine()
    assert line.of(output, 100.0) == "first"  # type: ignore[arg-type]
    output.text = "second"
    assert line.of(output, 100.0 + EVERY_S / 2) == "first"  # type: ignore[arg-type]
    assert line.of(output, 100.0 + EVERY_S) == "second"  # type: ignore[arg-type]
    assert line.of(None, 101.0) == ""
    assert line.of(output, 101.1) == "second"  # type: ignore[arg-type]

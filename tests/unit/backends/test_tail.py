"""A log that grows, is rotated, cut, or not there yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from remuda.backends import tail as module
from remuda.backends.tail import Tail, follow_file, last_text

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "child.log"


def add(log: Path, text: str) -> None:
    with log.open("a") as file:
        file.write(text)


def test_lines_come_when_they_are_complete(log: Path) -> None:
    tail = Tail(log)
    assert tail.read() == []
    add(log, "one\ntw")
    assert (tail.read(), tail.last()) == (["one"], ["tw"])
    add(log, "o\nthree\r\n")
    assert (tail.read(), tail.last()) == (["two", "three"], [])
    assert tail.read() == []
    tail.close()


def test_a_rotated_file_is_read_to_its_end_first(log: Path) -> None:
    tail = Tail(log)
    add(log, "one\n")
    assert tail.read() == ["one"]
    add(log, "two\nthr")
    log.rename(log.with_suffix(".log.1"))
    add(log, "ee\nfour\n")
    assert tail.read() == ["two", "three", "four"]
    tail.close()


def test_while_the_name_is_missing_the_old_file_goes_on(log: Path) -> None:
    tail = Tail(log)
    add(log, "one\n")
    tail.read()
    aside = log.with_suffix(".log.1")
    log.rename(aside)
    add(aside, "two\n")
    assert tail.read() == ["two"]
    add(log, "three\n")
    assert tail.read() == ["three"]
    tail.close()


def test_a_file_that_was_cut_begins_anew(log: Path) -> None:
    tail = Tail(log)
    add(log, "one\ntwo\nhalf of a li")
    assert tail.read() == ["one", "two"]
    log.write_text("fresh\n")
    assert tail.read() == ["half of a li", "fresh"], "what was cut off belongs to no other line"
    tail.close()


def test_bytes_that_are_no_text_do_no_harm(log: Path) -> None:
    log.write_bytes(b"\xff\xfe\nok\n")
    tail = Tail(log)
    assert tail.read() == ["\ufffd\ufffd", "ok"]
    tail.close()


@pytest.mark.parametrize(
    ("tail", "expected"), [(0, ["a", "b", "c", "end"]), (2, ["c", "end"]), (9, ["a", "b", "c", "end"])]
)
async def test_without_following_it_ends(log: Path, tail: int, expected: list[str]) -> None:
    add(log, "a\nb\nc\nend")
    assert [line async for line in follow_file(log, None, tail)] == expected


async def test_an_absent_file_has_no_lines(log: Path) -> None:
    assert [line async for line in follow_file(log, None)] == []
    assert [line async for line in follow_file(log, lambda: False)] == []


async def test_following_ends_with_the_task_and_loses_nothing(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_AGAIN_S", 0.0)
    written = iter(["first\n", "sec", "ond\n", ""])

    def lives() -> bool:
        """Writes a piece at every look; the last words are written as it ends."""
        piece = next(written)
        add(log, piece or "last words")
        return bool(piece)

    assert [line async for line in follow_file(log, lives)] == ["first", "second", "last words"]


async def test_following_begins_with_the_last_lines(log: Path) -> None:
    add(log, "a\nb\nc\n")
    assert [line async for line in follow_file(log, lambda: False, tail=1)] == ["c"]


def test_the_end_of_a_file_begins_with_a_whole_line(log: Path) -> None:
    assert last_text(log, 100) == ""
    add(log, "first line\nsecond\nthird\n")
    assert last_text(log, 100) == "first line\nsecond\nthird\n"
    assert last_text(log, 12) == "third\n"

"""A log that grows, is rotated, cut, endless, or not there yet, and many who read it at once."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from remuda.backends import logs as module
from remuda.backends.logfile import BLOCK, LogFile
from remuda.backends.logs import Logs, until_dead
from remuda.wire.place import Place

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from remuda.backends.base import Log

BOUND_S = 120.0


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_AGAIN_S", 0.002)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "child.log"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Place and size of everything that is read."""
    seen: list[tuple[int, int]] = []
    real = LogFile._read

    def read(self: LogFile, at: int, size: int) -> bytes:
        raw = real(self, at, size)
        seen.append((at, size))
        return raw

    monkeypatch.setattr(LogFile, "_read", read)
    return seen


def add(log: Path, text: str) -> None:
    with log.open("a") as file:
        file.write(text)


class Following:
    """One who follows a log, line by line."""

    def __init__(self, logs: Logs, log: Path, tail: int = 0) -> None:
        self.ended = asyncio.Event()
        self._lines = aiter(logs.read(log, tail, self._until_ended))

    async def _until_ended(self) -> None:
        await self.ended.wait()

    async def next(self, count: int = 1) -> list[str]:
        async with asyncio.timeout(BOUND_S):
            return [await anext(self._lines) for _ in range(count)]

    async def rest(self) -> list[str]:
        """What comes after the task has ended."""
        self.ended.set()
        async with asyncio.timeout(BOUND_S):
            return [line async for line in self._lines]


async def lines_of(log: Log) -> list[str]:
    async with asyncio.timeout(BOUND_S):
        return [line async for line in log]


async def test_lines_come_when_they_are_complete(log: Path) -> None:
    follower = Following(Logs(), log)
    add(log, "one\ntw")
    assert await follower.next() == ["one"]
    add(log, "o\nthree\r\nfo")
    assert await follower.next(2) == ["two", "three"]
    assert await follower.rest() == ["fo"]


async def test_a_rotated_file_is_read_to_its_end_first(log: Path) -> None:
    add(log, "one\n")
    follower = Following(Logs(), log)
    assert await follower.next() == ["one"]
    add(log, "two\nthr")
    log.rename(log.with_suffix(".log.1"))
    add(log, "ee\nfour\n")
    assert await follower.next(3) == ["two", "three", "four"]


async def test_while_the_name_is_missing_the_old_file_goes_on(log: Path) -> None:
    add(log, "one\n")
    follower = Following(Logs(), log)
    await follower.next()
    aside = log.with_suffix(".log.1")
    log.rename(aside)
    add(aside, "two\n")
    assert await follower.next() == ["two"]
    add(log, "three\n")
    assert await follower.next() == ["three"]


async def test_a_file_that_was_cut_begins_anew(log: Path, reads: list[tuple[int, int]]) -> None:
    add(log, "one\ntwo\nhalf of a li")
    follower = Following(Logs(), log)
    assert await follower.next(2) == ["one", "two"]
    waiting = asyncio.ensure_future(follower.next(2))
    async with asyncio.timeout(BOUND_S):
        while (8, BLOCK) not in reads:  # where the half line begins
            await asyncio.sleep(0.001)
    log.write_text("fresh\n")
    assert await waiting == ["half of a li", "fresh"], "what was cut off belongs to no other line"


async def test_a_file_that_was_cut_and_has_grown_again_is_read_from_its_beginning(log: Path) -> None:
    add(log, "old\n")
    follower = Following(Logs(), log)
    assert await follower.next() == ["old"]
    add(log, "x" * 99 + "\n")
    assert await follower.next() == ["x" * 99]
    log.write_text("new\n" + "y" * 49 + "\n")
    assert await follower.rest() == ["new", "y" * 49]


async def test_a_file_that_was_replaced_by_another(log: Path) -> None:
    add(log, "one\n")
    follower = Following(Logs(), log)
    await follower.next()
    other = log.with_suffix(".new")
    other.write_text("two\n")
    other.replace(log)
    assert await follower.next() == ["two"]


async def test_bytes_that_are_no_text_do_no_harm(log: Path) -> None:
    log.write_bytes(b"\xff\xfe\nok\n")
    assert await lines_of(Logs().read(log)) == ["\ufffd\ufffd", "ok"]


@pytest.mark.parametrize(
    ("tail", "expected"), [(0, ["a", "b", "c", "end"]), (1, ["end"]), (2, ["c", "end"]), (9, ["a", "b", "c", "end"])]
)
async def test_without_following_it_ends(log: Path, tail: int, expected: list[str]) -> None:
    add(log, "a\nb\nc\nend")
    assert await lines_of(Logs().read(log, tail)) == expected


@pytest.mark.parametrize(
    ("tail", "expected"), [(1, ["c"]), (2, ["b", "c"]), (3, ["a", "b", "c"]), (4, ["a", "b", "c"])]
)
async def test_the_last_lines_where_the_last_has_its_end(log: Path, tail: int, expected: list[str]) -> None:
    add(log, "a\nb\nc\n")
    assert await lines_of(Logs().read(log, tail)) == expected
    assert await Following(Logs(), log, tail).rest() == expected


async def test_an_absent_file_has_no_lines(log: Path) -> None:
    assert await lines_of(Logs().read(log)) == []
    assert await Following(Logs(), log).rest() == []


async def test_what_cannot_be_read_says_so_in_a_line(log: Path) -> None:
    log.mkdir()
    (line,) = await lines_of(Logs().read(log, 3))
    assert str(log) in line
    assert "cannot be read" in line
    (line,) = await Following(Logs(), log).rest()
    assert "cannot be read" in line


async def test_following_ends_with_the_task_and_loses_nothing(log: Path) -> None:
    written = iter(["first\n", "sec", "ond\n", ""])

    def lives() -> bool:
        """Writes a piece at every look; the last words are written as it ends."""
        piece = next(written)
        add(log, piece or "last words")
        return bool(piece)

    follower = Logs().read(log, 0, lambda: until_dead(lives, 0.0))
    assert await lines_of(follower) == ["first", "second", "last words"]


async def test_following_begins_with_the_last_lines(log: Path) -> None:
    add(log, "a\nb\nc\nd")
    follower = Following(Logs(), log, tail=1)
    assert await follower.next() == ["c"]
    assert await follower.rest() == ["d"]


async def test_the_last_lines_are_looked_for_from_the_end(log: Path, reads: list[tuple[int, int]]) -> None:
    add(log, "a line of a large file\n" * 400_000 + "one\ntwo\nthree\n")
    assert await lines_of(Logs().read(log, 3)) == ["one", "two", "three"]
    assert sum(size for _, size in reads) <= 4 * BLOCK
    assert min(at for at, _ in reads) > log.stat().st_size - 2 * BLOCK


@pytest.mark.parametrize("tail", [1, 2, 3, 700, 2999, 3000, 3001])
async def test_the_last_lines_over_several_blocks(log: Path, tail: int) -> None:
    all_lines = [f"{number} " + "x" * (number % 200) for number in range(3000)]
    add(log, "\n".join(all_lines) + "\n")
    assert await lines_of(Logs().read(log, tail)) == all_lines[-tail:]


async def test_a_line_without_end_comes_in_pieces(log: Path) -> None:
    text = "ä€😀" * 50_000
    log.write_bytes(f"begin\n{text}\nend\n".encode())
    lines = await lines_of(Logs().read(log))
    assert (lines[0], lines[-1]) == ("begin", "end")
    assert "".join(lines[1:-1]) == text, "no character is cut in two"
    assert max(len(line.encode()) for line in lines) <= BLOCK


async def test_many_followers_are_one_reader(log: Path, reads: list[tuple[int, int]]) -> None:
    logs = Logs()
    followers = [Following(logs, log) for _ in range(30)]
    waiting = [asyncio.ensure_future(follower.next()) for follower in followers]
    await asyncio.sleep(0)
    aside = log.with_suffix(".aside")
    add(aside, "news\n")
    aside.rename(log)  # an empty file would be read, too
    assert await asyncio.gather(*waiting) == [["news"]] * 30
    assert [at for at, _ in reads].count(0) == 1, "read once for all of them"
    assert len(logs.open) == 1


async def test_the_event_loop_goes_on_while_the_disk_does_not(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(log, "a\nb\nc\n")
    may_read = threading.Event()
    real = os.pread

    def slow(descriptor: int, size: int, at: int) -> bytes:
        assert may_read.wait(BOUND_S), "it was read in the loop, which therefore could not go on"
        return real(descriptor, size, at)

    monkeypatch.setattr(os, "pread", slow)
    reading = asyncio.ensure_future(lines_of(Logs().read(log, 2)))
    for _ in range(5):
        await asyncio.sleep(0.001)
    may_read.set()
    assert await reading == ["b", "c"]


async def test_who_is_too_slow_is_told_what_it_missed(log: Path) -> None:
    logs = Logs()
    add(log, "one\n")
    slow, quick = Following(logs, log), Following(logs, log)
    assert await slow.next() == await quick.next() == ["one"]
    for number in range(2, 7):
        log.rename(log.with_suffix(f".{number}"))
        add(log, f"{number}{number}{number}\n")
        assert await quick.next() == [str(number) * 3]
    lines = await slow.rest()
    assert lines == ["--- 12 bytes were rotated away before they were read ---", "555", "666"]


async def test_nothing_stays_open_when_nobody_reads(log: Path) -> None:
    add(log, "one\n")
    logs = Logs()
    async with aclosing(follow(logs, log)) as blocks:
        assert await anext(blocks) == b"one\n"
        assert descriptors(log)
    assert logs.open == {}
    async with asyncio.timeout(BOUND_S):
        while descriptors(log) or is_watched():  # both end beside us
            await asyncio.sleep(0.005)


def follow(logs: Logs, log: Path) -> AsyncGenerator[bytes, None]:
    async def never() -> None:
        await asyncio.Event().wait()

    return logs.read(log, 0, never).blocks()


def is_watched() -> bool:
    return any(task.get_name().startswith("log ") for task in asyncio.all_tasks())


def descriptors(log: Path) -> list[Path]:
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.append(link.readlink())
    return [target for target in found if target == log]


def _when(over: asyncio.Event) -> Callable[[], Awaitable[None]]:
    async def ended() -> None:
        await over.wait()

    return ended


async def cut_off(log: Path, lines: int) -> Place:
    """Where one who followed was after so many lines."""
    ended = asyncio.Event()
    read = Logs().read(log, 0, _when(ended))
    seen = 0
    async with aclosing(read.blocks()) as blocks, asyncio.timeout(BOUND_S):
        while seen < lines:
            seen += (await anext(blocks)).count(b"\n")
        return read.place()


async def behind(log: Path, place: Place) -> list[str]:
    ended = asyncio.Event()
    ended.set()
    return await lines_of(Logs().read(log, 0, ended.wait, place))  # type: ignore[arg-type]


async def test_another_reader_goes_on_where_one_was(log: Path) -> None:
    add(log, "one\r\ntwo \xff\nhal")
    place = await cut_off(log, 2)
    add(log, "f\nthree\n")
    assert await behind(log, place) == ["half", "three"]
    assert await behind(log, await cut_off(log, 4)) == []


async def test_another_reader_goes_on_over_a_rotation(log: Path) -> None:
    add(log, "one\n")
    place = await cut_off(log, 1)
    add(log, "two\nthr")
    log.rename(log.with_suffix(".log.1"))
    add(log, "ee\nfour\n")
    assert await behind(log, place) == ["two", "three", "four"]
    log.rename(log.with_suffix(".log.1"))
    add(log, "five\n")
    assert await behind(log, place) == ["--- what was written since was rotated away ---", "five"]


async def test_a_place_is_told_before_there_is_a_file(log: Path) -> None:
    read = Logs().read(log, 0, _when(asyncio.Event()))
    async with aclosing(read.blocks()) as blocks:
        assert (await anext(blocks), read.place()) == (b"", Place())
    add(log, "one\n")
    assert await behind(log, Place()) == ["one"]


def test_a_block_full_of_carriage_returns_is_read_at_once(log: Path) -> None:
    log.write_bytes(b"\r" * 65_000 + b"x\r\r\n")
    file = LogFile.open(log)
    assert file is not None
    began = time.process_time()
    assert file.block(0).text == b"\r" * 65_000 + b"x\n"
    file.close()
    assert time.process_time() - began < 1

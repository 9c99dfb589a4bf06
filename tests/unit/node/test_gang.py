"""The line between the first node of a replica and the others, and the words that each is given."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

import pytest

from remuda.node.guard import member_line
from remuda.node.guard.spread import step_words
from remuda.wire.spread import HEAD_MARK, RANK_MARK, Spread

if TYPE_CHECKING:
    from collections.abc import Iterator

Pair = tuple[member_line.MemberLine, member_line.MemberLine]


@pytest.fixture
def pair() -> Iterator[Pair]:
    one, other = socket.socketpair()
    lines = member_line.MemberLine(one), member_line.MemberLine(other)
    yield lines
    for line in lines:
        line.close()


def test_messages_come_whole_and_beats_are_none(pair: Pair) -> None:
    one, other = pair
    one.say({"rank": 1})
    one.beat(time.monotonic() + member_line.BEAT_S)
    one.socket.sendall(b'{"argv": ["a')
    assert other.hear() == [{"rank": 1}]
    one.socket.sendall(b'"]}\nno message\n[1]\n')
    assert other.hear() == [{"argv": ["a"]}]
    assert other.is_open


def test_an_end_that_hangs_up_is_gone(pair: Pair) -> None:
    one, other = pair
    one.say({"ended": 3})
    one.close()
    assert other.hear() == [{"ended": 3}]
    assert not other.is_open


def test_an_end_that_is_silent_for_long_is_gone(pair: Pair) -> None:
    _, other = pair
    begun = other.heard_at = other._turned_at = 1000.0  # whole, so that sums with it are exact
    for second in range(int(member_line.SILENCE_S) + 1):
        other.beat(begun + second)
    assert other.is_open
    other.beat(begun + member_line.SILENCE_S + 1)
    assert not other.is_open


def test_an_end_that_stood_still_itself_listens_before_it_concludes(pair: Pair) -> None:
    _, other = pair
    begun = other.heard_at = other._turned_at = 1000.0  # whole, so that sums with it are exact
    other.beat(begun + 7200)
    assert other.is_open
    for second in range(int(member_line.SILENCE_S) + 1):
        other.beat(begun + 7200 + second)
    assert other.is_open
    other.beat(begun + 7200 + member_line.SILENCE_S + 1)
    assert not other.is_open


def test_words() -> None:
    words = member_line.plain([f"--addr={HEAD_MARK}:1", RANK_MARK, "plain"], {HEAD_MARK: "10.0.0.1", RANK_MARK: "2"})
    assert words == ["--addr=10.0.0.1:1", "2", "plain"]


def test_one_step_on_all_nodes_but_the_first() -> None:
    words = step_words(Spread(4, [], cpus=8))
    assert words[:7] == [
        "srun", "--overlap", "--relative=1", "--nodes=3", "--ntasks=3", "--ntasks-per-node=1", "--cpus-per-task=8"
    ]  # fmt: skip
    assert step_words(Spread(2, [], first=3))[2:4] == ["--relative=4", "--nodes=1"]

"""The order of rows: nothing is lost, windows are bounded, neighbours stay together; and what `auto` finds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.batch.input.feed import InputRow
from remuda.batch.pipeline.order import RowOrder, common_length, cut, is_worth_ordering, key_of

WINDOW = 16
texts = st.text(alphabet="ab", max_size=6)


def rows_of(items: list[Any]) -> list[InputRow]:
    return [InputRow(position, item, b"") for position, item in enumerate(items)]


def taken(order: RowOrder, workers: list[int], size: int = 1) -> list[list[InputRow]]:
    """What workers get, in the turns that `workers` says again and again, until nothing is left."""
    found = []
    turn = 0
    while len(order):
        found.append(order.take(workers[turn % len(workers)], size))
        turn += 1
    return found


@given(
    items=st.lists(texts, max_size=100), order=st.sampled_from(["auto", "input", "prefix"]), lanes=st.integers(1, 40),
    workers=st.lists(st.integers(0, 50), min_size=1, max_size=8), size=st.integers(1, 5), chunk=st.integers(1, 40),
)  # fmt: skip
def test_every_row_once_whatever_the_order(
    items: list[str], order: str, lanes: int, workers: list[int], size: int, chunk: int
) -> None:
    ready, left, found = RowOrder(order, window=WINDOW), rows_of(items), list[InputRow]()
    ready.lanes = lanes
    held = 0
    while left or len(ready):
        # As the feed does: a chunk more while there is room.
        while left and ready.is_low and not (order == "input" and len(ready) > WINDOW):
            some, left = left[:chunk], left[chunk:]
            held += len(some)
            ready.add(some)
            if not left:
                ready.end()
        if ready.chosen == "prefix":
            assert held <= 2 * WINDOW + chunk
        got = ready.take(workers[len(found) % len(workers)], size)
        assert 1 <= len(got) <= size
        held -= len(got)
        found += got
    assert sorted(row.position for row in found) == list(range(len(items)))
    if ready.chosen == "input":
        assert [row.position for row in found] == list(range(len(items)))


@given(count=st.integers(0, 200), lanes=st.integers(1, 50))
def test_a_cut_keeps_neighbours_together(count: int, lanes: int) -> None:
    rows = rows_of([""] * count)
    pieces = cut(rows, lanes)
    assert [row for piece in pieces for row in piece] == rows
    sizes = [len(piece) for piece in pieces]
    assert len(sizes) == lanes
    assert max(sizes) - min(sizes) <= 1


@given(items=st.lists(texts, min_size=1, max_size=60), lanes=st.integers(1, 8))
def test_a_worker_sees_its_lane_in_sorted_order(items: list[str], lanes: int) -> None:
    """As long as each worker takes from its own lane, what it asks goes up; so siblings follow each other."""
    ready = RowOrder("prefix", window=len(items))
    ready.lanes = lanes
    ready.add(rows_of(items))
    ready.end()
    pieces = cut(sorted(rows_of(items), key=lambda row: (row.item, row.position)), lanes)
    for number, piece in enumerate(pieces):
        assert [ready.take(number, 1)[0] for _ in piece] == list(piece)


def test_a_worker_at_the_end_of_its_lane_takes_the_later_half_of_the_longest() -> None:
    ready = RowOrder("prefix", window=8)
    ready.lanes = 2
    ready.add(rows_of(list("abcdefgh")))
    assert "".join(ready.take(0, 1)[0].item for _ in range(4)) == "abcd"
    assert "".join(ready.take(0, 1)[0].item for _ in range(2)) == "gh"
    assert "".join(ready.take(1, 1)[0].item for _ in range(2)) == "ef"
    assert len(ready) == 0


def test_nothing_may_be_taken_before_a_window_is_whole_or_the_input_has_ended() -> None:
    ready = RowOrder("prefix", window=4)
    ready.add(rows_of(["a", "b", "c"]))
    assert len(ready) == 0
    assert ready.is_low
    ready.end()
    assert len(ready) == 3


def test_many_characters_end_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.batch.pipeline.order.WINDOW_CHARS", 100)
    ready = RowOrder("prefix", window=1000)
    ready.add(rows_of(["a" * 60, "b" * 60]))
    assert not ready.is_low
    assert len(ready) == 2


@given(texts, texts)
def test_common_length(one: str, other: str) -> None:
    slow = 0
    while slow < min(len(one), len(other)) and one[slow] == other[slow]:
        slow += 1
    assert common_length(one, other) == slow


@given(st.integers(0, 3000), st.integers(0, 50), st.integers(0, 50))
def test_common_length_of_long_texts(shared: int, one: int, other: int) -> None:
    assert common_length("a" * shared + "b" * one, "a" * shared + "c" * other) == shared


def said(*messages: tuple[str, Any]) -> list[dict[str, Any]]:
    return [{"role": role, "content": content, "name": None} for role, content in messages]


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        pytest.param("the horse runs", "the horse sleeps", True, id="texts"),
        pytest.param(said(("system", "be kind"), ("user", "a")), said(("system", "be kind"), ("user", "b")), True,
                     id="the same system prompt"),
        pytest.param(said(("user", "be kind")), said(("system", "be kind")), False, id="another role"),
        pytest.param(said(("user", "a"), ("user", "b")), said(("user", "ab")), False, id="messages end where they end"),
        pytest.param(["first turn", "x"], ["first turn", "y"], True, id="turns"),
        pytest.param(said(("user", [{"type": "text", "text": "long and the same"}])),
                     said(("user", [{"type": "text", "text": "long and the other"}])), True, id="content in parts"),
    ],
)  # fmt: skip
def test_keys_begin_alike_where_prompts_do(one: Any, other: Any, alike: bool) -> None:
    assert (common_length(key_of(one), key_of(other)) >= 9) == alike


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text() | st.binary(),
                    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner)))  # fmt: skip
def test_any_item_has_a_key(item: Any) -> None:
    assert isinstance(key_of(item), str)


SYSTEM = "You are a patient and helpful assistant who answers in one sentence. "
PAGES = [f"Page {number}: " + f"the horses of page {number} ran far and wide that day. " * 4 for number in range(8)]


@pytest.mark.parametrize(
    ("keys", "worth"),
    [
        pytest.param([], False, id="nothing"),
        pytest.param(["alone " * 50], False, id="one row"),
        pytest.param([f"{number} is a number" for number in range(100)], False, id="nothing shared"),
        pytest.param([f"{SYSTEM}{number} horses?" for number in range(100)], False, id="shared by all, whatever order"),
        pytest.param([f"hello {number}" for number in range(100)], False, id="too short"),
        pytest.param([f"{PAGES[number % 8]}Question {number}?" for number in range(100)], True, id="a page for some"),
        pytest.param([f"{SYSTEM}{PAGES[number % 8]}{number}?" for number in range(100)], True, id="and one for all"),
    ],
)
def test_what_auto_finds(keys: list[str], worth: bool) -> None:
    assert is_worth_ordering(keys) == worth
    ready = RowOrder("auto", window=50)
    ready.add(rows_of(list(keys)))
    ready.end()
    assert ready.chosen == ("prefix" if worth else "input")
    assert sorted(row.position for some in taken(ready, [0, 1]) for row in some) == list(range(len(keys)))

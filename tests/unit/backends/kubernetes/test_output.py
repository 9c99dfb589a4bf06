"""Output that is asked for again and again, to the second: nothing twice, and nothing left out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from remuda.backends.kubernetes.output import Place

TIMES = st.lists(st.integers(0, 30), min_size=1, max_size=40).map(sorted)


def stamp(tenths: int) -> str:
    """As servers write times: zeros at the end are left out."""
    fraction = f".{tenths % 10}" if tenths % 10 else ""
    return f"2026-11-01T10:00:{tenths // 10:02}{fraction}Z"


@given(TIMES, st.lists(st.integers(0, 40), max_size=6))
def test_whatever_was_there_when_it_was_asked(times: list[int], cuts: list[int]) -> None:
    lines = [f"{stamp(at)} line {number}\n".encode() for number, at in enumerate(times)]
    place, taken = Place("u"), list[bytes]()
    for end in [*sorted(cuts), len(lines)]:
        since = place.asked()
        there = [line for line in lines[:end] if line[:19].decode() >= since[:19]]
        taken += place.new(there)
        place = Place(place.pod, place.at, place.count)  # as another host reads it
    assert b"".join(taken) == b"".join(f"line {number}\n".encode() for number in range(len(lines)))


def test_a_line_in_pieces_is_one() -> None:
    place = Place("u")
    place.asked()
    assert place.new([b"2026-11-01T10:00:00.5Z abc"]) + place.new([b"def 1\n", b"2026-11-01T10:00:01Z g\n"]) == [
        b"abc", b"def 1\n", b"g\n",
    ]  # fmt: skip

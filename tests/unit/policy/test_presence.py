"""A gap in somebody's own turns is nobody's silence, and silence is silence in the end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from remuda.policy.presence import LATE_S, PATIENT, Presence, silence_s, turned

TURN_S = 1.0
TURNS = st.lists(
    st.one_of(st.floats(0.1, TURN_S + LATE_S), st.floats(TURN_S + LATE_S + 0.01, 1e6)), min_size=1, max_size=60
)


def lived(turns: list[float]) -> list[Presence]:
    found, at = [Presence(100.0)], 100.0
    for passed in turns:
        at += passed
        found.append(turned(found[-1], at, TURN_S))
    return found


def test_turns_in_time_are_lived() -> None:
    assert lived([1.0, 1.0, 1.75])[-1] == Presence(103.75, 3.75, 0.0, 0.0)


def test_a_gap_is_missed() -> None:
    assert lived([1.0, 121.0])[-1] == Presence(222.0, 2.0, 2.0, 120.0)


def test_silence_begins_anew_after_a_gap() -> None:
    before, after, later = lived([*[1.0] * 100, 7200.0, 1.0])[-3:]
    assert silence_s(before, 0.0) == 100.0
    assert silence_s(after, 0.0) == 101.0 / PATIENT
    assert silence_s(later, 0.0) == 102.0 / PATIENT
    assert silence_s(later, 99.0) == 1.0


@given(TURNS)
def test_no_gap_is_silence(turns: list[float]) -> None:
    """Whatever is missed, nobody was silent for longer than there was somebody to hear."""
    there = sum(passed if passed <= TURN_S + LATE_S else TURN_S for passed in turns)
    last = lived(turns)[-1]
    assert silence_s(last, 0.0) <= there + 1e-6
    assert abs(last.lived + last.missed - (last.at - 100.0)) < 1e-3


@given(TURNS, st.floats(0.5, 30.0))
def test_a_gap_begins_every_silence_anew(turns: list[float], limit_s: float) -> None:
    """Right after a gap nobody has been silent for a limit that was not reached before, nor would be by patience."""
    after = lived([*turns, 1000.0])[-1]
    heard = after.lived - min(limit_s, after.lived)
    assert silence_s(after, heard) <= limit_s / PATIENT + 1e-6


@given(TURNS, st.floats(1.0, 10.0))
def test_one_who_never_speaks_is_silent_in_the_end(turns: list[float], limit_s: float) -> None:
    """Gaps that come again and again put it off, not away."""
    assert silence_s(lived([*turns, *[10.0] * int(PATIENT * limit_s + 2)])[-1], 0.0) > limit_s

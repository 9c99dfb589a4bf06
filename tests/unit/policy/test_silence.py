"""Silence says something only while others are heard."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.policy.silence import Ear, hear, is_lost, is_missed, patience_s, silence_s

PACE = 2.0


def listened(*moments: dict[str, float]) -> tuple[Ear, dict[str, float]]:
    """The ear after moments in which some were heard, at these times; and when each was heard last."""
    ear = Ear()
    last: dict[str, float] = {}
    for moment in moments:
        last |= moment
        ear = hear(ear, [(at, PACE) for at in last.values()])
    return ear, last


def everybody(at: float) -> dict[str, float]:
    return {"a": at, "b": at + 0.3, "c": at + 0.9}


@pytest.mark.parametrize(
    ("moments", "expected"),
    [
        pytest.param([everybody(100), everybody(102), everybody(104)], [], id="all speak"),
        pytest.param([everybody(100), *({"a": at, "b": at} for at in range(102, 112, 2))], ["c"], id="one is silent"),
        pytest.param([everybody(100), *({"a": at} for at in range(102, 112, 2))], ["b", "c"], id="one is heard"),
        pytest.param([everybody(100), *({} for _ in range(50))], [], id="nobody is heard"),
        pytest.param([everybody(100), {"a": 500.0}], [], id="the first who is heard again is no witness"),
        pytest.param([everybody(100), {"a": 500.0}, {"a": 502.0}, {"a": 504.0}, {"a": 506.0}], [],
                     id="others may need a moment longer"),
        pytest.param([everybody(100), *({"a": at} for at in range(500, 512, 2))], ["b", "c"],
                     id="but not for ever"),
        pytest.param([{"a": 100.0}, {"a": 200.0}, {"a": 202.0}], [], id="one alone"),
    ],
)  # fmt: skip
def test_who_is_missed(moments: list[dict[str, float]], expected: list[str]) -> None:
    ear, last = listened(*moments)
    assert [name for name, at in last.items() if is_missed(silence_s(ear, at), PACE)] == expected


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.01, 7.9)), max_size=60), st.floats(9, 1e6))
def test_after_a_time_without_anybody_nobody_is_missed(steps: list[tuple[str, float]], gap: float) -> None:
    """Whatever came before, and whoever is heard first."""
    now, moments = 100.0, [everybody(98.0)]
    for name, pause in steps:
        now += pause
        moments.append({name: now})
    ear, last = listened(*moments, {"b": now + gap})
    assert not [at for at in last.values() if is_missed(silence_s(ear, at), PACE)]


@pytest.mark.parametrize(
    ("silent_s", "pace_s", "limit_s", "expected"),
    [
        (61.0, 2.0, 60.0, True),
        (59.0, 2.0, 60.0, False),
        (1e6, 2.0, 0.0, False),
        (9.0, 2.0, 1.0, False),
        (17.0, 2.0, 1.0, True),
        (100.0, 25.0, 60.0, False),
    ],
)
def test_who_is_lost(silent_s: float, pace_s: float, limit_s: float, *, expected: bool) -> None:
    assert is_lost(silent_s, pace_s, limit_s) is expected


def test_patience() -> None:
    assert patience_s(2.0) == 8.0
    assert not is_missed(8.0, 2.0)
    assert is_missed(8.1, 2.0)

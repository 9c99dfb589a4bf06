"""How often Slurm is asked while tasks end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.backends.slurm.pace import BURST, SOON_S, Pace


def looks(pace: Pace, begin: float, until: float) -> list[float]:
    """When it is asked by somebody who hurries all the time."""
    now, times = begin, []
    while now < until:
        times.append(now)
        now += pace.looked(now)
    return times


def test_the_first_looks_come_soon_and_then_as_usual() -> None:
    assert looks(Pace(5.0), 100.0, 120.0) == [100.0, 100.5, 101.0, 101.5, 102.0, 102.5, 107.5, 112.5, 117.5]


def test_what_was_saved_while_nothing_was_asked_is_spent_again() -> None:
    pace = Pace(5.0)
    looks(pace, 0.0, 2.6)
    assert looks(pace, 12.5, 15.0) == [12.5, 13.0]
    assert len(looks(pace, 500.0, 502.6)) == BURST


@pytest.mark.parametrize("usual_s", [0.0, 0.1, SOON_S])
def test_who_asks_more_often_anyway_goes_on(usual_s: float) -> None:
    pace = Pace(usual_s)
    assert {pace.looked(float(now)) for now in range(50)} == {usual_s}


@given(st.lists(st.floats(0.0, 60.0), max_size=80), st.floats(0.6, 30.0))
def test_on_average_it_is_asked_no_more_than_before(pauses: list[float], usual_s: float) -> None:
    """Whatever pauses there are between tasks that end."""
    pace, now, count = Pace(usual_s), 0.0, 0
    for pause in pauses:
        now += max(pause, pace.looked(now))
        count += 1
    assert count <= BURST + 1 + now / usual_s

"""Waits grow, stay in their bounds, and are the same when asked twice."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.policy.backoff import backoff_s


@pytest.mark.parametrize(
    ("failures", "expected"),
    [(0, 0.0), (1, 5.0), (2, 10.0), (3, 20.0), (4, 40.0), (5, 60.0), (6, 60.0), (10_000, 60.0)],
)
def test_doubles_up_to_its_maximum(failures: int, expected: float) -> None:
    assert backoff_s(failures, 5.0, 60.0, jitter=0.0) == expected


@given(
    failures=st.integers(1, 10**6),
    initial=st.floats(0.001, 1e6),
    maximum=st.floats(0.001, 1e6),
    key=st.text(max_size=50),
    jitter=st.floats(0, 1),
)
def test_never_over_its_bound_and_never_less_than_the_jitter_allows(
    failures: int, initial: float, maximum: float, key: str, jitter: float
) -> None:
    bound = backoff_s(failures, initial, maximum, jitter=0.0)
    wait = backoff_s(failures, initial, maximum, key=key, jitter=jitter)
    assert bound <= maximum
    assert bound * (1 - jitter) - 1e-9 <= wait <= bound
    assert wait == backoff_s(failures, initial, maximum, key=key, jitter=jitter)


def test_a_herd_spreads() -> None:
    waits = sorted(backoff_s(1, 10.0, 60.0, key=f"swarm-replica-{index}-a1") for index in range(100))
    assert waits[0] < 8.3
    assert waits[-1] > 9.7
    assert max(later - earlier for earlier, later in itertools.pairwise(waits)) < 0.3


def test_no_wait_asked_for() -> None:
    assert backoff_s(3, 0.0, 60.0) == 0.0

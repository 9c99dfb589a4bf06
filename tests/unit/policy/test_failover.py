"""Which pool is asked next."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.policy.failover import Standing, is_pool_done, is_round_over, next_pool

ABC = ("a", "b", "c")
NOW = 10_000.0


def ask(pools: tuple[str, ...], standing: Standing, retry: int = 2) -> tuple[Standing, str]:
    return next_pool(pools, standing, NOW, retry_per_pool=retry, reset_to_preferred_s=3600)


@pytest.mark.parametrize(
    ("pools", "standing", "expected", "why"),
    [
        ((), Standing("old"), Standing(), ""),
        (ABC, Standing(), Standing("a"), "a is the preferred pool"),
        (ABC, Standing("gone", failures=5), Standing("a"), "a is the preferred pool"),
        (("a",), Standing("a", failures=9), Standing("a", failures=9), "a is the only pool"),
        (ABC, Standing("a", failures=1), Standing("a", failures=1), "a is the preferred pool"),
        (ABC, Standing("a", failures=2), Standing("b", left_at=NOW),
         "b comes after a, which was left after 2 failures"),
        (ABC, Standing("b", failures=2, left_at=9000.0), Standing("c", left_at=9000.0),
         "c comes after b, which was left after 2 failures"),
        (ABC, Standing("c", failures=2, left_at=9000.0), Standing("a"),
         "a comes after c, which was left after 2 failures"),
        (ABC, Standing("a", refusals=1), Standing("a", refusals=1), "a is the preferred pool"),
        (ABC, Standing("a", refusals=2), Standing("b", refusals=2, left_at=NOW),
         "b comes after a, which was left after 2 refused submissions"),
        (ABC, Standing("b", refusals=3, left_at=9000.0), Standing("b", refusals=3, left_at=9000.0),
         "b is still to be tried"),
        (ABC, Standing("b", left_at=NOW - 3600), Standing("a"), "back to the preferred pool a after 3600 s"),
        (ABC, Standing("b", left_at=NOW - 3599), Standing("b", left_at=NOW - 3599), "b is still to be tried"),
    ],
)  # fmt: skip
def test_the_next_pool(pools: tuple[str, ...], standing: Standing, expected: Standing, why: str) -> None:
    assert ask(pools, standing) == (expected, why)


def test_one_refusal_or_failure_is_named_as_one() -> None:
    assert ask(ABC, Standing("a", failures=1), retry=1)[1] == "b comes after a, which was left after a failure"
    assert (
        ask(ABC, Standing("a", refusals=1), retry=0)[1] == "b comes after a, which was left after a refused submission"
    )


@pytest.mark.parametrize(
    ("pools", "hedge", "rounds"),
    [((), False, [1, 2, 3]), (("a",), False, [1, 2, 3]), (ABC, False, [6, 12]), (ABC, True, [1, 2, 3])],
)
def test_when_every_pool_has_refused(pools: tuple[str, ...], hedge: bool, rounds: list[int]) -> None:
    over = [count for count in range(1, 13) if is_round_over(pools, count, retry_per_pool=2, hedge=hedge)]
    assert over[: len(rounds)] == rounds


@settings(deadline=None)
@given(pools=st.lists(st.sampled_from("abcdef"), min_size=2, unique=True), start=st.integers(0, 5),
       retry=st.integers(1, 4))  # fmt: skip
def test_refusals_from_anywhere_ask_every_pool_equally_often(pools: list[str], start: int, retry: int) -> None:
    standing = Standing(pools[start % len(pools)])
    asked = []
    for refusals in range(1, retry * len(pools) + 1):
        standing, _ = next_pool(pools, standing, NOW, retry_per_pool=retry, reset_to_preferred_s=0)
        asked.append(standing.pool)
        standing = Standing(standing.pool, refusals, standing.failures, standing.left_at)
        assert is_round_over(pools, refusals, retry_per_pool=retry) == (refusals == retry * len(pools))
        assert is_pool_done(refusals, retry_per_pool=retry) == (asked.count(standing.pool) == retry)
    assert {name: asked.count(name) for name in pools} == dict.fromkeys(pools, retry)


@settings(deadline=None)
@given(pools=st.lists(st.sampled_from("abcdef"), unique=True), pool=st.sampled_from(["", *"abcdefx"]),
       refusals=st.integers(0, 20), failures=st.integers(0, 9), left=st.floats(0, NOW), retry=st.integers(0, 4),
       reset=st.floats(0, 9999))  # fmt: skip
def test_the_chosen_pool_exists_and_only_the_preferred_was_never_left(
    pools: list[str], pool: str, refusals: int, failures: int, left: float, retry: int, reset: float
) -> None:
    standing, why = next_pool(
        pools, Standing(pool, refusals, failures, left), NOW, retry_per_pool=retry, reset_to_preferred_s=reset
    )
    assert standing.pool in (pools or [""])
    assert bool(why) == bool(pools)
    if not pools or standing.pool == pools[0]:
        assert standing.left_at == 0 or len(pools) == 0

"""Numbers out of Prometheus text."""

from __future__ import annotations

import pytest

from remuda.base.prometheus import PrometheusSample, chosen, parse, quantile, total


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("up 1", PrometheusSample("up", {}, 1.0)),
        ("up   1.5e3  1700000000000 ", PrometheusSample("up", {}, 1500.0)),
        ('a:b_total{x="1",y="two words"} 3', PrometheusSample("a:b_total", {"x": "1", "y": "two words"}, 3.0)),
        ('odd{path="/v1/{id}",q="a\\"}b"} 4', PrometheusSample("odd", {"path": "/v1/{id}", "q": 'a\\"}b'}, 4.0)),
        ("empty{} 5", PrometheusSample("empty", {}, 5.0)),
        ('late{le="+Inf"} +Inf', PrometheusSample("late", {"le": "+Inf"}, float("inf"))),
        ("# HELP up is it", None),
        ("# TYPE up gauge", None),
        ("", None),
        ("up", None),
        ("up one", None),
        ("up 1 2 3", None),
        ("9up 1", None),
        ('open{x="1" 3', None),
        ("shut} 3", None),
    ],
)
def test_one_line(line: str, expected: PrometheusSample | None) -> None:
    assert parse(line) == (() if expected is None else (expected,))


TEXT = """\
# HELP requests so many
requests{worker="a",ok="yes"} 3
requests{worker="b",ok="yes"} 4
requests{worker="b",ok="no"} 5
wait_bucket{le="0.1"} 50
wait_bucket{le="1"} 90
wait_bucket{le="+Inf"} 100
"""


def test_samples_are_chosen_by_name_and_labels() -> None:
    samples = parse(TEXT)
    assert total(samples, "requests") == 12
    assert total(samples, "requests", worker=frozenset({"b"})) == 9
    assert total(samples, "requests", worker=frozenset({"a", "b"}), ok=frozenset({"yes"})) == 7
    assert chosen(samples, "nothing") == []


@pytest.mark.parametrize(("share", "expected"), [(0.5, 0.1), (0.51, 1.0), (0.9, 1.0), (0.99, 1.0)])
def test_a_quantile_is_the_bound_of_its_bucket(share: float, expected: float) -> None:
    assert quantile(parse(TEXT), "wait", share) == expected


def test_no_samples_no_quantile() -> None:
    assert quantile((), "wait", 0.5) == 0.0

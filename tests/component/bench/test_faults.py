"""What goes wrong at an endpoint speaks against the point; what only looks odd does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.component.bench.conftest import point_of, words

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Home

    from remuda.testing.truth import Truth

    Start = Callable[..., Truth]

#: Probes and warm-up are spared.
AFTER = 12


def why(point: dict[str, Any]) -> list[str]:
    return [f"{one['code']} {one['state']}: {one['text']}" for one in point["checks"] if one["state"] != "ok"]


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param({}, id="undisturbed"),
        pytest.param({"role": 1}, id="the role comes first"),
        pytest.param({"pack": 4}, id="four tokens a piece"),
        pytest.param({"cache": 1}, id="a prefix cache"),
        pytest.param({"slots": 2}, id="others wait"),
        pytest.param({"close": 3}, id="kept connections are closed"),
        pytest.param({"hints": 3}, id="hints before the answer"),
    ],
)
def test_what_is_in_order_is_valid(shared_home: Home, truth: Start, flags: dict[str, float]) -> None:
    point = point_of(shared_home, words(truth(**flags).url))
    assert point["verdict"] == "valid", why(point)
    assert point["metrics"]["failed"] == 0
    assert (point["client"]["resent"] > 0) == ("close" in flags)
    assert point["changed"]


@pytest.mark.parametrize(
    ("flags", "code", "state"),
    [
        pytest.param({"fail": 0.2}, "V2", "invalid", id="500s"),
        pytest.param({"half": 0.2}, "V2", "invalid", id="half answers"),
        pytest.param({"error": 0.2}, "V2", "invalid", id="an error inside a stream"),
        pytest.param({"stall": 0.2}, "V2", "invalid", id="streams without an end"),
        pytest.param({"hints": 20, "after": 0}, "V2", "invalid", id="hints without an answer"),
        pytest.param({"empty": 0.2}, "V1", "invalid", id="no token"),
        pytest.param({"cut": 0.2}, "V3", "invalid", id="fewer tokens"),
        pytest.param({"usage": 0}, "V5", "invalid", id="no usage"),
        pytest.param({"usage": 1.5}, "V5", "invalid", id="usage counts too many"),
        pytest.param({"usage": 0.5}, "V5", "invalid", id="usage counts too few"),
        pytest.param({"tenant": 5000}, "V5", "invalid", id="somebody else"),
    ],
)
def test_faults_speak_against_a_point(
    shared_home: Home, truth: Start, flags: dict[str, float], code: str, state: str
) -> None:
    point = point_of(shared_home, words(truth(**{"after": AFTER, **flags}).url))
    assert point["states"][code] == state, why(point)
    assert point["verdict"] == "invalid"

"""DiLoCo over a store is the same algorithm as DiLoCo in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.unit.gang.copies import new_url, store, together

from remuda.base.errors import InputError
from remuda.gang import DiLoCo
from remuda.gang.models import parameters_of
from remuda.gang.outer import Momentum

if TYPE_CHECKING:
    from numpy.typing import NDArray

RANKS, ROUNDS, STEPS = 4, 20, 5
RNG = np.random.default_rng(7)
TRUTH = RNG.standard_normal((30, 20))
INPUTS = [RNG.standard_normal((64, 30)).astype(np.float32) for _ in range(RANKS)]
TARGETS = [(x @ TRUTH + RNG.standard_normal((64, 20)) * 0.1).astype(np.float32) for x in INPUTS]


def new_model() -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(1)
    return {"weight": rng.standard_normal((30, 20)).astype(np.float32), "bias": np.zeros(20, np.float32)}


def train_a_step(model: dict[str, NDArray[np.float32]], rank: int) -> None:
    error = INPUTS[rank] @ model["weight"] + model["bias"] - TARGETS[rank]
    model["weight"] -= 0.02 * INPUTS[rank].T @ error / 64
    model["bias"] -= 0.02 * error.mean(axis=0)


def loss(model: dict[str, NDArray[np.float32]]) -> float:
    errors = [x @ model["weight"] + model["bias"] - y for x, y in zip(INPUTS, TARGETS, strict=True)]
    return float(np.mean([np.mean(error**2) for error in errors]))


def in_one_process() -> dict[str, NDArray[np.float32]]:
    """The same algorithm, written out plainly in float64 sums."""
    shared, velocity = new_model(), {name: np.zeros(array.shape) for name, array in new_model().items()}
    for _ in range(ROUNDS):
        local = [{name: array.copy() for name, array in shared.items()} for _ in range(RANKS)]
        for rank, model in enumerate(local):
            for _ in range(STEPS):
                train_a_step(model, rank)
        for name, array in shared.items():
            slope = np.mean([array.astype(np.float64) - model[name] for model in local], axis=0)
            velocity[name] = 0.9 * velocity[name] + slope
            array -= (0.7 * (slope + 0.9 * velocity[name])).astype(np.float32)
    return shared


def over_a_store(codec: str, **options: Any) -> list[dict[str, NDArray[np.float32]]]:
    url = new_url()

    def copy(rank: int) -> dict[str, NDArray[np.float32]]:
        model = new_model()
        with DiLoCo(model, None, store(url, rank, RANKS, codec=codec, **options), sync_every=STEPS) as diloco:
            while diloco.steps < ROUNDS * STEPS:
                train_a_step(model, rank)
                diloco.step()
        return model

    return together(copy, RANKS)


def test_float32_is_the_same_to_a_hundred_thousandth() -> None:
    alone, copies = in_one_process(), over_a_store("fp32")
    for name, array in alone.items():
        np.testing.assert_allclose(copies[0][name], array, atol=1e-5)
        assert all(np.array_equal(copies[0][name], model[name]) for model in copies)


@pytest.mark.parametrize("codec", ["int8", "bf16"])
def test_quantised_learns_as_much(codec: str) -> None:
    alone, copies = in_one_process(), over_a_store(codec)
    assert loss(copies[0]) == pytest.approx(loss(alone), rel=0.02)
    assert loss(new_model()) > 10 * loss(alone)
    assert all(np.array_equal(copies[0]["weight"], model["weight"]) for model in copies)


def test_copies_that_begin_apart_begin_from_one_of_them() -> None:
    url = new_url()

    def copy(rank: int) -> Any:
        model = [np.full(600, float(rank))]
        DiLoCo(model, None, store(url, rank, 3), sync_every=5).start()
        return model[0]

    first = together(copy, 3)
    assert [np.unique(array).tolist() for array in first] == [[0.0]] * 3


def test_one_that_comes_back_goes_on_from_the_last_round() -> None:
    url = new_url()

    def copy(rank: int) -> Any:
        model = [np.zeros(300, np.float32)]
        diloco = DiLoCo(model, None, store(url, rank, 2, state_every=3), sync_every=1)
        while diloco.steps < 8:
            model[0] += rank + 1
            diloco.step()
        return model[0]

    first, second = together(copy, 2)
    assert np.array_equal(first, second)
    model = [np.ones(300, np.float32)]
    back = DiLoCo(model, None, store(url, 1, 2, state_every=3), sync_every=1)
    back.start()
    assert back.steps == 8
    assert np.array_equal(model[0], first)
    assert back.store.counts.gets < 40


def test_momentum_is_that_of_torch() -> None:
    """v ← μv + g; θ ← θ - lr(g + μv), written out for two steps."""
    theta, optimizer = np.array([1.0, -2.0], np.float32), Momentum(0.7, 0.9)
    optimizer.step(theta, np.array([0.5, 1.0], np.float32))
    np.testing.assert_allclose(theta, [1 - 0.7 * 0.95, -2 - 0.7 * 1.9], rtol=1e-6)
    optimizer.step(theta, np.array([0.1, 0.0], np.float32))
    velocity = [0.9 * 0.5 + 0.1, 0.9 * 1.0]
    expected = [0.335 - 0.7 * (0.1 + 0.9 * velocity[0]), -3.33 - 0.7 * 0.9 * velocity[1]]
    np.testing.assert_allclose(theta, expected, rtol=1e-6)


def test_what_is_no_model_is_refused() -> None:
    for model in (3, {"a": np.zeros(3, np.int64)}, ["text"]):
        with pytest.raises(InputError):
            parameters_of(model)
    with pytest.raises(InputError, match="sync_every"):
        DiLoCo([np.zeros(3)], None, store(new_url(), 0, 1), sync_every=0)


def test_a_parameter_that_is_not_finite_is_named() -> None:
    model = {"first": np.zeros(4), "second": np.zeros((2, 3))}
    diloco = DiLoCo(model, None, store(new_url(), 0, 1), sync_every=1)
    diloco.start()
    model["second"][1, 2] = np.nan
    with pytest.raises(InputError, match=r"second\[1, 2\] is nan"):
        diloco.step()
    model["second"][1, 2] = 1.0
    diloco.step()
    assert diloco.steps == 1

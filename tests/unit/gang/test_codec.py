"""What codecs lose is bounded, and what they cannot carry is refused."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.base.errors import InputError
from remuda.gang.objects import codec
from remuda.gang.objects.layout import Layout, bounds, of_vector, refuse_non_finite


def through(name: str, values: Any) -> Any:
    raw = np.empty(codec.size(name, len(values)), np.uint8)
    codec.encode(name, values, raw)
    out = np.empty(len(values), np.float32)
    for place, piece in codec.decoded(name, raw, len(values)):
        out[place] = piece
    return out


VECTORS = st.builds(
    lambda seed, count, largest, zeros: (
        np.random.default_rng(seed).uniform(-largest, largest, count) * (np.arange(count) % zeros > 0)
    ).astype(np.float32),
    st.integers(0, 99), st.integers(0, 1200), st.floats(1e-12, 1e4), st.integers(1, 5),
)  # fmt: skip


@settings(max_examples=100)
@given(VECTORS)
def test_int8_errs_by_half_a_step_of_its_block(values: Any) -> None:
    back = through("int8", values)
    for start in range(0, len(values), codec.BLOCK):
        block = slice(start, start + codec.BLOCK)
        largest = float(np.abs(values[block]).max(initial=0.0))
        # Half a step, whose scale may be rounded up by one part in 128.
        assert np.abs(back[block] - values[block]).max(initial=0.0) <= largest / 127 / 2 * 1.009 + 1e-37
        assert not np.any(back[block][values[block] == 0])


@settings(max_examples=100)
@given(VECTORS)
def test_bf16_errs_by_a_256th_and_fp32_by_nothing(values: Any) -> None:
    assert np.all(np.abs(through("bf16", values) - values) <= np.abs(values) / 256)
    assert np.array_equal(through("fp32", values), values)


def test_bf16_does_not_become_infinite() -> None:
    values = np.array([np.finfo(np.float32).max, -np.finfo(np.float32).max], np.float32)
    assert np.all(np.isfinite(through("bf16", values)))


def test_pieces_meet() -> None:
    values = np.random.default_rng(0).standard_normal(codec.PIECE * 2 + 77).astype(np.float32)
    assert np.array_equal(through("fp32", values), values)
    halves = [through("int8", values[: codec.PIECE]), through("int8", values[codec.PIECE :])]
    assert np.array_equal(through("int8", values), np.concatenate(halves))


@pytest.mark.parametrize(
    ("name", "digest"),
    [("fp32", "579d356329322c05"), ("bf16", "5f414abca773c879"), ("int8", "fb4769d0371e4340")],
)
def test_bytes_on_the_wire_stay_what_they_were(name: str, digest: str) -> None:
    """The format is written down, and workers of two versions may meet in a run."""
    mixed = np.arange(3 * codec.PIECE + 77, dtype=np.uint64) * 2654435761 % 2**32
    values = (mixed.astype(np.float64) / 2**20 - 2048).astype(np.float32)
    values[: 4 * codec.BLOCK] *= np.float32(1e-6)
    values[1000:1300] = 0
    raw = np.empty(codec.size(name, len(values)), np.uint8)
    codec.encode(name, values, raw)
    assert hashlib.sha256(raw.tobytes()).hexdigest()[:16] == digest


def test_error_feedback_makes_the_sum_of_many_rounds_right() -> None:
    value = np.random.default_rng(3).standard_normal(512).astype(np.float32)
    total, residual = np.zeros(512), np.zeros(512, np.float32)
    for _ in range(30):
        residual += value
        sent = through("int8", residual)
        residual -= sent
        total += sent
    plain = 30 * through("int8", value)
    assert np.abs(total - 30 * value).max() < np.abs(plain - 30 * value).max() / 5


@given(st.integers(0, 5000), st.integers(1, 9))
def test_shards_cover_the_vector_in_whole_blocks(elements: int, shards: int) -> None:
    cut = bounds(elements, shards)
    assert len(cut) == shards
    assert cut[0][0] == 0
    assert cut[-1][1] == elements
    assert all(before[1] == after[0] for before, after in pairwise(cut))
    assert all(start % codec.BLOCK == 0 or start == elements for start, _ in cut)


def test_what_is_not_finite_is_named() -> None:
    layout = Layout((("w", (2, 3)), ("scale", ()), ("b", (2,))))
    vector = np.zeros(layout.elements, np.float32)
    refuse_non_finite(vector, layout, "the update")
    for at, name in ((4, r"w\[1, 1\]"), (6, r"scale"), (8, r"b\[1\]")):
        vector[:] = 0
        vector[at] = np.inf
        with pytest.raises(InputError, match=name):
            refuse_non_finite(vector, layout, "the update")


def test_a_layout_is_known_by_names_shapes_and_order() -> None:
    one, other = (("a", (2,)), ("b", (3,))), (("b", (3,)), ("a", (2,)))
    assert Layout(one).digest == Layout(one).digest
    assert len({Layout(one).digest, Layout(other).digest, of_vector(5).digest}) == 3


def test_unknown_codecs_are_refused() -> None:
    with pytest.raises(InputError, match="int4"):
        codec.check("int4")

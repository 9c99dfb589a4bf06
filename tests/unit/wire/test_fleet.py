"""What nodes and their head say: read from strangers, so never trusted to have a shape."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.wire.fleet import Beat, Joined, Joining, Leaving, Levels, to_json, told

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=600),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize("kind", [Joining, Joined, Beat, Levels, Leaving])
def test_what_is_said_is_heard(kind: Any) -> None:
    assert told(kind, to_json(kind())) == kind()


def test_words_of_newer_versions_are_left_out() -> None:
    assert told(Beat, '{"at": 2, "hats": 3}') == Beat(at=2)


@pytest.mark.parametrize(
    "said",
    ["", "[]", "3", '{"name": 3}', '{"uid": true}', '{"uid": "0"}', '{"at": "now"}', f'{{"name": "{"n" * 600}"}}'],
)
def test_another_shape_is_refused(said: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        told(Joining, said)


def test_lists_are_bounded() -> None:
    for problems in (["p"] * 100, ["p" * 1000], [3], [["p"]]):
        with pytest.raises(ValueError, match="problems"):
            told(Beat, json.dumps({"problems": problems}))


@given(st.dictionaries(st.sampled_from(["name", "key", "uid", "at", "cpus", "gpus"]), ANYTHING))
def test_anything_is_read_or_refused(data: dict[str, Any]) -> None:
    try:
        found = told(Joining, json.dumps(data))
    except ValueError:
        return
    assert isinstance(found.name, str)
    assert isinstance(found.uid, int)

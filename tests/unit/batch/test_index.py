"""Tables on disk against their model in memory."""

from __future__ import annotations

import pytest  # noqa: TC002 - hypothesis reads the annotations
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.batch.output.index import IdTable, OffsetIndex, digest_id


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 3_000_000), st.integers(0, 1 << 61), st.booleans(), st.integers(0, (1 << 64) - 1)),
        min_size=1,
        max_size=400,
    )
)
def test_offset_index_is_a_dict(
    tmp_path_factory: pytest.TempPathFactory, puts: list[tuple[int, int, bool, int]]
) -> None:
    index = OffsetIndex(tmp_path_factory.mktemp("index"))
    model: dict[int, tuple[int, bool, int]] = {}
    for position, number, flag, tag in puts:
        index.put(position, number, flag=flag, tag=tag)
        model[position] = (number, flag, tag)
        assert index.get(position + 1) == model.get(position + 1)
    assert {position: index.get(position) for position in model} == model
    index.close()


@settings(deadline=None)
@given(st.lists(st.one_of(st.integers(), st.text(max_size=5)), max_size=200))
def test_id_table_is_a_dict(tmp_path_factory: pytest.TempPathFactory, ids: list[int | str]) -> None:
    table = IdTable(tmp_path_factory.mktemp("ids"), len(ids))
    model: dict[int | str, int] = {}
    for position, value in enumerate(ids):
        assert table.add(digest_id(value), position) == model.setdefault(value, position)
    assert all(table.position(digest_id(value)) == position for value, position in model.items())
    assert table.position(digest_id("not there at all")) == -1
    table.close()


def test_text_and_number_are_different_ids() -> None:
    assert digest_id(1) != digest_id("1")

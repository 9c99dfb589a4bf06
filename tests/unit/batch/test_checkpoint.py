"""Records come back by position, whatever the order in which rows finished; the newest counts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.batch.output.checkpoint import Checkpoint, encode_answer, encode_error
from remuda.batch.output.index import IdTable, digest_id
from remuda.batch.pipeline.answer import RowAnswer


def write(checkpoint: Checkpoint, position: int, value: object, *, error: str = "", key: bytes = b"") -> None:
    body = encode_error(error) if error else encode_answer(RowAnswer([value], 1, 2, "stop"))
    checkpoint.write(position, key or position.to_bytes(8, "little") + bytes(8), body, failed=bool(error))


@settings(deadline=None)
@given(order=st.permutations(range(40)), cut=st.integers(0, 40))
def test_order_is_restored(tmp_path_factory: pytest.TempPathFactory, order: list[int], cut: int) -> None:
    folder = tmp_path_factory.mktemp("checkpoint")
    first = Checkpoint(folder, ids=None, keep=True)
    for position in order[:cut]:
        write(first, position, f"answer {position}")
    first.flush()
    first.close()
    again = Checkpoint(folder, ids=None, keep=True)
    assert again.done == cut
    assert {position for position in range(40) if again.state(position)} == set(order[:cut])
    for position in order[cut:]:
        write(again, position, f"answer {position}")
    found = again.read(0, 40)
    assert [record and record[0] for record in found] == [[f"answer {position}"] for position in range(40)]
    again.close()


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=40))
def test_newest_record_counts(tmp_path_factory: pytest.TempPathFactory, writes: list[tuple[int, bool]]) -> None:
    folder = tmp_path_factory.mktemp("checkpoint")
    checkpoint = Checkpoint(folder, ids=None, keep=True)
    model: dict[int, bool] = {}
    for position, failed in writes:
        write(checkpoint, position, position, error="no" if failed else "")
        model[position] = failed
    checkpoint.flush()
    for opened in (checkpoint, Checkpoint(folder, ids=None, keep=True)):
        assert {n: opened.state(n) for n in range(6)} == {
            n: ("error" if model[n] else "done") if n in model else "" for n in range(6)
        }
        assert (opened.done, opened.errors) == (len(model), sum(model.values()))
        opened.close()


def test_records_of_ids_that_are_gone_are_passed_over(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("checkpoint")

    def open_with(*names: str) -> Checkpoint:
        table = IdTable(folder, len(names))
        for position, name in enumerate(names):
            table.add(digest_id(name), position)
        return Checkpoint(folder, ids=table, keep=True)

    checkpoint = open_with("a", "b")
    for position, name in enumerate("ab"):
        write(checkpoint, position, name, key=digest_id(name) + b"content.")
    checkpoint.flush()
    checkpoint.close()
    other = open_with("c", "b")
    assert [other.state(0), other.state(1)] == ["", "done"]
    assert other.same_input(1, b"content.")
    assert not other.same_input(1, b"changed.")
    other.close()


def test_what_is_no_data_is_refused() -> None:
    with pytest.raises(TypeError):
        encode_answer(RowAnswer([object()]))


def test_an_empty_answer_is_no_error(tmp_path_factory: pytest.TempPathFactory) -> None:
    checkpoint = Checkpoint(tmp_path_factory.mktemp("checkpoint"), ids=None, keep=True)
    checkpoint.write(0, bytes(16), encode_answer(RowAnswer([])), failed=False)
    checkpoint.flush()
    assert list(checkpoint.outputs()) == [[]]
    checkpoint.close()

"""Who may wait before the key."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from remuda.wire.gate import Gate, Limits

FEW = Limits(number=3, seconds=10.0, bytes=100)


def test_the_address_that_has_most_pays_for_the_next() -> None:
    gate: Gate[str] = Gate(FEW)
    assert [gate.admit(who, where, 0.0) for who, where in (("n", "node"), ("a", "evil"), ("b", "evil"))] == [None] * 3
    assert gate.admit("c", "evil", 0.0) == "a"
    assert gate.admit("m", "other", 0.0) == "b"
    assert gate.everybody() == ["n", "c", "m"]


def test_of_as_many_the_oldest_goes() -> None:
    gate: Gate[str] = Gate(FEW)
    assert [gate.admit(who, who, 0.0) for who in "abcd"] == [None, None, None, "a"]


def test_seconds() -> None:
    gate: Gate[str] = Gate(FEW)
    assert gate.due() == float("inf")
    gate.admit("a", "x", 5.0)
    gate.admit("b", "x", 7.0)
    assert gate.due() == 15.0
    assert gate.overdue(14.9) == []
    assert gate.overdue(15.0) == ["a"]
    gate.leave("a")
    assert gate.due() == 17.0
    assert len(gate) == 1


def test_bytes() -> None:
    gate: Gate[str] = Gate(FEW)
    gate.admit("a", "x", 0.0)
    assert [gate.hears("a", 60), gate.hears("a", 40), gate.hears("a", 1)] == [True, True, False]
    gate.leave("a")
    assert not gate.hears("a", 0)


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans())))
def test_never_more_than_its_number(comers: list[tuple[int, bool]]) -> None:
    """And nobody who is alone at an address goes while another address has two."""
    gate: Gate[int] = Gate(FEW)
    where: dict[int, int] = {}
    for who, (address, leaves) in enumerate(comers):
        where[who] = address
        waiting = [where[one] for one in gate.everybody()] + [address]
        victim = gate.admit(who, str(address), float(who))
        if victim is not None:
            assert waiting.count(where[victim]) == max(waiting.count(one) for one in waiting)
        assert len(gate) <= FEW.number
        if leaves:
            gate.leave(who)


def test_one_that_comes_again_is_one() -> None:
    gate: Gate[str] = Gate(FEW)
    for _ in range(5):
        assert gate.admit("a", "x", 0.0) is None
    assert len(gate) == 1
    assert [gate.push_out(), gate.push_out()] == ["a", None]
    assert gate.admit("b", "x", 0.0) is None

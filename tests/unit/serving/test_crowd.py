"""Who goes for others."""

from __future__ import annotations

from dataclasses import dataclass

from remuda.serving.relay.admission import REST_S, TELL_S, Crowd
from remuda.wire.gate import Limits


@dataclass(eq=False)
class Guest:
    name: str
    owes: bool = True
    reads: bool = False
    is_busy: bool = False


def crowd() -> Crowd[Guest]:
    return Crowd(Limits(number=2, seconds=20.0, bytes=0))


def test_strangers_are_so_many() -> None:
    a, b, c = Guest("a"), Guest("b"), Guest("c")
    some = crowd()
    assert [some.comes(who, "x", 0.0) for who in (a, b, c)] == [None, None, a]
    assert [some.stranger(), some.stranger(), some.stranger()] == [b, c, None]


def test_half_a_head_makes_no_stranger_known() -> None:
    some, a = crowd(), Guest("a")
    some.comes(a, "x", 0.0)
    some.tells(a, 19.0)
    assert some.overdue(20.0) == [a]
    assert some.longest(20.0) is None


def test_of_all_others_the_longest_idle_goes() -> None:
    some, a, b, c = crowd(), Guest("a"), Guest("b"), Guest("c")
    some.rests(a, 1.0)
    some.tells(b, 2.0)
    some.rests(c, 3.0)
    some.rests(a, 4.0)
    assert [some.longest(5.0) for _ in range(4)] == [b, c, a, None]


def test_who_gets_its_answer_already_is_not_idle() -> None:
    some, a = crowd(), Guest("a")
    some.tells(a, 0.0)
    a.owes, a.is_busy = False, True
    assert some.overdue(1e9) == []
    assert some.longest(1e9) is None


def test_one_that_is_busy_again_does_not_go() -> None:
    some, a, b, c = crowd(), Guest("a", owes=False), Guest("b", owes=False), Guest("c", owes=False)
    for since, who in enumerate((a, b, c)):
        some.rests(who, float(since))
    a.is_busy = b.is_busy = True
    assert some.overdue(1e9) == [c]
    assert [some.longest(3.0), some.longest(3.0)] == [c, None]
    b.is_busy = False
    some.rests(b, 4.0)
    assert some.longest(5.0) is b


def test_who_still_reads_goes_last() -> None:
    some, slow, a = crowd(), Guest("slow", reads=True), Guest("a")
    some.rests(slow, 0.0)
    some.rests(a, 1.0)
    assert [some.longest(2.0), some.longest(2.0), some.longest(2.0)] == [a, slow, None]


def test_each_has_its_time() -> None:
    some, a, b = crowd(), Guest("a"), Guest("b")
    some.rests(a, 0.0)
    some.tells(b, 0.0)
    assert some.overdue(TELL_S - 1) == []
    assert some.overdue(TELL_S) == [b]
    some.leaves(b)
    assert some.overdue(REST_S) == [a]
    some.leaves(a)
    assert some.overdue(1e9) == []

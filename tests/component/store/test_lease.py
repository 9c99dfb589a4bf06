"""One holder at a time; numbers that only rise."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from remuda.base.errors import Fenced
from remuda.store.engine import open_store
from remuda.store.lease import Held, Lease, acquire, holder, last_held, release, renew
from remuda.wire.process import ProcessId, identify

if TYPE_CHECKING:
    from remuda.store.database import Store

PROGRAMS = Path(__file__).parent / "programs"
ME = identify(os.getpid())
ELSEWHERE = ProcessId(pid=7, start="100", boot="another-boot", node="another-node")
DEAD = replace(ME, pid=ME.pid, start="1")  # the pid lives, but was somebody else then


def test_a_free_lease_is_taken_with_the_next_number(store: Store) -> None:
    assert holder(store) is None
    lease = acquire(store, ME, ttl_s=10, now=100.0)
    assert lease == Lease(fence=1, owner=ME, expires_at=110.0)
    assert holder(store) == Held(owner=ME, fence=1, expires_at=110.0, renewed_at=100.0)


def test_a_held_lease_says_who_has_it(store: Store) -> None:
    acquire(store, ELSEWHERE, ttl_s=10, now=100.0)
    answer = acquire(store, ME, ttl_s=10, now=109.9)
    assert isinstance(answer, Held)
    assert str(answer) == "pid 7 on another-node"


def test_an_expired_lease_is_taken_over(store: Store) -> None:
    old = acquire(store, ELSEWHERE, ttl_s=10, now=100.0)
    new = acquire(store, ME, ttl_s=10, now=110.0)
    assert isinstance(old, Lease)
    assert isinstance(new, Lease)
    assert new.fence == old.fence + 1
    with pytest.raises(Fenced, match="lease 2 is in force now"):
        renew(store, old, ttl_s=10, now=110.0)
    release(store, old, 111.0)
    assert holder(store) == Held(owner=ME, fence=2, expires_at=120.0, renewed_at=110.0)


def test_one_that_was_noted_by_a_clock_that_was_set_back_is_cut(store: Store) -> None:
    """A holder that lives prolongs it again; of one that does not, nobody waits for a day."""
    lease = acquire(store, ELSEWHERE, ttl_s=10, now=86_500.0)
    assert isinstance(lease, Lease)
    assert isinstance(acquire(store, ME, ttl_s=10, now=100.0), Held)
    renew(store, lease, ttl_s=10, now=86_505.0)
    assert isinstance(acquire(store, ME, ttl_s=10, now=111.0), Held)
    assert isinstance(acquire(store, ME, ttl_s=10, now=120.0), Held)
    assert isinstance(acquire(store, ME, ttl_s=10, now=121.0), Lease)


@pytest.mark.parametrize(
    ("owner", "taken"),
    [
        pytest.param(DEAD, True, id="dead here"),
        pytest.param(ME, False, id="alive here"),
        pytest.param(replace(DEAD, node="another-node"), False, id="same boot id, other name"),
        pytest.param(replace(DEAD, boot="earlier"), False, id="same name, other boot: perhaps another machine"),
        pytest.param(ELSEWHERE, False, id="elsewhere"),
    ],
)
def test_only_a_dead_process_of_this_machine_loses_it_at_once(store: Store, owner: ProcessId, taken: bool) -> None:
    acquire(store, owner, ttl_s=10, now=100.0)
    assert isinstance(acquire(store, ME, ttl_s=10, now=100.0), Lease) is taken


def test_renewing_prolongs_even_late_while_nobody_else_came(store: Store) -> None:
    lease = acquire(store, ME, ttl_s=10, now=100.0)
    assert isinstance(lease, Lease)
    later = renew(store, lease, ttl_s=10, now=150.0)
    assert later == replace(lease, expires_at=160.0)
    assert holder(store) == Held(owner=ME, fence=1, expires_at=160.0, renewed_at=150.0)


def test_a_released_lease_is_free_at_once_and_its_number_is_dead(store: Store) -> None:
    lease = acquire(store, ME, ttl_s=10, now=100.0)
    assert isinstance(lease, Lease)
    release(store, lease, 107.0)
    assert (holder(store), last_held(store)) == (None, 107.0)
    with pytest.raises(Fenced, match="of nobody"):
        store.record(lease.fence)
    again = acquire(store, ELSEWHERE, ttl_s=10, now=100.0)
    assert isinstance(again, Lease)
    assert again.fence == 2


class Contenders(RuleBasedStateMachine):
    """Two processes of this machine, a third elsewhere, in any order of doing, dying and waiting."""

    names = ("a", "b", "c")

    folder: Path

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.store = open_store(self.folder / "lease.db")
        with self.store.changing() as connection:
            connection.exec_driver_sql("UPDATE lease SET owner = '', fence = 0, expires_at = 0")
        self.process = {name: replace(ME, pid=index, start="1") for index, name in enumerate(self.names)}
        self.process["c"] = ELSEWHERE
        self.leases: dict[str, Lease] = {}
        self.numbers: list[int] = []

    def _alive(self, process: ProcessId) -> bool:
        return process in self.process.values()

    @rule(name=st.sampled_from(names), ttl=st.floats(0.5, 20))
    def take(self, name: str, ttl: float) -> None:
        if name in self.leases:
            return
        answer = acquire(self.store, self.process[name], ttl, self.now, alive=self._alive)
        if isinstance(answer, Lease):
            self.numbers.append(answer.fence)
            self.leases[name] = answer

    @rule(name=st.sampled_from(names), ttl=st.floats(0.5, 20))
    def prolong(self, name: str, ttl: float) -> None:
        if name not in self.leases:
            return
        try:
            self.leases[name] = renew(self.store, self.leases[name], ttl, self.now)
        except Fenced:
            del self.leases[name]

    @rule(name=st.sampled_from(names))
    def give_back(self, name: str) -> None:
        if name in self.leases:
            release(self.store, self.leases.pop(name), self.now)

    @rule(name=st.sampled_from(names))
    def die(self, name: str) -> None:
        self.leases.pop(name, None)
        old = self.process[name]
        self.process[name] = replace(old, start=str(int(old.start) + 1))

    @rule(seconds=st.floats(0.1, 30))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def at_most_one_is_certain_to_hold(self) -> None:
        certain = [name for name, lease in self.leases.items() if self.now < lease.expires_at]
        assert len(certain) <= 1

    @invariant()
    def at_most_one_can_write(self) -> None:
        able = []
        for name, lease in self.leases.items():
            try:
                self.store.set_meta(lease.fence, "x", name)
            except Fenced:
                continue
            able.append(name)
        assert len(able) <= 1

    @invariant()
    def numbers_rise(self) -> None:
        assert self.numbers == sorted(set(self.numbers))

    def teardown(self) -> None:
        self.store.close()


def test_contenders_never_hold_together(tmp_path: Path) -> None:
    class Here(Contenders):
        folder = tmp_path

    run_state_machine_as_test(Here, settings=settings(max_examples=40, stateful_step_count=25, deadline=None))


@pytest.mark.real
def test_two_processes_race_and_never_hold_together(where: str) -> None:
    open_store(where).close()
    command = [sys.executable, str(PROGRAMS / "contender.py"), where, "50"]
    racers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [racer.communicate(timeout=300)[0] for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0]
    words = [line.split() for line in "".join(outputs).splitlines()]
    turns = sorted((int(fence), float(begin), float(end)) for fence, begin, end in words)
    assert [turn[0] for turn in turns] == list(range(1, 101))
    for (_, _, end), (_, begin, _) in pairwise(turns):
        assert end <= begin


@pytest.mark.real
def test_the_lease_of_a_killed_process_is_free_at_once(where: str) -> None:
    command = [sys.executable, str(PROGRAMS / "holder.py"), where]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        with open_store(where) as store:
            assert isinstance(acquire(store, ME, ttl_s=10, now=0.0), Held)
            process.kill()
            process.wait()
            assert isinstance(acquire(store, ME, ttl_s=10, now=0.0), Lease)

"""Whose an allocation is, as a table; and nothing of another home that is there is ever called an orphan."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.backends.base import Life, Stray
from remuda.client.upkeep.doctor import DoctorCheck, Examination, to_clean
from remuda.client.upkeep.owners import Claimed, Home, judge

HERE = "/home/me/.remuda"
TOKEN = "herd.replica.0.2.k3f9a1xq"
STRAY = Stray(TOKEN, "12", Life.RUNNING, "RUNNING", "n1", 0.0, HERE)
WANTED = Home(HERE, host="pid 1 on login1", workloads={"herd": ("k3f9a1xq", True)}, tokens={TOKEN: True})
DOWN = replace(WANTED, workloads={"herd": ("k3f9a1xq", False)})


@pytest.mark.parametrize(
    ("home", "verdict", "sentence"),
    [
        pytest.param(WANTED, Claimed.WANTED, "herd is wanted", id="wanted"),
        pytest.param(replace(WANTED, host=""), Claimed.WANTED, "herd is wanted", id="wanted, no host"),
        pytest.param(DOWN, Claimed.ENDING, "herd goes down, and the host ends it", id="going down"),
        pytest.param(replace(DOWN, host=""), Claimed.ORPHAN, "herd is down", id="down, and no host ends it"),
        pytest.param(replace(DOWN, tokens={TOKEN: False}), Claimed.ORPHAN, "herd is down", id="down"),
        pytest.param(replace(WANTED, workloads={}), Claimed.ORPHAN, "there is no workload 'herd' any more", id="gone"),
        pytest.param(
            replace(WANTED, workloads={"herd": ("zzzzzzzz", True)}), Claimed.ORPHAN,
            "it is of an earlier 'herd'; the one of that name now is another", id="another of that name",
        ),
        pytest.param(
            replace(WANTED, tokens={}), Claimed.ORPHAN, "it is an earlier attempt (2) of replica/0", id="an old attempt"
        ),
        pytest.param(
            replace(WANTED, tokens={TOKEN: False}), Claimed.ORPHAN,
            "replica/0 of herd has ended, as far as the record goes", id="thought to have ended",
        ),
        pytest.param(
            replace(WANTED, workloads=None), Claimed.UNKNOWN,
            "the database of this state directory cannot be read, so whether it is wanted is unknown",
            id="no database",
        ),
    ],
)  # fmt: skip
def test_from_this_home(home: Home, verdict: Claimed, sentence: str) -> None:
    found = judge(STRAY, "slurm", home, {})
    assert (found.verdict, found.sentence) == (verdict, sentence)
    if verdict is Claimed.ORPHAN:
        assert found.todo == "remuda doctor --clean, or scancel 12"


@pytest.mark.parametrize(
    ("other", "verdict", "sentence", "todo"),
    [
        pytest.param(
            Home("/h/b", host="pid 7 on login2"), Claimed.ELSEWHERE,
            "it belongs to the state directory /h/b, whose host runs (pid 7 on login2)", "", id="its host runs",
        ),
        pytest.param(
            Home("/h/b"), Claimed.ELSEWHERE, "it belongs to the state directory /h/b, of which no host runs",
            "look from there: REMUDA_HOME=/h/b remuda doctor", id="no host",
        ),
        pytest.param(
            Home("/h/b", exists=False), Claimed.HOMELESS,
            "its state directory /h/b is not there any more, at least not on this machine",
            "remuda doctor --clean --gone-homes, or kill 5 6", id="gone",
        ),
        pytest.param(
            None, Claimed.UNKNOWN, "its state directory /h/b could not be looked at",
            "look from there: REMUDA_HOME=/h/b remuda doctor", id="not looked at",
        ),
    ],
)  # fmt: skip
def test_from_another_home(other: Home | None, verdict: Claimed, sentence: str, todo: str) -> None:
    stray = replace(STRAY, home="/h/b", native="5,6")
    found = judge(stray, "local", WANTED, {"/h/b": other} if other else {})
    assert (found.verdict, found.sentence, found.todo) == (verdict, sentence, todo)


def test_from_nobody_knows_where() -> None:
    found = judge(replace(STRAY, home=""), "slurm", WANTED, {})
    assert found.verdict is Claimed.UNKNOWN
    assert found.todo == "scancel 12"


HOMES = st.builds(
    Home, st.just(HERE), st.booleans(), st.sampled_from(["", "pid 1 on a"]),
    st.none()
    | st.dictionaries(st.sampled_from(["herd", "x"]), st.tuples(st.sampled_from(["k3f9a1xq", "u"]), st.booleans())),
    st.none() | st.dictionaries(st.sampled_from([TOKEN, "y"]), st.booleans()),
)  # fmt: skip


@given(HOMES, st.sampled_from([HERE, "/h/b", "/h/c", ""]), st.booleans(), st.booleans(), st.booleans())
def test_clean_ends_nothing_that_is_wanted_or_lives_elsewhere(
    here: Home, home: str, exists: bool, has_host: bool, gone_homes: bool
) -> None:
    others = {"/h/b": Home("/h/b", exists=exists, host="pid 1 on b" if has_host and exists else "")}
    found = judge(replace(STRAY, home=home), "slurm", here, others)
    ended = to_clean(Examination((), (found,)), gone_homes=gone_homes)
    if ended:
        assert home == HERE or (gone_homes and home == "/h/b" and not exists)
        wanted = (here.workloads or {}).get("herd") == ("k3f9a1xq", True) and (here.tokens or {}).get(TOKEN)
        assert home != HERE or not wanted
        assert home != HERE or here.workloads is not None


def test_all_is_well_unless_something_is_wrong_or_left() -> None:
    note, problem = DoctorCheck("a", "note", "x"), DoctorCheck("b", "problem", "y")
    wanted, orphan = judge(STRAY, "slurm", WANTED, {}), judge(STRAY, "slurm", replace(DOWN, host=""), {})
    assert Examination((note,), (wanted,)).is_well
    assert not Examination((problem,), ()).is_well
    assert not Examination((), (orphan,)).is_well


def test_what_others_left_is_no_fault_of_this_state_directory() -> None:
    gone = judge(replace(STRAY, home="/h/b"), "local", WANTED, {"/h/b": Home("/h/b", exists=False)})
    unseen = judge(replace(STRAY, home="/h/c"), "local", WANTED, {})
    nameless = judge(replace(STRAY, home=""), "local", WANTED, {})
    assert [one.verdict for one in (gone, unseen, nameless)] == [Claimed.HOMELESS, Claimed.UNKNOWN, Claimed.UNKNOWN]
    assert Examination((), (gone, unseen, nameless)).is_well
    unread = judge(STRAY, "local", replace(WANTED, workloads=None), {})
    assert not Examination((), (unread,)).is_well

"""Which failures of a whole run are looked at once more, and what its last lines say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.gate.flakes import table
from tests.gate.verdict import MOST_AGAIN, Failure, Outcome, Run, why_red

FLAKE = Failure("tests/faults/test_a.py::test_one", "call", "AssertionError: not within 180 s: it serves\nassert 0")
FIVE = tuple(replace(FLAKE, test=f"tests/faults/test_{n}.py::test") for n in range(MOST_AGAIN))
GREEN = Run(0, 918.2, frozenset({"a", "b", "c"}))
ONE = Run(1, 918.2, frozenset({"a", "b"}), failures=(FLAKE,))


def fail(test: str = FLAKE.test, when: str = "call", error: str = FLAKE.error) -> Run:
    return Run(1, 918.2, frozenset({"a", "b"}), failures=(Failure(test, when, error),))


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(GREEN, id="nothing failed"),
        pytest.param(ONE, id="one test"),
        pytest.param(fail(when="setup", error="TimedOut: nodes are idle: not within 60 s"), id="a fixture"),
        pytest.param(fail(when="teardown", error="AssertionError: a process is left"), id="the end of a fixture"),
        pytest.param(fail(error="Failed: Timeout (>600.0s) from pytest-timeout."), id="a timeout"),
        pytest.param(fail(error="AssertionError: not within 180 s: no row is lost"), id="not seen in time"),
        pytest.param(fail(error="assert 'a lost node' == ''"), id="a value that speaks of loss"),
        pytest.param(replace(ONE, failures=FIVE), id="five tests"),
        pytest.param(
            replace(ONE, failures=tuple(replace(FLAKE, when=when) for when in ("call", "teardown") * 4)),
            id="eight errors of one test",
        ),
    ],
)  # fmt: skip
def test_a_second_look(run: Run) -> None:
    assert why_red(run) == ()


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (replace(GREEN, exit_code=2, broken=("tests/a.py could not be collected: x",)), "tests/a.py could not be"),
        (replace(GREEN, exit_code=5, passed=frozenset()), "pytest ended with exit code 5"),
        (replace(GREEN, exit_code=1), "pytest ended with exit code 1 and named no test"),
        (replace(GREEN, exit_code=-9), "pytest ended with exit code -9"),
        (replace(ONE, broken=("worker gw0 died",)), "worker gw0 died"),
        (fail("tests/house/test_words.py::test_it"), "tests/house/test_words.py::test_it: it depends on nothing"),
        (fail(error="tests.soak.work.Lost: run-1 went back"), "something was lost or doubled: tests.soak.work.Lost"),
        (fail(error="AssertionError: no job was sent twice\nassert 4 == 3"), "no job was sent twice"),
        (Run.from_json(None, 0, 1.0), "pytest ended before its report was written"),
    ],
)
def test_red_at_once(run: Run, said: str) -> None:
    assert said in "\n".join(why_red(run))


def test_six_failing_tests_are_red_at_once() -> None:
    assert why_red(replace(ONE, failures=(*FIVE, FLAKE))) == ("6 tests failed; at most 5 get a second look",)


def test_the_last_lines() -> None:
    outcome = Outcome(ONE, passed_again=frozenset({FLAKE.test}), seconds=931.04)
    assert outcome.is_green
    assert outcome.lines() == [
        f"second look: {FLAKE.test} passed alone; at first: AssertionError: not within 180 s: it serves",
        "3 passed, 1 rerun in 931.04s (0:15:31)",
    ]


@pytest.mark.parametrize(
    ("outcome", "last"),
    [
        (Outcome(GREEN, seconds=59.2), "3 passed in 59.20s"),
        (Outcome(ONE, seconds=12.0), "1 failed, 2 passed in 12.00s"),
        (Outcome(fail(when="setup"), seconds=12.0), "2 passed, 1 errors in 12.00s"),
        (Outcome(replace(GREEN, skipped=1), left=("process 7: sleep",), seconds=12.0), "3 passed, 1 skipped in 12.00s"),
        (Outcome(Run(5, 0.1), ("pytest ended with exit code 5",), seconds=0.1), "no tests ran in 0.10s"),
    ],
)  # fmt: skip
def test_the_closing_line(outcome: Outcome, last: str) -> None:
    assert outcome.lines()[-1] == last
    assert outcome.is_green == (last == "3 passed in 59.20s")


def test_a_test_whose_end_failed_counts_once() -> None:
    run = replace(GREEN, exit_code=1, failures=(Failure("a", "teardown", "AssertionError: it is left"),))
    assert Outcome(run, passed_again=frozenset("a"), seconds=1).lines()[-1] == "3 passed, 1 rerun in 1.00s"
    assert Outcome(run, seconds=1).lines()[-1] == "2 passed, 1 errors in 1.00s"


def test_who_needs_second_looks_most_comes_first() -> None:
    found = [
        {"green": True, "failed": {"a": "not within 3 s"}},
        {"green": False, "failed": {"a": "not within 9 s", "b": "x"}},
    ]
    assert table(found).splitlines() == [
        "2 of 2  a: not within 9 s", "1 of 2  b: x", "1 of 2 runs were green, 2 tests needed a second look",
    ]  # fmt: skip


def test_a_whole_run_says_where_its_time_went() -> None:
    seconds, cpu = {"tests/b.py": 12.0, "tests/a.py": 412.3}, {"tests/a.py": 98.7, "tests/c.py": 1.0}
    run = replace(GREEN, seconds=1474.4, cpu=2200.0, by_file=seconds, cpu_by_file=cpu)
    assert Outcome(run).lines()[:3] == [
        "CPU: 2200 s in 1474 s", "  412 s, CPU   99 s  tests/a.py", "   12 s, CPU    0 s  tests/b.py",
    ]  # fmt: skip
    assert len(Outcome(replace(run, seconds=119.0)).lines()) == 1

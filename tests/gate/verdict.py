"""What a run of the suite says, and whether what failed in it is looked at once more. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_AGAIN: Final = 5
"""A correct product on a crowded machine fails one or two; more are a defect of the product or of the machine."""
_SLOWEST: Final = 20
"""Files of tests that are told with the seconds that they took."""
_WHOLE_S: Final = 120.0
"""A run that took less is not asked where its time went."""
_AT_ONCE: Final = ("tests/house/",)
"""Folders of tests that depend on nothing but the files of the project."""
_BROKEN_PROMISE: Final = re.compile(r"\bLost: |^AssertionError: (?!not within ).*\b(lost|doubled|twice)\b")
"""The exception, or the message of an assertion; that something was not seen in time says nothing of the kind."""


@dataclass(frozen=True)
class Failure:
    """One test that failed, or whose fixture did."""

    test: str
    """Its node id."""
    when: str
    """`setup`, `call` or `teardown`."""
    error: str
    """What pytest says of it, whole."""

    @property
    def line(self) -> str:
        """The first line of the error."""
        return next((line.strip() for line in self.error.splitlines() if line.strip()), "no error was recorded")


@dataclass(frozen=True)
class Run:
    """What one run of pytest came to."""

    exit_code: int
    seconds: float
    passed: frozenset[str] = frozenset()
    """Tests whose call passed."""
    skipped: int = 0
    failures: tuple[Failure, ...] = ()
    broken: tuple[str, ...] = ()
    """Files that could not be collected and workers that died, a line each."""
    by_file: Mapping[str, float] = field(default_factory=dict)
    """Seconds that the tests of each file took, one after the other."""
    cpu_by_file: Mapping[str, float] = field(default_factory=dict)
    """Seconds of CPU that they used, with their children and the hosts that were left to their homes."""
    cpu: float = 0.0
    """Seconds of CPU, of all processes that ended in it."""

    @property
    def failed(self) -> tuple[str, ...]:
        """Each test with a failure, once, in the order in which they failed."""
        return tuple(dict.fromkeys(one.test for one in self.failures))

    def slowest(self) -> list[str]:
        """Where the time of a whole run went: its CPU and its slowest files, a line each; of a short run nothing."""
        if self.seconds < _WHOLE_S or not self.by_file:
            return []
        files = sorted(self.by_file.items(), key=lambda one: -one[1])[:_SLOWEST]
        return [
            f"CPU: {self.cpu:.0f} s in {self.seconds:.0f} s",
            *(f"{took:5.0f} s, CPU {self.cpu_by_file.get(name, 0.0):4.0f} s  {name}" for name, took in files),
        ]

    @classmethod
    def from_json(cls, record: Mapping[str, Any] | None, exit_code: int, seconds: float, cpu: float = 0.0) -> Run:
        """Read what `record` wrote; None where it wrote nothing."""
        if record is None:
            return cls(exit_code, seconds, broken=("pytest ended before its report was written",))
        return cls(
            exit_code,
            seconds,
            frozenset(record["passed"]),
            record["skipped"],
            tuple(Failure(**one) for one in record["failures"]),
            tuple(record["broken"]),
            record.get("seconds", {}),
            record.get("cpu", {}),
            cpu,
        )


def why_red(run: Run) -> tuple[str, ...]:
    """Why what failed is not looked at again, a line for each reason; empty where it is, or nothing failed."""
    if run.exit_code == 0 and not run.failures and not run.broken:
        return ()
    reasons = list(run.broken)
    if run.exit_code not in (0, 1):
        reasons.append(f"pytest ended with exit code {run.exit_code}")
    if run.exit_code == 1 and not run.failures and not run.broken:
        reasons.append("pytest ended with exit code 1 and named no test")
    if len(run.failed) > MOST_AGAIN:
        reasons.append(f"{len(run.failed)} tests failed; at most {MOST_AGAIN} get a second look")
    for one in run.failures:
        if one.test.startswith(_AT_ONCE):
            reasons.append(f"{one.test}: it depends on nothing but the files of the project")
        elif _BROKEN_PROMISE.search(one.line):
            reasons.append(f"{one.test}: something was lost or doubled: {one.line}")
    return tuple(dict.fromkeys(reasons))


@dataclass(frozen=True)
class Outcome:
    """A run, corrected by the second look at what failed in it."""

    run: Run
    reasons: tuple[str, ...] = ()
    """Why there was no second look."""
    passed_again: frozenset[str] = frozenset()
    left: tuple[str, ...] = ()
    """Processes that the run left, a line each."""
    files: tuple[str, ...] = ()
    """Files that its tests left in temporary folders that end with the run; they turn nothing red."""
    seconds: float = 0.0
    """Both looks together."""

    @property
    def is_green(self) -> bool:
        """Whether every test passed, once or at its second look, and no process was left."""
        is_failed = bool(set(self.run.failed) - self.passed_again)
        has_run = bool(self.run.passed or self.passed_again)
        return has_run and not self.reasons and not is_failed and not self.left

    def lines(self) -> list[str]:
        """The last lines of `make test`; the very last is pytest's own, corrected."""
        first = {one.test: one.line for one in reversed(self.run.failures)}
        lines = [f"red at once: {reason}" for reason in self.reasons]
        for test in self.run.failed:
            if test in self.passed_again:
                lines.append(f"second look: {test} passed alone; at first: {first[test]}")
            elif not self.reasons:
                lines.append(f"second look: {test} failed again; at first: {first[test]}")
        lines += self.run.slowest()
        lines += [f"left in the run's own temporary folder: {one}" for one in self.files]
        lines += [f"left behind: {one}" for one in self.left]
        return [*lines, self._closing()]

    def _closing(self) -> str:
        """As pytest closes: `1 failed, 6304 passed, 2 rerun in 918.20s (0:15:18)`."""
        failed = [test for test in self.run.failed if test not in self.passed_again]
        calls = {one.test for one in self.run.failures if one.when == "call"}
        counts = {
            "failed": sum(test in calls for test in failed),
            "passed": len(self.run.passed - {*failed} | self.passed_again),
            "skipped": self.run.skipped,
            "errors": sum(test not in calls for test in failed) + len(self.run.broken),
            "rerun": len(self.passed_again),
        }
        said = ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "no tests ran"
        minutes = f" ({_clock(self.seconds)})" if self.seconds >= 60 else ""
        return f"{said} in {self.seconds:.2f}s{minutes}"


def _clock(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}"

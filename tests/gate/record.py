"""A plugin of pytest that writes what came of each test, for whoever decides about the whole run."""

from __future__ import annotations

import json
import os
import resource
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

VARIABLE = "PYTEST_GATE_RECORD"
"""Names the file to write; the plugin is loaded by `-p tests.gate.record`."""


_strangers: dict[str, float] = {}
"""Seconds of CPU of processes that are no children, by pid and start time."""


def counted(pid: int) -> int:
    """Count the CPU of a process that is no child and is about to be killed, as a host is; its pid."""
    _strangers.update(_used(str(pid)))
    return pid


def cpu_seconds() -> float:
    """CPU of this process, of its children, whether they have ended or live, and of all that was `counted`."""
    total = sum(_strangers.values())
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        used = resource.getrusage(who)
        total += used.ru_utime + used.ru_stime
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            total += sum(sum(_used(pid).values()) for pid in (task / "children").read_text().split())
    return total


def _used(pid: str) -> dict[str, float]:
    """CPU of a living process, with its children that have ended, by pid and start time; empty where there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return {}
    return {f"{pid}.{fields[19]}": sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")}


class Meter:
    """Adds to the last report of each test the CPU that it used, in the process that runs it."""

    def __init__(self) -> None:
        self._before = 0.0

    def pytest_collection_finish(self) -> None:
        """What was used for looking at files is no test's."""
        self._before = cpu_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """One phase has ended."""
        report = yield
        if report.when == "teardown":
            now = cpu_seconds()
            report.__dict__["cpu"] = now - self._before  # what a report has as its own, pytest-xdist hands on
            self._before = now
        return report


class Recorder:
    """What the process that gathers all reports has heard."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._passed: list[str] = []
        self._skipped = 0
        self._failures: list[dict[str, str]] = []
        self._broken: list[str] = []
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._cpu: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One phase of one test."""
        file = report.nodeid.partition("::")[0]
        self._seconds[file] += report.duration
        self._cpu[file] += getattr(report, "cpu", 0.0)
        if report.failed:
            if report.when not in ("setup", "call", "teardown"):  # pytest-xdist says `???` of a worker that died in it
                self._broken.append(f"{report.nodeid}: {_error(report).strip().splitlines()[-1]}")
                return
            self._failures.append({"test": report.nodeid, "when": report.when, "error": _error(report)})
        elif report.skipped:
            self._skipped += 1
        elif report.when == "call":
            self._passed.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """One file that was looked through for tests."""
        if report.failed:
            self._broken.append(f"{report.nodeid} could not be collected: {_error(report).strip().splitlines()[-1]}")

    def pytest_internalerror(self, excrepr: object) -> None:
        """Pytest itself failed."""
        self._broken.append(f"pytest failed: {str(excrepr).strip().splitlines()[-1]}")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """A worker of pytest-xdist has ended; an error means that it died."""
        if error:
            self._broken.append(f"worker {node.gateway.id} died: {error}")

    def pytest_sessionfinish(self) -> None:
        """Write it, whole or not at all."""
        record = {
            "passed": self._passed, "skipped": self._skipped, "failures": self._failures, "broken": self._broken,
            "seconds": self._seconds, "cpu": self._cpu,
        }  # fmt: skip
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(record))
        new.replace(self._path)


def pytest_configure(config: pytest.Config) -> None:
    """Measure where tests run; record in the process that gathers, not in its workers."""
    path = os.environ.get(VARIABLE)
    if not path:
        return
    config.pluginmanager.register(Meter(), "gate-meter")
    if hasattr(config, "workerinput"):
        return
    config.pluginmanager.register(Recorder(Path(path)), "gate-record")


def _error(report: pytest.TestReport | pytest.CollectReport) -> str:
    """The message of the exception where there is one, else all that is told."""
    crash = getattr(report.longrepr, "reprcrash", None)
    message = getattr(crash, "message", "")
    return str(message or report.longreprtext or "no error was told")

"""A plugin of pytest that writes what came of each test, for whoever decides about the whole run."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "PYTEST_GATE_RECORD"
"""Names the file to write; the plugin is loaded by `-p tests.gate.record`."""


class Recorder:
    """What the process that gathers all reports has heard."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._passed: list[str] = []
        self._skipped = 0
        self._failures: list[dict[str, str]] = []
        self._broken: list[str] = []
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One phase of one test."""
        self._seconds[report.nodeid.partition("::")[0]] += report.duration
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
            "seconds": self._seconds,
        }  # fmt: skip
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(record))
        new.replace(self._path)


def pytest_configure(config: pytest.Config) -> None:
    """Record in the process that gathers, not in its workers."""
    path = os.environ.get(VARIABLE)
    if not path or hasattr(config, "workerinput"):
        return
    config.pluginmanager.register(Recorder(Path(path)), "gate-record")


def _error(report: pytest.TestReport | pytest.CollectReport) -> str:
    """The message of the exception where there is one, else all that is told."""
    crash = getattr(report.longrepr, "reprcrash", None)
    message = getattr(crash, "message", "")
    return str(message or report.longreprtext or "no error was told")

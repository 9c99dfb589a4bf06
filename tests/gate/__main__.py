"""Run the suite once, and what failed in it once more, alone: `python -m tests.gate [arguments of pytest]`."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.gate import closed, record
from tests.gate.flakes import KEEP
from tests.gate.verdict import Outcome, Run, why_red

_REPORTS = ("-q", "-p", "tests.gate.record")


def main(arguments: list[str]) -> int:
    """0 when all passed, at their second look at the latest, and nothing was left; else 1."""
    if closed.ROOM in os.environ:
        closed.settle_in()
        return gate(arguments, is_inside=True)
    code = closed.run_inside([sys.executable, "-m", "tests.gate", *arguments])
    if code is not None:
        return code
    for one in closed.end_interrupted():
        print(f"ended, of an interrupted run: {one}")
    os.environ[closed.MARK] = closed.identity(os.getpid())
    return gate(arguments, is_inside=False)


def gate(arguments: list[str], *, is_inside: bool) -> int:
    """Both looks, and what is said of them."""
    begin = time.monotonic()
    signal.signal(signal.SIGINT, lambda *_: None)  # pytest hears it too
    with closed.scratch():
        run = look(arguments)
        reasons = why_red(run)
        passed_again = frozenset() if reasons else frozenset(test for test in run.failed if passes_alone(test))
        left = closed.left_inside() if is_inside else closed.left_in_the_open()
    files = closed.files_inside() if is_inside else []
    outcome = Outcome(run, reasons, passed_again, tuple(left), tuple(files), time.monotonic() - begin)
    print("\n".join(outcome.lines()), flush=True)
    _keep(outcome)
    return 0 if outcome.is_green else 1


def passes_alone(test: str) -> bool:
    """The second look: in a process of its own, with nothing else beside it."""
    print(f"== second look: {test}", flush=True)
    again = look([test])
    return again.exit_code == 0 and bool(again.passed)


def look(arguments: list[str]) -> Run:
    """Run pytest and read what it recorded."""
    with tempfile.TemporaryDirectory(prefix="gate", dir="/var/tmp") as folder:
        path = Path(folder) / "record.json"
        begin = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *_REPORTS, *arguments], env={**os.environ, record.VARIABLE: str(path)}
        )
        code = _wait(process.pid)
        process.returncode = code
        found = json.loads(path.read_text()) if path.exists() else None
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return Run.from_json(found, code, time.monotonic() - begin, used.ru_utime + used.ru_stime)


def _wait(child: int) -> int:
    """Its exit code. The first process of a namespace is the parent of all whose parents have ended."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            return os.waitstatus_to_exitcode(status)


def _keep(outcome: Outcome) -> None:
    """Where `make flakes` asked for it: who needed a second look."""
    if path := os.environ.get(KEEP):
        first = {one.test: one.line for one in reversed(outcome.run.failures)}
        Path(path).write_text(json.dumps({"green": outcome.is_green, "failed": first, "left": outcome.left}))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

"""Run the suite several times, beside a load if asked, and say who needed a second look how often: `make flakes`."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

KEEP = "PYTEST_GATE_KEEP"
"""A variable that names the file in which the gate keeps what it found."""


@contextmanager
def load(spinners: int) -> Iterator[None]:
    """So many processes that do nothing but count; they end with this one, however that ends."""
    spin = "import os, sys\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(10**5))"
    processes = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(spinners)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def table(found: list[dict[str, Any]]) -> str:
    """Who needed a second look in how many runs, the most frequent first, with the last error."""
    counts: Counter[str] = Counter()
    errors: dict[str, str] = {}
    for one in found:
        counts.update(one["failed"].keys())
        errors.update(one["failed"])
    lines = [f"{count} of {len(found)}  {test}: {errors[test]}" for test, count in counts.most_common()]
    green = sum(one["green"] is True for one in found)
    return "\n".join([*lines, f"{green} of {len(found)} runs were green, {len(counts)} tests needed a second look"])


def main() -> int:
    """0 when all runs were green and nobody needed a second look twice."""
    asked = argparse.ArgumentParser(prog="python -m tests.gate.flakes", description=__doc__)
    asked.add_argument("--runs", type=int, default=5)
    asked.add_argument("--load", type=int, default=0, help="processes that only compute, beside the suite")
    options, arguments = asked.parse_known_args()
    found: list[dict[str, Any]] = []
    for number in range(options.runs):
        with tempfile.TemporaryDirectory(prefix="flakes") as folder, load(options.load):
            kept = Path(folder) / "outcome.json"
            command = [sys.executable, "-m", "tests.gate", *arguments]
            code = subprocess.run(command, env={**os.environ, KEEP: str(kept)}, check=False).returncode
            nothing = {"green": False, "failed": {"the whole run": f"it ended with {code} and said nothing"}}
            found.append(json.loads(kept.read_text()) if kept.exists() else nothing)
        print(f"== run {number + 1} of {options.runs}\n{table(found)}", flush=True)
    is_twice = any(count > 1 for count in Counter(test for one in found for test in one["failed"]).values())
    return 0 if all(one["green"] for one in found) and not is_twice else 1


if __name__ == "__main__":
    raise SystemExit(main())

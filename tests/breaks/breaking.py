"""Breaks a rule of the product on purpose, and asks whether the test that is to prove it notices.

`breaks.yaml` has one entry a rule: the row of `docs/features.md` that it belongs to, the line of the source, what it is
changed to, and the test. The change is made in a copy of the source, which the test then imports.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
FAST = ("unit/",)
"""Where tests that need nothing but themselves are."""


@dataclass(frozen=True)
class Break:
    """One rule, and how it is broken."""

    row: str
    """Of `docs/features.md`."""
    rule: str
    file: str
    """Below `src/remuda`."""
    old: str
    """What stands there, once."""
    new: str
    test: str
    """Below `tests`."""

    @property
    def is_fast(self) -> bool:
        """Whether its test needs no cluster and no other program."""
        return self.test.startswith(FAST)

    def apply(self, package: Path) -> None:
        """Break the rule in a copy of the package.

        Raises:
            LookupError: the line is not there, or more than once.
        """
        path = package / self.file
        text = path.read_text()
        if text.count(self.old) != 1:
            raise LookupError(
                f"{self.row} ({self.rule}): {self.old!r} stands {text.count(self.old)} times in {self.file}"
            )
        path.write_text(text.replace(self.old, self.new))


def read() -> list[Break]:
    """All of them."""
    return [Break(**entry) for entry in yaml.safe_load((Path(__file__).parent / "breaks.yaml").read_text())]


def is_noticed(one: Break, folder: Path, limit_s: float = 300) -> bool:
    """Whether the test fails with the rule broken.

    Args:
        one: what is broken.
        folder: an empty one, for the copy.
        limit_s: a test that hangs has noticed, too.

    Raises:
        RuntimeError: the test was not run: there is none of that name, or it does not see the copy.
    """
    package = folder / "remuda"
    shutil.copytree(ROOT / "src" / "remuda", package)  # with what is compiled: only the broken file is compiled again
    one.apply(package)
    Path(cache_from_source(str(package / one.file))).unlink(missing_ok=True)
    env = {
        **os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1",
        "BROKEN_PACKAGE": str(package), "PYTEST_ADDOPTS": "",
    }  # fmt: skip
    plugins = ("-p", "no:cacheprovider", "-p", "tests.breaks.seen")
    command = [sys.executable, "-m", "pytest", "-q", "-x", *plugins, f"tests/{one.test}"]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=limit_s, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return True
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{one.test} was not run: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode == 1

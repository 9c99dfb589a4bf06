"""What a fresh clone installs is what was looked at: pinned, with hashes, and nothing besides."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
LOCKS = ("build.lock", "requirements.lock")
PINNED = (*LOCKS, "model.lock")
_PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^ ;]+)", re.MULTILINE)


def pins(name: str) -> dict[str, str]:
    """Package -> version."""
    return dict(_PIN.findall((ROOT / name).read_text()))


@pytest.mark.parametrize("name", PINNED)
def test_each_pin_has_hashes(name: str) -> None:
    entries = re.split(r"\n(?=[A-Za-z0-9])", (ROOT / name).read_text())
    assert [entry.split()[0] for entry in entries if "==" not in entry or "--hash=sha256:" not in entry] == []
    assert "://" not in (ROOT / name).read_text()


def test_the_locks_do_not_fight() -> None:
    build, rest = (pins(name) for name in LOCKS)
    assert {name: (build[name], rest[name]) for name in build.keys() & rest.keys() if build[name] != rest[name]} == {}


def test_what_builds_the_package_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for text in ("uv", *project["build-system"]["requires"]):
        wanted = Requirement(text)
        assert pins("build.lock")[wanted.name] in wanted.specifier


def test_make_install_takes_nothing_unpinned() -> None:
    recipe = subprocess.run(
        ["make", "--dry-run", "--always-make", "install"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    installs = [line for line in recipe.splitlines() if "pip install" in line]
    assert installs
    for line in installs:
        own = "--no-deps --no-build-isolation -e ." in line
        assert own or ("--require-hashes -r " in line and line.split(" -r ")[1] in LOCKS), line

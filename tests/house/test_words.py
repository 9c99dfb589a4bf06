"""What may stand in no file of this project."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
THIS = Path(__file__).relative_to(ROOT)

#: Where packages and images come from is the business of the machine's settings, not of the project.
#: Written in parts, so that this page passes its own test.
REGISTRIES = (
    *(".".join(parts) for parts in (("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("crates", "io"))),
    "index-url =",
)
#: Homes in examples are those of nobody: /home/me, /home/you, /home/user.
MACHINES = re.compile(r"/work/(?:main|shared)|/root/|/Users/|/home/(?!me\b|you\b|user\b)[a-z]")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
VAGUE = {"utils", "util", "helpers", "helper", "manager", "handler", "misc", "common"}


def tracked() -> list[Path]:
    """Files of the repository, those of a binary kind left out."""
    answer = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    names = [Path(name) for name in answer.stdout.split("\0") if name]
    binary = {".parquet", ".png", ".gguf", ".gz", ".arrow", ".ico"}
    return [name for name in names if name != THIS and name.suffix not in binary and (ROOT / name).is_file()]


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()[:120]}"
        for name in tracked()
        for number, line in enumerate((ROOT / name).read_text(errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_host_of_a_registry_is_named() -> None:
    assert lines_with(re.compile("|".join(map(re.escape, REGISTRIES)))) == []


def test_no_path_of_somebodys_machine_is_named() -> None:
    assert lines_with(MACHINES) == []


def test_nothing_is_left_for_later() -> None:
    found = [str(path.relative_to(ROOT)) for path in SOURCES if UNFINISHED.search(path.read_text())]
    assert found == []


def test_modules_are_named_after_what_they_hold() -> None:
    assert [str(path.relative_to(ROOT)) for path in SOURCES if {path.stem, path.parent.name} & VAGUE] == []


@pytest.mark.parametrize("path", sorted((ROOT / "tests").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_test_is_left_out(path: Path) -> None:
    avoided = {"skip", "skipif", "skipIf", "skipUnless", "xfail", "importorskip", "expectedFailure"}
    used = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
    assert used & avoided == set()

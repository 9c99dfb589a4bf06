"""What a docstring, a comment or the architecture page names in backticks is there: modules, their names, files."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src/remuda"
PAGE = ROOT / "docs/architecture.md"
SOURCES = sorted(PACKAGE.rglob("*.py"))
_NAMED = re.compile(r"`([a-z_]+)\.([A-Za-z_]+)`")
_FILE = re.compile(r"`((?:[a-z_]+/)*[a-z_]+\.py)`")
SUFFIXES = {"json", "jsonl", "log", "conf", "yaml", "parquet", "py", "c", "key", "secret", "out", "err", "crt"}
#: Fields of documents, and objects of the sentence that names them.
NO_MODULES = {
    "status",
    "pa",
    "local_sgd",
    "meta",
    "presence",
    "journal",
    "backend",
    "benchmark",
    "cast",
    "frontend",
    "matplotlib",
    "options",
    "router",
    "spec",
    "watchdog",
    "layout",
}


@cache
def modules() -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for path in SOURCES:
        found.setdefault(path.parent.name if path.name == "__init__.py" else path.stem, []).append(path)
    return found


@cache
def names(path: Path) -> set[str]:
    """What a module, or a folder, has at its top."""
    beside = sorted(path.parent.glob("*.py")) if path.name == "__init__.py" else []
    inside = {one.stem for one in path.parent.iterdir() if beside}.union(*(names(one) for one in beside if one != path))
    tree = ast.parse(path.read_text())
    found = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)}
    targets = [node.targets if isinstance(node, ast.Assign) else [node.target]
               for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]  # fmt: skip
    return inside | found | {target.id for some in targets for target in some if isinstance(target, ast.Name)}


def missing(text: str) -> list[str]:
    """References of ours that lead nowhere."""
    found = []
    for module, name in _NAMED.findall(text):
        known = name in SUFFIXES or module in NO_MODULES or module in sys.stdlib_module_names
        if not known and not any(name in names(path) for path in modules().get(module, [])):
            found.append(f"{module}.{name}")
    return found


def test_what_sources_name_is_there() -> None:
    found = {str(path.relative_to(PACKAGE)): gone for path in SOURCES if (gone := missing(path.read_text()))}
    assert found == {}


def test_what_the_architecture_names_is_there() -> None:
    text = PAGE.read_text()
    there = [str(path) for path in (*SOURCES, *ROOT.glob("tests/**/*.py"))]
    files = [name for name in _FILE.findall(text) if not any(path.endswith(f"/{name}") for path in there)]
    assert (missing(text), files) == ([], [])


@pytest.mark.parametrize("text", ["`asking.ask`", "`submission.nothing`", "`nodes.no_such`"])
def test_a_name_that_is_gone_is_found(text: str) -> None:
    assert missing(text) == [text.strip("`")]

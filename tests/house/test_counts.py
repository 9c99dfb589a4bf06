"""Counts of what makes each further kind of work cost its weight again: none may grow.

Lower a limit with the change that makes it lower.
"""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

SRC = Path(__file__).parents[2] / "src/remuda"
BACKENDS = {"local", "slurm", "lepton", "kubernetes"}
DOCUMENTS = {"LocalBackend", "SlurmBackend", "LeptonBackend", "SlurmDeployment"}
OWN = ("backends", "specs", "testing")
"""Rooms that may name backends."""


@cache
def sources() -> Mapping[Path, ast.Module]:
    """Every module, read when a count is asked for: all workers import this file, and one counts."""
    return {path: ast.parse(path.read_text()) for path in sorted(SRC.rglob("*.py"))}


def names_backend(node: ast.expr) -> bool:
    if isinstance(node, (ast.Tuple, ast.Set, ast.List)):
        return any(names_backend(one) for one in node.elts)
    return isinstance(node, ast.Constant) and node.value in BACKENDS


def asks_backend(node: ast.AST) -> bool:
    """Whether it compares a backend's name, or the class of its document."""
    if isinstance(node, ast.Compare):
        return any(names_backend(one) for one in (node.left, *node.comparators))
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id != "isinstance":
        return False
    return not DOCUMENTS.isdisjoint(one.id for one in ast.walk(node.args[1]) if isinstance(one, ast.Name))


def backends_by_name() -> Iterator[str]:
    for path, tree in sources().items():
        if path.relative_to(SRC).parts[0] not in OWN:
            yield from (f"{path.relative_to(SRC)}:{node.lineno}" for node in ast.walk(tree) if asks_backend(node))  # type: ignore[attr-defined]


def imports_kind(node: ast.AST) -> bool:
    """Whether it makes `Kind` that of workloads: rehearsals have another."""
    is_ours = isinstance(node, ast.ImportFrom) and str(node.module).startswith("remuda.plan.")
    return is_ours and any(one.name == "Kind" for one in node.names)  # type: ignore[attr-defined]


def names_kind(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Kind"


def kinds_by_name() -> Iterator[str]:
    """Members of `Kind` where its traits are to be asked."""
    for path, tree in sources().items():
        nodes = [*ast.walk(tree)]
        if path.relative_to(SRC).parts[0] not in ("plan", "specs") and any(map(imports_kind, nodes)):
            yield from (f"{path.relative_to(SRC)}:{node.lineno}" for node in nodes if names_kind(node))  # type: ignore[attr-defined]


def repeated_classes() -> Iterator[str]:
    named = Counter(
        node.name for tree in sources().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    )
    yield from (name for name, count in named.items() if count > 1)


def lines() -> Iterator[str]:
    for path in sources():
        yield from path.read_text().splitlines()


def fullest_folder() -> list[str]:
    return max(([str(path.relative_to(SRC)) for path in folder.glob("*.py")] for folder in SRC.rglob("*")), key=len)


def fullest_room() -> list[str]:
    return max(([str(path.relative_to(SRC)) for path in room.rglob("*.py")] for room in SRC.iterdir()), key=len)


LIMITS: Final[dict[Callable[[], Iterable[str]], int]] = {
    backends_by_name: 30,
    kinds_by_name: 1,
    repeated_classes: 14,
    fullest_folder: 18,
    fullest_room: 65,
    lines: 99_893,
}


@pytest.mark.parametrize("count", LIMITS, ids=lambda one: one.__name__)
def test_it_does_not_grow(count: Callable[[], Iterable[str]]) -> None:
    found = [*count()]
    assert len(found) <= LIMITS[count], sorted(found)[:200]


if __name__ == "__main__":
    for counted, most in LIMITS.items():
        print(f"{counted.__name__.replace('_', ' ')}: {len([*counted()]):,} (at most {most:,})")

"""How long files and functions may be."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def functions(path: Path) -> list[tuple[str, int]]:
    tree = ast.parse(path.read_text())
    return [
        (f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", (node.end_lineno or node.lineno) - node.lineno + 1)
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]


def test_no_file_is_longer_than_500_lines() -> None:
    long = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in SOURCES}
    assert {name: lines for name, lines in long.items() if lines > 500} == {}


def test_no_function_is_longer_than_80_lines_and_most_are_short() -> None:
    lengths = dict(item for path in SOURCES for item in functions(path))
    assert {name: lines for name, lines in lengths.items() if lines > 80} == {}
    ordered = sorted(lengths.values())
    assert ordered[int(len(ordered) * 0.95)] < 45

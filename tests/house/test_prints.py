"""The command line prints through `cli.show` only, which cleans what others wrote."""

from __future__ import annotations

import ast
from pathlib import Path

CLI = Path(__file__).parents[2] / "src" / "remuda" / "cli"
RAW = {
    ("__init__.py", 2),  # a word of its own, said without importing more
    ("status.py", 2),  # logs --raw, and JSON that is clean already
    ("job.py", 1),  # job logs --raw
}
OTHER = {"echo", "secho", "print", "write", "Text"}


def prints(file: Path) -> int:
    """Calls that print, or that make text for rich, past `cli.show`."""
    count = 0
    for node in ast.walk(ast.parse(file.read_text())):
        if not isinstance(node, ast.Call):
            continue
        of = node.func
        if isinstance(of, ast.Attribute) and of.attr in OTHER:
            owner = of.value.id if isinstance(of.value, ast.Name) else ""
            count += of.attr in ("echo", "secho") or owner in ("stdout", "stderr", "sys")
        elif isinstance(of, ast.Name) and of.id in ("print", "Text"):
            count += 1
    return count


def test_nobody_prints_past_it() -> None:
    found = {(file.name, count) for file in CLI.rglob("*.py") if file.name != "show.py" and (count := prints(file))}
    assert found == RAW

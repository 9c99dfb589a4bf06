"""The page of exit codes says what the code says."""

from __future__ import annotations

import re
from pathlib import Path

from remuda.base import errors
from remuda.wire import exit as codes

PAGE = Path(__file__).parents[3] / "docs" / "exit-codes.md"
ROW = re.compile(r"^\| (\d+) \| ?(.*?) \| (.*) \|$", re.MULTILINE)


def rows(title: str) -> dict[int, tuple[list[str], str]]:
    section = PAGE.read_text().split(f"## {title}\n")[1].split("\n## ")[0]
    return {int(code): (re.findall(r"`(\w+)`", names), meaning) for code, names, meaning in ROW.findall(section)}


def test_codes_of_the_command_line() -> None:
    tree: dict[int, list[str]] = {0: []}
    for name, item in vars(errors).items():
        if isinstance(item, type) and issubclass(item, errors.RemudaError):
            tree.setdefault(item.exit_code, []).append(name)
    page = rows("The command line")
    assert {code: sorted(names) for code, (names, _) in page.items()} == {c: sorted(n) for c, n in tree.items()}
    drawn = re.findall(r"(\w+) +(\d+)   (.*)", errors.__doc__ or "")
    assert len(drawn) >= 8
    for name, code, meaning in drawn:
        assert name in page[int(code)][0]
        assert meaning.strip() == page[int(code)][1]


def test_codes_of_the_node_program() -> None:
    names = {
        value: [name] for name, value in vars(codes).items() if name.isupper() and isinstance(value, int) and value
    }
    expected = {code: (names.get(code, []), meaning) for code, meaning in codes.MEANINGS.items()}
    assert rows("The node program") == expected
    assert len(names) == len(codes.MEANINGS) - 1

"""Pages that are drawn from the code are up to date, and what the pages name is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import click
import pytest
from tests.house.pages import PAGES, commands

from remuda.base.settings import KNOWN
from remuda.cli import cli

ROOT = Path(__file__).parents[2]
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS = {" ".join(path): command for path, command in commands(cli)}
#: A command in the middle of prose: `remuda …` in code.
_TYPED = re.compile(r"(?:^\$ |`)remuda ([^`\n|]+)", re.MULTILINE)


@pytest.mark.parametrize("name", PAGES)
def test_a_drawn_page_is_up_to_date(name: str) -> None:
    how = "write it again: python -m tests.house.pages"
    assert (ROOT / "docs" / name).read_text() == PAGES[name](), how


def test_every_command_has_a_heading() -> None:
    headings = re.findall(r"^#+ remuda (.+)$", (ROOT / "docs/cli.md").read_text(), re.MULTILINE)
    assert headings == list(COMMANDS)


def find(words: list[str]) -> tuple[click.Command | None, str]:
    """The command that `words` begin with, and the first word that is none of its own."""
    path: list[str] = []
    command: click.Command = cli
    for word in words:
        if not isinstance(command, click.Group) or word.isupper():
            break
        if " ".join([*path, word]) not in COMMANDS:
            return (command, "") if command.invoke_without_command else (None, word)
        path.append(word)
        command = COMMANDS[" ".join(path)]
    return command, ""


def wrong(typed: str) -> str:
    """What is wrong with a command as a page names it; empty when it is one."""
    words = [word.strip("\"'(),.;:") for word in typed.split() if not word.startswith("[")]
    if not words or words[0].startswith(("-", "…")) or not words[0].islower():
        return ""
    command, unknown = find([word for word in words if not word.startswith("-")])
    if command is None:
        return f"no command {unknown!r} in {typed!r}"
    flags = {flag for param in command.params for flag in [*param.opts, *param.secondary_opts]} | {"-h", "--help"}
    before = words[: words.index("--")] if "--" in words else words
    strange = [word for word in before if re.match(r"--[a-z]", word) and word.partition("=")[0] not in flags]
    return f"{strange} of {typed!r}" if strange else ""


@pytest.mark.parametrize("page", DOCS, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_that_a_page_names_are_there(page: Path) -> None:
    text = page.read_text().replace("\\\n", " ")
    found = [wrong(typed.group(1).partition(" | ")[0]) for typed in _TYPED.finditer(text)]
    assert [one for one in found if one] == []


def test_every_setting_is_told() -> None:
    text = (ROOT / "docs/getting-started.md").read_text()
    assert [name for name in KNOWN if f"`REMUDA_{name}`" not in text] == []


# The table of features


FEATURES = (ROOT / "docs/features.md").read_text()
#: How many rows each letter has.
ROWS = {"D": 21, "S": 18, "R": 14, "K": 6, "G": 10, "X": 18}
STATES = {"done", "in part", "not built yet"}
_TEST = re.compile(r"`([\w./]+\.py)::(\w+)`")


def cells() -> list[list[str]]:
    """Id, capability, state, how and proof of each row."""
    lines = [line for line in FEATURES.splitlines() if re.match(r"\| [A-Z]\d", line)]
    return [[cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")] for line in lines]


def test_every_feature_has_its_state() -> None:
    rows = cells()
    assert {len(row) for row in rows} == {5}
    assert [row[0] for row in rows] == [f"{letter}{n}" for letter, count in ROWS.items() for n in range(1, count + 1)]
    assert {row[2].partition(":")[0] for row in rows} <= STATES
    assert [row[0] for row in rows if row[2].startswith("in part") and ": " not in row[2]] == []
    assert [row[0] for row in rows if row[2] != "not built yet" and not (row[3] and row[4])] == []
    assert [row[0] for row in rows if row[2] == "not built yet" and _TEST.search(row[4])] == []


def test_every_test_that_is_named_is_there() -> None:
    named = _TEST.findall(FEATURES) + _TEST.findall((ROOT / "docs" / "security.md").read_text())
    assert len(named) > 70
    missing = []
    for file, name in named:
        path = ROOT / "tests" / file
        tree = ast.parse(path.read_text()) if path.exists() else ast.Module([], [])
        if not any(isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name
                   for node in ast.walk(tree)):  # fmt: skip
            missing.append(f"{file}::{name}")
    assert missing == []

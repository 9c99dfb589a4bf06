"""Phrases that a native reader stumbles on: none in help and errors, and fewer with each change in docs.

Lower a limit with the change that makes it lower.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import pytest
from tests.house.pages import PAGES, commands

from remuda.base import errors
from remuda.cli import COMMANDS, cli

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT: Final = Path(__file__).parents[2]
PHRASES: Final = {
    "so many": r"\bso (many|often|long|soon)\b",
    "nobody": r"\b(no|some|every)body\b",
    "who": r"\bwho(ever)?\b",
    "is told": r"\b(is|are|was|were) told\b",
    "begun again": r"\b(begins?|begun|begin it) again\b",
    "what came of it": r"\b(comes?|came) (of it|to no)\b",
    "is no X": r"(?<!there )\b(is|are|was|were) (none\b(?! of)|no (?!longer|more|such))",
    "for ever": r"\bfor ever\b",
    "anew": r"\banew\b",
    "goes on": r"\b(go|goes|went|gone) on\b",
    "says nothing": r"\bsays? nothing\b",
    "a person": r"\ba person\b",
    "looks whether": r"\blooks? (whether|once more|for what)\b",
    "apart": r"\b(prefill and decode|decode and prefill) apart\b",
    "foresaw": r"\bforesaw\b",
    "mended": r"\bmend(s|ed)?\b",
    "wins over": r"\bwins? over\b",
    "it is looked for": r"\b(is|are) looked for\b",
    "type it again": r"\btype it again\b",
    "is asked for": r"\b(is|are) asked (for|again)\b",
}  # fmt: skip
"""Name of a phrase -> what it looks like, in any case."""
HELP_BEGINS: Final = re.compile(
    r"(Of|Those|They|Their|Its|What|Who|Whose|Which|How|Where|None|Also|As|For|Sent|Kept|Between|With|By|The same)\b"
)
"""The text of an option begins with a noun or a verb."""
SAYERS: Final = {name for name, one in vars(errors).items() if isinstance(one, type)} | {
    "wrong",
    "contradiction",
    "UsageError",
}


@cache
def help_texts() -> tuple[str, ...]:
    """Of every command, of its options, and of the list of commands."""
    return (*(text for _, text in COMMANDS.values()), *(command.help or "" for _, command in commands(cli)), *options())


@cache
def options() -> tuple[str, ...]:
    params = (param for _, command in commands(cli) for param in command.params)
    return tuple(param.help or "" for param in params if isinstance(param, click.Option) and not param.hidden)


@cache
def errors_raised() -> tuple[str, ...]:
    """Sentences and hints that the sources give to an error."""
    return tuple(text for path in sorted((ROOT / "src").rglob("*.py")) for text in said(ast.parse(path.read_text())))


def said(tree: ast.AST) -> Iterator[str]:
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and getattr(call.func, "id", getattr(call.func, "attr", "")) in SAYERS:
            given = [*call.args, *(one.value for one in call.keywords if one.arg == "hint")]
            yield from (text for one in given for text in texts(one))


def texts(node: ast.expr) -> Iterator[str]:
    """Every text within an expression; a value in it is `{}`."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(str(one.value) if isinstance(one, ast.Constant) else "{}" for one in node.values)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, (ast.IfExp, ast.BinOp)):
        both = (node.body, node.orelse) if isinstance(node, ast.IfExp) else (node.left, node.right)
        yield from (text for one in both for text in texts(one))


@cache
def drawn_pages() -> tuple[str, ...]:
    return tuple((ROOT / "docs" / name).read_text() for name in ("cli.md", "configuration.md"))


@cache
def written_pages() -> tuple[str, ...]:
    drawn = {*PAGES, "configuration.md"}
    return tuple(path.read_text() for path in sorted((ROOT / "docs").glob("*.md")) if path.name not in drawn)


LIMITS: Final[dict[Callable[[], tuple[str, ...]], dict[str, int]]] = {
    help_texts: {},
    errors_raised: {},
    drawn_pages: {},
    written_pages: {
        "nobody": 80, "who": 88, "is told": 23, "begun again": 2, "anew": 14, "goes on": 50, "says nothing": 4,
        "a person": 13, "it is looked for": 1, "is asked for": 10,
    },
}  # fmt: skip
"""Place -> how often a phrase still stands there; 0 for what is not named."""


@pytest.mark.parametrize("phrase", PHRASES)
@pytest.mark.parametrize("place", LIMITS, ids=lambda one: one.__name__)
def test_phrases_do_not_spread(place: Callable[[], tuple[str, ...]], phrase: str) -> None:
    pattern = re.compile(rf".{{0,60}}(?:{PHRASES[phrase]}).{{0,30}}", re.IGNORECASE)
    found = [match[0] for text in place() for match in pattern.finditer(" ".join(text.split()))]
    assert len(found) <= LIMITS[place].get(phrase, 0), found


def test_an_option_begins_with_what_it_is() -> None:
    assert [text for text in options() if HELP_BEGINS.match(text) or not text.endswith((".", "]"))] == []


def test_help_is_there() -> None:
    assert [path for path, command in commands(cli) if not command.help] == []

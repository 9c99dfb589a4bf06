"""How things are printed: rich on a terminal, plain text when piped, JSON when asked for.

Everything that the command line prints goes through here, and whatever others wrote is clean when it does.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
import time
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import click

from remuda.base.text import clean, clean_json
from remuda.base.units import show_duration
from remuda.cli import Printed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.text import Text

    from remuda.views.actions import Action

_LEAST = 20
"""Characters that the last column of a table has on the narrowest terminal."""
GOOD = frozenset({"RUNNING", "READY", "DONE"})
BAD = frozenset({"FAILED", "UNHEALTHY", "LOST", "DEGRADED"})

_ICONS = {"✓": "green", "○": "green", "◐": "yellow", "⊘": "yellow", "⏱": "yellow", "●": "red", "✗": "red"}


def is_terminal() -> bool:
    """Whether a person looks at standard output."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def agrees(action: Action, flag: str) -> bool:
    """Whether a user wants what an action does; without a terminal nobody can be asked, and `flag` says so."""
    if not sys.stdin.isatty():
        raise click.UsageError(f"not a terminal; pass {flag} to {action.verb} unasked")
    return click.confirm(f"{action.effect}?")


def console(*, stderr: bool = False) -> Console:
    """A rich console; it obeys NO_COLOR by itself."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=True)


def print_json(data: Any) -> None:
    """Print data for programs."""
    Printed.data = True
    click.echo(clean_json(json.dumps(data, indent=2)))


def echo(text: str = "", *, err: bool = False, nl: bool = True, colour: str = "", exact: bool = False) -> None:
    """Print words and lines.

    Args:
        text: of ours, of the user or of strangers; what terminals obey is taken out.
        err: on standard error.
        nl: end the line.
        colour: of all of it, on a terminal.
        exact: to a file or a program it goes as it is.
    """
    shown = text if exact and not (sys.stderr if err else sys.stdout).isatty() else clean(text)
    click.echo(click.style(shown, fg=colour) if colour else shown, err=err, nl=nl)


def words(text: str, style: str = "") -> Text:
    """The same for rich, as one line."""
    from rich.text import Text

    return Text(clean(text, one_line=True), style=style)


def table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, empty: str = "nothing yet", below: Sequence[str] = (),
    rarely: Sequence[str] = (),
) -> None:  # fmt: skip
    """Print a table: two spaces between columns; it fits a terminal, and is never cut when piped.

    Args:
        columns: names, of which the last is prose that goes on in the next line where it is long.
        rows: cells.
        empty: what is said instead of no rows.
        below: a sentence for each row, which stands in lines of its own; empty ones are left out.
        rarely: columns that are left out where they are empty or too many, the first first; the others stay.
    """
    if not rows:
        echo(empty)
        return
    width = shutil.get_terminal_size().columns if is_terminal() else 0
    head, *blocks = tabled(columns, [[clean(cell, one_line=True) for cell in row] for row in rows], width, rarely)
    for block, note in zip_longest([head, *blocks], ["", *below], fillvalue=""):
        for line in block:
            click.echo("".join(line if block is head else map(_coloured, line)).rstrip())
        if note:
            echo("\n".join(wrapped(clean(note, one_line=True), width)))


def tabled(
    columns: Sequence[str], rows: Sequence[Sequence[str]], width: int, rarely: Sequence[str] = ()
) -> list[list[list[str]]]:
    """The head of a table and its rows, each as lines of cells with the space behind them. Pure.

    Args:
        columns: names.
        rows: cells, clean.
        width: of a line; 0: as wide as it is.
        rarely: see `table`.
    """
    cells = {name: [row[place] for row in rows] for place, name in enumerate(columns)}
    shown = [name for name in columns if name not in rarely or {*cells[name]} - {"", "-"}]
    wide = {name: max(len(name), *map(len, cells[name])) + 2 for name in columns}
    for name in rarely:
        if width and name in shown and sum(wide[one] for one in shown) - 2 > width:
            shown.remove(name)
    *others, last = shown
    room = max(_LEAST, width - sum(wide[name] for name in others)) if width else 0
    blocks = [[[*(f"{name.upper():<{wide[name]}}" for name in others), last.upper()]]]
    for number in range(len(rows)):
        text = cells[last][number]
        first, *more = (textwrap.wrap(text, room) if room else [text]) or [""]
        line = [*(f"{cells[name][number]:<{wide[name]}}" for name in others), first]
        blocks.append([line, *([*(" " * wide[name] for name in others), text] for text in more)])
    return blocks


def wrapped(text: str, width: int) -> list[str]:
    """A sentence below a row, in lines of at most `width` characters; 0: in one."""
    if not width:
        return [f"  {text}"]
    return textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def _coloured(cell: str) -> str:
    colour = style_of(cell.strip()) if is_terminal() and not os.environ.get("NO_COLOR") else ""
    return click.style(cell, fg=colour) if colour else cell


def prose(lines: Sequence[str]) -> None:
    """Print lines whose indentation says what belongs to what; a terminal has them in full, with states in colour."""
    width = shutil.get_terminal_size().columns if is_terminal() else 0
    for line in lines:
        text = clean(line, one_line=True)
        indent = len(text) - len(text.lstrip())
        pieces = (
            textwrap.wrap(text, width, subsequent_indent=" " * (indent + 2), break_on_hyphens=False) if width else []
        )
        for piece in pieces or [text]:
            click.echo(re.sub(r"\S+", lambda word: _coloured(word[0]), piece) if not indent else piece)


def style_of(word: str) -> str:
    """Colour of a state."""
    if word[:1] in _ICONS:
        return _ICONS[word[:1]]
    upper = word.upper()
    if upper in GOOD:
        return "green"
    return "red" if upper in BAD else ""


def pairs(items: Sequence[tuple[str, str]]) -> None:
    """Print names and values, one pair a line, values aligned; empty values are left out."""
    width = max((len(name) for name, value in items if value), default=0)
    for name, value in items:
        if value:
            echo(f"{name.ljust(width)}  {clean(value, one_line=True)}")


def cell(value: object) -> str:
    """A value of a document in a table; `-` for none."""
    if value is None:
        return "-"
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def age(at: float, now: float = 0.0) -> str:
    """How long ago, in words; `-` for never."""
    return show_duration(max(0.0, (now or time.time()) - at)) if at else "-"


def say(text: str) -> None:
    """Tell the user something that is not the command's result: on standard error."""
    echo(text, err=True)


def looked(path: str, **query: object) -> Any:
    """What a host says, or the last one recorded, and on standard error what its user should know without asking."""
    from remuda.client.http import looking

    client = looking()
    answer = client.get(path, **query)
    if note := client.get("/host").get("note"):
        say(note)
    return answer

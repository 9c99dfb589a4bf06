"""How things are printed: rich on a terminal, plain text when piped, JSON when asked for.

Everything that the command line prints goes through here, and whatever others wrote is clean when it does.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from remuda.base.text import clean, clean_json
from remuda.base.units import show_duration
from remuda.cli import Printed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.text import Text

GOOD = frozenset({"RUNNING", "READY", "DONE"})
BAD = frozenset({"FAILED", "UNHEALTHY", "LOST", "DEGRADED"})

_ICONS = {"✓": "green", "○": "green", "◐": "yellow", "⊘": "yellow", "⏱": "yellow", "●": "red", "✗": "red"}


def is_terminal() -> bool:
    """Whether a person looks at standard output."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


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


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, empty: str = "nothing yet") -> None:
    """Print a table: drawn on a terminal, aligned text when piped (a header line, two spaces between columns)."""
    if not rows:
        echo(empty)
        return
    rows = [[clean(cell, one_line=True) for cell in row] for row in rows]
    if is_terminal():
        _rich_table(columns, rows)
        return
    widths = [max(len(column), *(len(row[i]) for row in rows)) for i, column in enumerate(columns)]
    for line in ([column.upper() for column in columns], *rows):
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        echo("  ".join(cells).rstrip())


def _rich_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.table import Table

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        # Only the last one, which is prose, gives way on a narrow terminal; the first, which names, is never cut.
        widest = max(len(row[0]) for row in rows) if number == 0 else None
        last = number == len(columns) - 1
        drawn.add_column(column, no_wrap=not last, overflow="fold" if last else "ellipsis", min_width=widest)
    for row in rows:
        drawn.add_row(*(words(cell, style_of(cell)) for cell in row))
    console().print(drawn)


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


def age(at: float) -> str:
    """How long ago, in words; `-` for never."""
    return show_duration(max(0.0, time.time() - at)) if at else "-"


def say(text: str) -> None:
    """Tell the user something that is not the command's result: on standard error."""
    echo(text, err=True)

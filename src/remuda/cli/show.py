"""How things are printed: rich on a terminal, plain text when piped, JSON when asked for."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from remuda.base.units import show_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

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
    click.echo(json.dumps(data, indent=2))


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, empty: str = "nothing yet") -> None:
    """Print a table: drawn on a terminal, aligned text when piped (a header line, two spaces between columns)."""
    if not rows:
        click.echo(empty)
        return
    if is_terminal():
        _rich_table(columns, rows)
        return
    widths = [max(len(column), *(len(row[i]) for row in rows)) for i, column in enumerate(columns)]
    for line in ([column.upper() for column in columns], *rows):
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        click.echo("  ".join(cells).rstrip())


def _rich_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in columns:
        # Only the last one, which is prose, gives way on a narrow terminal.
        drawn.add_column(column, no_wrap=column != columns[-1], overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(cell, style=style_of(cell)) for cell in row))
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
            click.echo(f"{name.ljust(width)}  {value}")


def age(at: float) -> str:
    """How long ago, in words; `-` for never."""
    return show_duration(max(0.0, time.time() - at)) if at else "-"


def say(text: str) -> None:
    """Tell the user something that is not the command's result: on standard error."""
    click.echo(text, err=True)

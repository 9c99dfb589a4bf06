"""`set`: change settings of a run while it is kept, or list those that can be changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from remuda.base.ids import api_path
from remuda.base.units import show_value
from remuda.cli.lazy import named
from remuda.cli.show import print_json, say, table

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.command(name="set")
@click.argument("name", shell_complete=named)
@click.argument("changes", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def set_(name: str, changes: tuple[str, ...], as_json: bool) -> None:
    """Change settings of the run NAME while it is up; without KEY=VALUE, list the settings.

    Keys are the flags of `remuda run`: max_retries=20, partitions=a100,h100, time_limit=2h. An empty value resets a
    setting. Running attempts continue; the table shows which changes apply at once and which to the next attempt.
    `remuda events NAME` shows past changes and their authors.
    """
    from remuda.client.http import connect

    host, path = connect(), api_path(name, "settings")
    views = host.post(path, {"changes": _pairs(changes)}) if changes else host.get(path)
    if as_json:
        print_json(views)
    elif changes:
        for view in views:
            when = "at once" if view["counts"] == "now" else "with its next attempt"
            say(f"{name}: {view['key']} is {show_value(view['value'])}; it counts {when}")
    else:
        rows = [[view["key"], show_value(view["value"]), view["counts"], view["meaning"][:80]] for view in views]
        table(["key", "value", "counts", "meaning"], rows)


def _pairs(changes: Sequence[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in changes:
        key, sign, value = text.partition("=")
        if not sign or not key.strip():
            raise click.UsageError(f"{text!r} is not KEY=VALUE, e.g. max_retries=20")
        if key.strip() in pairs:
            raise click.UsageError(f"{key.strip()!r} is given twice")
        pairs[key.strip()] = value.strip()
    return pairs

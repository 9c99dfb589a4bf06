"""A click group whose commands are imported when they are called."""

from __future__ import annotations

import importlib
import json
import re
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from remuda.base import words

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


EVERY: Final = "remuda.every"
"""In a context's `meta`: whether a dry run shows every task."""
_READ = frozenset({".yaml", ".yml", ".json", ".sh", ".py", ".sbatch", ".slurm"})
"""Endings of files that `up` starts."""


def examples(*commands: str) -> str:
    """The end of a page of help: what to type."""
    return "\b\nExamples:\n" + "\n".join(f"  {command}" for command in commands)


def together(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Several options as one decorator, in the order in which help shows them."""
    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)


def drawn(file: Path) -> Callable[[Any], Any]:
    """The options in a file that is drawn from the fields of a document, whose models are not loaded here.

    `type` is a list of choices, or the bounds of a whole number.
    """

    def kind(said: Any) -> Any:
        return click.Choice(said) if isinstance(said, list) else click.IntRange(**said) if said else None

    found = json.loads(file.read_text()).values()
    return together(*(click.option(*names, **more | {"type": kind(more.get("type"))}) for names, more in found))


def dry(text: str = "Show exactly what would be started, and start nothing.") -> Callable[[Any], Any]:
    """`--dry-run`, and `-v` beside it, which only `plans.tell` asks for."""
    every: dict[str, Any] = {"help": "Show every task of --dry-run, not one of each group.", "is_flag": True}
    every |= {"expose_value": False, "callback": lambda ctx, _, value: ctx.meta.update({EVERY: value})}
    return together(click.option("--dry-run", is_flag=True, help=text), click.option("-v", "--verbose", **every))


def is_file(word: str) -> bool:
    """Whether a word in the place of a command is a file that `up` starts."""
    path = Path(word)
    return path.is_file() and ("/" in word or path.suffix in _READ)


def named(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Names of workloads that begin so, for a shell; none where no host answers at once."""
    from remuda.base.errors import RemudaError
    from remuda.client.http import HostClient

    try:
        views = HostClient(timeout_s=1.0).get("/workloads", everything="true")
    except RemudaError:
        return []
    return [view["name"] for view in views if view["name"].startswith(incomplete)]


class Headed(click.Command):
    """A command whose options stand under headings: heading -> their long names; what no heading has comes last."""

    def __init__(self, *args: Any, headings: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.headings = headings or {}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As click does, by heading."""
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        rows = {long_name(one): row for one in options if (row := one.get_help_record(ctx))}
        parts = {f"{title} options": names.split() for title, names in self.headings.items()}
        listed = {name for names in parts.values() for name in names}
        parts["Other options" if parts else "Options"] = [name for name in rows if name not in listed]
        for title, names in parts.items():
            if shown := [rows[name] for name in names if name in rows]:
                with formatter.section(title):
                    formatter.write_dl(shown)


def long_name(param: click.Parameter) -> str:
    """The first long name of an option, without dashes."""
    return next((one[2:] for one in param.opts if one.startswith("--")), param.opts[0])


class NearGroup(click.Group, Headed):
    """A group that answers words of other tools, and names the nearest known command for a mistyped one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with what was meant in the message."""
        if ctx.parent is None and args[0] not in self.list_commands(ctx) and is_file(args[0]):
            args = ["up", *args]
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchOption:
            raise
        except click.UsageError:
            if Path(args[0]).suffix in _READ and not Path(args[0]).exists():
                raise click.UsageError(f"there is no file {args[0]}, and no such command", ctx) from None
            told = (words.answer(args[0]) if ctx.parent is None else "") or words.near(args[0], self.list_commands(ctx))
            raise click.UsageError(f"No such command {args[0]!r}. {told}".rstrip(), ctx) from None


_NUMBERS: Final = (
    (re.compile(r"^(.+) is not a valid (?:integer|int)(?: range)?\.$"), r"must be a whole number, not \1"),
    (re.compile(r"^(.+) is not a valid float(?: range)?\.$"), r"must be a number, not \1"),
    (re.compile(r"^(.+) is not in the range x>=(.+)\.$"), r"must be at least \2, not \1"),
    (re.compile(r"^(.+) is not in the range (.+)<=x<=(.+)\.$"), r"must be from \2 to \3, not \1"),
)
"""What click says of a number, and how we say it."""


def answered(error: click.ClickException) -> click.ClickException:
    """The same error; of an unknown option with what it is here, or the nearest one where that is near.

    What is wrong with a number is said as the fields of documents say it.
    """
    if isinstance(error, click.BadParameter):
        for pattern, ours in _NUMBERS:
            if pattern.match(error.message):
                return click.BadParameter(pattern.sub(ours, error.message), error.ctx, error.param, error.param_hint)
    if not isinstance(error, click.NoSuchOption):
        return error
    told = words.answer(error.option_name) or words.near(error.option_name, error.possibilities or ())
    return click.UsageError(f"{error.message.rstrip('.')}. {told}".rstrip(), error.ctx)


class LazyGroup(NearGroup):
    """Commands by group, as `name -> ("module:attribute", one line of help)`."""

    def __init__(self, *args: Any, groups: Mapping[str, Mapping[str, tuple[str, str]]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.groups = groups
        self.lazy = {name: command for group in groups.values() for name, command in group.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names, in the order in which they are declared."""
        del ctx
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        del ctx
        if cmd_name not in self.lazy:
            return None
        module, _, name = self.lazy[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing them."""
        del ctx
        width = max(map(len, self.lazy))
        for title, commands in self.groups.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, (_, text) in commands.items()])

"""A click group whose commands are imported when they are called."""

from __future__ import annotations

import difflib
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Mapping


#: What users of other tools type, and what does it here.
_ELSEWHERE = {
    "ps": "status", "top": "status --watch", "ls": "list", "cancel": "stop", "kill": "stop", "rm": "down --remove",
    "delete": "down --remove", "launch": "up", "submit": "run", "start": "up", "resume": "unpause",
    "control": "stop, restart, pause", "monitor": "status --watch", "setup": "init cluster", "describe": "status",
}  # fmt: skip
_NOT_BUILT = {
    "tui": "S9", "remote": "S13", "sync": "S13", "sweep": "R6", "join": "G1", "client": "G1", "model": "G3",
    "data": "G5", "queue": "G6", "task": "G6", "workflow": "G7", "web": "G10", "dashboard": "G10",
}  # fmt: skip
"""What users of other tools type, and nothing does here yet -> its row in the list of features."""


_READ = frozenset({".yaml", ".yml", ".json", ".sh", ".py", ".sbatch", ".slurm"})
"""Endings of files that `up` starts."""


def examples(*commands: str) -> str:
    """The end of a page of help: what to type."""
    return "\b\nExamples:\n" + "\n".join(f"  {command}" for command in commands)


def is_file(word: str) -> bool:
    """Whether a word in the place of a command is a file that `up` starts."""
    path = Path(word)
    return path.is_file() and ("/" in word or path.suffix in _READ)


class NearGroup(click.Group):
    """A group that names the nearest known command for a mistyped one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the nearest known command in the message."""
        if ctx.parent is None and args[0] not in self.list_commands(ctx) and is_file(args[0]):
            args = ["up", *args]
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if Path(args[0]).suffix in _READ:
                raise click.UsageError(f"there is no file {args[0]}, and no such command", ctx) from None
            if ctx.parent is None and (instead := _ELSEWHERE.get(args[0], "")):
                raise click.UsageError(f"{error.message} It is: remuda {instead}", ctx) from None
            if ctx.parent is None and (row := _NOT_BUILT.get(args[0], "")):
                raise click.UsageError(f"{args[0]} is not built yet: row {row} of docs/features.md", ctx) from None
            near = difflib.get_close_matches(args[0], self.list_commands(ctx), 1)
            if near and "Did you mean" not in error.message:
                raise click.UsageError(f"{error.message} Did you mean '{near[0]}'?", ctx) from None
            raise


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

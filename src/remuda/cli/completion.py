"""`completion`, `version`."""

from __future__ import annotations

import click

from remuda import __version__
from remuda.cli.show import echo


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script: eval "$(remuda completion bash)"."""
    from click.shell_completion import get_completion_class

    from remuda.cli import cli

    kind = get_completion_class(shell)
    assert kind is not None
    echo(kind(cli, {}, "remuda", "_REMUDA_COMPLETE").source(), exact=True)


@click.command()
def version() -> None:
    """Print the version."""
    echo(f"remuda {__version__}")

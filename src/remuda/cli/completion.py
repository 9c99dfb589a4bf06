"""`completion`, `version`."""

from __future__ import annotations

import click

from remuda import __version__


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script: eval "$(remuda completion bash)"."""
    from click.shell_completion import get_completion_class

    from remuda.cli import cli

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(cli, {}, "remuda", "_REMUDA_COMPLETE").source())


@click.command()
def version() -> None:
    """Print the version."""
    click.echo(f"remuda {__version__}")

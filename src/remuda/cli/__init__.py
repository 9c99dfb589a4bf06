"""The command line. Commands are imported when they are called; `--help` imports none of them."""

from __future__ import annotations

import io
import os
import sys
from typing import TextIO

import click

from remuda import __version__
from remuda.base.errors import RemudaError
from remuda.cli.lazy import LazyGroup

COMMANDS = {
    "up": ("remuda.cli.up:up", "Bring up a swarm and print its endpoint."),
    "serve": ("remuda.cli.up:serve", "Serve a model on this machine, without a document."),
    "down": ("remuda.cli.up:down", "Take workloads down; returns when nothing is left."),
    "scale": ("remuda.cli.up:scale", "Change the number of replicas of a swarm that is up."),
    "run": ("remuda.cli.run:run", "Start scripts and keep them running."),
    "list": ("remuda.cli.runs:list_", "List supervised runs."),
    "pause": ("remuda.cli.runs:pause", "Leave alone what runs, begin nothing new."),
    "unpause": ("remuda.cli.runs:unpause", "Go on keeping it running."),
    "stop": ("remuda.cli.runs:stop", "Stop runs; returns when nothing is left."),
    "set": ("remuda.cli.settings:set_", "Change settings of a run while it is kept; list them."),
    "restart": ("remuda.cli.runs:restart", "Begin a run again; give what failed or ended a new attempt."),
    "status": ("remuda.cli.status:status", "Show workloads, or one in detail."),
    "logs": ("remuda.cli.status:logs", "Print the output of a task."),
    "explain": ("remuda.cli.status:explain", "Say why a workload is as it is."),
    "events": ("remuda.cli.status:events", "Print the story of a workload."),
    "swarm": ("remuda.cli.swarm:swarm", "List and describe swarms."),
    "gpus": ("remuda.cli.gpus:gpus", "Show GPUs by partition: how many there are, how many are free."),
    "nodes": ("remuda.cli.nodes:nodes", "List, ban and test nodes; show what speaks against them."),
    "import": ("remuda.cli.import_:import_", "Take over what another supervisor kept."),
    "job": ("remuda.cli.job:job", "Run batch jobs and scripts against an endpoint."),
    "pool": ("remuda.cli.pool:pool", "Bring up several swarms, so many at once, and run each one's job."),
    "config": ("remuda.cli.config:config", "Check documents, show values and their origins, print schemas."),
    "init": ("remuda.cli.config:init", "Write a file of your own defaults."),
    "host": ("remuda.cli.host:host", "Start, stop and look at the host process."),
    "doctor": ("remuda.cli.doctor:doctor", "Look whether all is well; find and end what nobody wants any more."),
    "db": ("remuda.cli.db:db", "Look after the state database."),
    "demo": ("remuda.cli.demo:demo", "Show the main job on this machine, with a real engine and router."),
    "try": ("remuda.cli.try_:try_", "Real clusters on this machine, to try things and to rehearse failures."),
    "rehearse": ("remuda.cli.rehearse:rehearse", "Play a run through invented failures and compare policies."),
    "completion": ("remuda.cli.completion:completion", "Print the shell completion script."),
    "version": ("remuda.cli.completion:version", "Print the version."),
}


class Printed:
    """Whether the command has printed data for programs."""

    data = False


@click.group(
    cls=LazyGroup,
    commands=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, "--version", prog_name="remuda", message="%(prog)s %(version)s")
def cli() -> None:
    """Run LLM and GPU work on the machines you have, keep it running, and measure it."""


def main(argv: list[str] | None = None) -> int:
    """Run one command. Returns the exit code; `docs/exit-codes.md` lists them."""
    _open_closed_streams()
    Printed.data = False
    stdout = sys.stdout
    try:
        result = cli.main(argv, prog_name="remuda", standalone_mode=False)
    except (click.ClickException, RemudaError) as error:
        return _tell(error, as_json=_wants_json(argv))
    except (click.Abort, KeyboardInterrupt):
        click.echo("stopped", err=True)
        return 130
    except OSError as error:
        if not _is_refused(stdout):
            raise
        from remuda.cli.show import say

        say(f"error: standard output cannot be written: {error.strerror}")
        return 1
    except SystemExit:
        # When whoever read our output has enough, as `head` does, click replaces the stream and ends with 1.
        if sys.stdout is stdout:
            raise
        return 0
    return result if isinstance(result, int) else 0


def _wants_json(argv: list[str] | None) -> bool:
    """Whether a program waits for an answer that it has not got. What stands behind `--` is somebody else's."""
    words = sys.argv[1:] if argv is None else argv
    return not Printed.data and "--json" in (words[: words.index("--")] if "--" in words else words)


def _tell(error: click.ClickException | RemudaError, *, as_json: bool) -> int:
    """Say what is wrong, on standard error, or to a program. Returns the exit code."""
    from remuda.cli.show import print_json, say

    if isinstance(error, RemudaError):
        kind, message, hint = type(error).__name__, str(error), error.hint
        lines = [f"error: {message}", *([f"  {hint}"] if hint else [])]
    else:
        words = io.StringIO()
        error.show(words)
        kind, message, hint, lines = "UsageError", error.format_message(), "", [words.getvalue().rstrip()]
    if as_json:
        print_json({"error": {"type": kind, "message": message, "hint": hint, "exit_code": error.exit_code}})
        return error.exit_code
    for line in lines:
        say(line)
    return error.exit_code


def _open_closed_streams() -> None:
    """A stream that was closed (`>&-`) takes everything and shows it to nobody."""
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()


def _is_refused(stdout: TextIO) -> bool:
    """Whether standard output takes not even an empty line; then nothing more is tried at the end."""
    try:
        stdout.write("\n")
        stdout.flush()
    except OSError:
        sys.stdout = _nowhere()
        return True
    return False


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 - for as long as the process lives

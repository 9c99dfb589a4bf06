"""The command line. Commands are imported when they are called; `--help` imports none of them."""

from __future__ import annotations

import io
import os
import sys
from errno import EACCES, EDQUOT, EIO, ENAMETOOLONG, ENOSPC, EPERM, EROFS, ESTALE
from typing import TextIO

import click

from remuda import __version__
from remuda.base.errors import RemudaError
from remuda.base.text import brief
from remuda.cli.lazy import LazyGroup, answered

GROUPS = {
    "Serve": {
        "serve": ("remuda.cli.serve.up:serve", "Serve one model on this machine; no config file needed."),
        "up": ("remuda.cli.serve.up:up", "Start a swarm, recipe, run script or other document."),
        "apply": (
            "remuda.cli.serve.recipes:apply",
            "Bring up disaggregated prefill/decode from an srtctl recipe or your own.",
        ),
        "scale": ("remuda.cli.serve.up:scale", "Change how many replicas a running swarm has."),
        "swarm": ("remuda.cli.serve.swarm:swarm", "List swarms, or print one swarm's full settings."),
        "pool": ("remuda.cli.jobs.pool:pool", "Run a queue of swarm+job pairs from one file, N at a time."),
        "down": ("remuda.cli.serve.up:down", "Shut down swarms, runs or jobs, and check that nothing is left."),
    },
    "Batch": {
        "job": ("remuda.cli.jobs.job:job", "Run prompts or scripts against an endpoint; manage jobs."),
    },
    "Measure": {
        "bench": (
            "remuda.cli.bench.bench:bench",
            "Measure an endpoint under load, and check that the numbers are valid.",
        ),
        "sweep": ("remuda.cli.serve.sweep:sweep", "Follow, end or compare sweeps, which `apply --sweep` begins."),
        "advise": ("remuda.cli.bench.advise:advise", "Choose a measured config under latency targets."),
        "profiler": ("remuda.cli.look.profiler:profiler", "Sample GPU load, memory, watts and joules."),
    },
    "Train": {
        "run": ("remuda.cli.runs.run:run", "Run a script and restart it until it finishes."),
        "list": ("remuda.cli.runs.runs:list_", "List your runs and gangs."),
        "pause": ("remuda.cli.runs.runs:pause", "Stop restarting a run; what is running keeps running."),
        "unpause": ("remuda.cli.runs.runs:unpause", "Resume restarting a paused run."),
        "stop": ("remuda.cli.serve.up:down", "Stop runs and wait until they are gone."),
        "restart": ("remuda.cli.runs.runs:restart", "Restart a run, or the failed parts of a swarm."),
        "pull": ("remuda.cli.runs.runs:pull", "Fetch what a run wrote on a machine that shares no directory."),
        "gang": ("remuda.cli.runs.gang:gang", "Train with several ranks; a failed rank rejoins the others."),
        "set": ("remuda.cli.runs.settings:set_", "Show or change the settings of a live run."),
    },
    "Look": {
        "status": ("remuda.cli.look.status:status", "Show everything you have running, or one item in detail."),
        "logs": ("remuda.cli.look.status:logs", "Print or follow the output of a run or a replica."),
        "explain": ("remuda.cli.look.status:explain", "Explain why something is waiting, failed or restarted."),
        "events": ("remuda.cli.look.status:events", "Show the history of a swarm or run."),
    },
    "Cluster": {
        "gpus": ("remuda.cli.look.gpus:gpus", "Show how many GPUs are free, by partition and type."),
        "client": ("remuda.cli.fleet.client:client", "Make this machine a node of a fleet; status, logs, leave."),
        "health": ("remuda.cli.fleet.head:health", "Check every node of this host's fleet."),
        "nodes": ("remuda.cli.look.nodes:nodes", "List, test and ban nodes; show what went wrong on them."),
    },
    "Try it": {
        "demo": ("remuda.cli.setup.demo:demo", "Tour on this machine: serve, query, clean up."),
        "try": ("remuda.cli.setup.try_:try_", "Start a practice Slurm, or a stand-in of Kubernetes, here."),
        "rehearse": ("remuda.cli.setup.rehearse:rehearse", "Simulate a month of failures and compare policies."),
    },
    "Set up": {
        "preflight": (
            "remuda.cli.serve.recipes:preflight",
            "Check a document or a script before it takes a GPU.",
        ),
        "resolve": ("remuda.cli.serve.recipes:resolve", "Print a deployment's values and where each came from."),
        "config": ("remuda.cli.setup.config:config", "Validate config files and show where each value comes from."),
        "init": ("remuda.cli.setup.config:init", "Create a file of your defaults, or the cluster file of recipes."),
        "import": ("remuda.cli.setup.import_:import_", "Take over what Shepherd or gswarm has."),
        "host": ("remuda.cli.setup.host:host", "Start, stop or inspect the background process."),
        "doctor": ("remuda.cli.setup.doctor:doctor", "Check the installation; find and clean up leftovers."),
        "db": ("remuda.cli.setup.db:db", "Back up, restore, upgrade or prune the state database."),
        "completion": ("remuda.cli.completion:completion", "Print the tab-completion script for your shell."),
        "version": ("remuda.cli.completion:version", "Print the version."),
    },
}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}


_REFUSALS = {EACCES, EDQUOT, EIO, ENAMETOOLONG, ENOSPC, EPERM, EROFS, ESTALE}
"""What a disk or a file server says to anybody; other errors of the system are bugs."""


class Printed:
    """Whether the command has printed data for programs."""

    data = False


_BEGIN = """\b
Start here:
  remuda demo               serve a small model on this machine and ask it
  remuda try slurm          a practice cluster; then: remuda up train.sh
  remuda up FILE --dry-run  what would be started of a script or a document

Documentation: README.md and docs/ of the repository."""


@click.group(
    cls=LazyGroup,
    epilog=_BEGIN,
    groups=GROUPS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, "--version", prog_name="remuda", message="%(prog)s %(version)s")
def cli() -> None:
    """Keep training and LLM serving alive on the machines you have."""


def main(argv: list[str] | None = None) -> int:
    """Run one command. Returns the exit code; `docs/exit-codes.md` lists them."""
    _open_closed_streams()
    Printed.data = False
    stdout = sys.stdout
    try:
        result = cli.main(argv, prog_name="remuda", standalone_mode=False)
    except click.ClickException as error:
        return _tell(answered(error), as_json=_wants_json(argv))
    except RemudaError as error:
        return _tell(error, as_json=_wants_json(argv))
    except (click.Abort, KeyboardInterrupt):
        click.echo("stopped", err=True)
        return 130
    except OSError as error:
        if error.filename is None and _is_refused(stdout):
            error = OSError(error.errno, error.strerror, "standard output cannot be written")
        elif error.errno not in _REFUSALS:
            raise
        where = f"{brief(str(error.filename))}: " if error.filename is not None else ""
        return _tell(RemudaError(f"{where}{error.strerror}"), as_json=_wants_json(argv))
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
        lines = [*error.said.splitlines(), f"error: {message}", *([f"  {hint}"] if hint else [])]
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

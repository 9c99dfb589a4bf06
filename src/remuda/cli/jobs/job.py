"""`job submit | submit-script | list | status | logs | wait | cancel`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.base.ids import api_path
from remuda.cli.lazy import Headed, NearGroup, drawn, dry, examples, together
from remuda.cli.show import age, echo, pairs, print_json, say, table
from remuda.specs.places import is_here

if TYPE_CHECKING:
    from remuda.client.jobs.batches import JobRow


#: Numbers of a job that mean nothing to eyes, or are shown elsewhere.
_HIDDEN = frozenset({"done", "total", "rows", "updated", "pid"})


@click.group(cls=NearGroup)
def job() -> None:
    """Run prompts or scripts against an endpoint; manage jobs."""


class JsonText(click.ParamType[dict[str, Any]]):
    """A JSON object on the command line."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        """Read it."""
        from remuda.cli import typed

        del ctx
        return value if isinstance(value, dict) else typed.json_object(value, param.opts[0] if param else "")


JSON = JsonText()


_target_options = together(
    click.option("-n", "--name", default="", help="Swarm to send requests to."),
    click.option(
        "-c", "--config", "file", type=click.Path(path_type=Path), help="Swarm document to bring up for the job."
    ),
    click.option("--endpoint", default="", help="URL of an OpenAI-compatible server, instead of a swarm."),
    click.option("-m", "--model", default="", help="Model name; default: the swarm's, or the server's only one."),
    click.option("--api-key-env", default="", help="Variable with the API key (default: set for the endpoint)."),
    click.option("--job-id", default="", help="Name of the job; default: derived from the output's name."),
    click.option("--keep-swarm", is_flag=True, help="Leave the swarm of --config up afterwards."),
    click.option("--cpus", default=0, type=click.IntRange(min=0), help="CPUs of the driver on a cluster."),
    click.option("--mem", default="", help="Memory of the driver on a cluster, e.g. 8GB."),
    click.option("--time", "time_limit", default="", help="Time limit of the driver on a cluster, e.g. 12:00:00."),
    click.option("--mail-user", default="", help="Email address for Slurm's messages, on a cluster."),
    dry("Show what would be started outside this process."),
)


_HEADINGS = {
    "Common": "name endpoint config model input output job-kwargs limit detach dry-run verbose json",
    "Row": "input-column output-column id-column order retry-errors",
    "Request": "max-concurrency retries timeout api-key-env",
    "Checkpoint": "no-resume no-checkpointing checkpoint-dir checkpoint-tag checkpoint-interval",
    "Placement": "job-id local keep-swarm cpus mem time mail-user",
    "File": "data-backend runner num-threads shard-output native-backend native-batch-size backend-read-kwargs "
    "backend-write-kwargs ray-address",
}


@job.command(
    cls=Headed,
    headings=_HEADINGS,
    epilog=examples(
        "remuda job submit --name chat -i in.parquet -o out.parquet",
        "remuda job submit --endpoint http://host:8000/v1 -i in.jsonl -o out.jsonl --limit 20",
    ),
)
@click.argument("job_class", default="chat", metavar="[JOB]")
@_target_options
@drawn(Path(__file__).with_name("job_options.json"))
@click.option("--job-kwargs", type=JSON, default="{}", help="Arguments of the job, e.g. '{\"temperature\": 0.2}'.")
@click.option("--detach", is_flag=True, help="Return at once; the job survives this terminal.")
@click.option("--local", is_flag=True, help="Run in this process, even if the swarm is on a cluster.")
@click.option("--runner", type=click.Choice(["arrow", "pandas"]), help="Synonym of --data-backend.")
@click.option("--native-backend/--no-native-backend", default=None, help="Synonym of --data-backend arrow.")
@click.option("--backend-read-kwargs", type=JSON, default="{}", help="Arguments of the reader, as JSON.")
@click.option("--backend-write-kwargs", type=JSON, default="{}", help="Arguments of the writer, as JSON.")
@click.option("--ray-address", default="", help="Ray cluster, with --data-backend ray.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def submit(job_class: str, **options: Any) -> int:
    """Run JOB over all rows of INPUT and write OUTPUT, in the input's order.

    A job for a swarm on a cluster runs beside the swarm, and this command follows it. Other jobs run in this process.

    JOB: chat (default), completion, multi-turn, embeddings, perplexity, structured, or module:Class of your own.

    Safe to interrupt: re-run the same command to resume, with finished rows kept. Exit code 1: some rows have errors.
    """
    from remuda.cli.jobs import submitting

    return submitting.submit(job_class, options)


@job.command(name="submit-script", context_settings={"ignore_unknown_options": True})
@_target_options
@click.option("--detach", is_flag=True, help="Return at once instead of following the output.")
@click.option("--local", is_flag=True, help="Run on this machine, even if the swarm is on a cluster.")
@click.option("--retries", default=0, show_default=True, help="Retries after a failed attempt.")
@click.argument("script", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def submit_script(script: Path, args: tuple[str, ...], **options: Any) -> int:
    """Run the Python file SCRIPT with ARGS under the host, with the endpoint in its environment.

    The script gets ENDPOINT, OPENAI_BASE_URL, OPENAI_API_KEY, MODEL and REMUDA_ENDPOINT_FILE. For a swarm on a cluster
    it runs as a job of that cluster.
    """
    from remuda.cli.jobs import submitting

    return submitting.submit_script(script, args, options)


@job.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(as_json: bool) -> None:
    """List jobs, newest first."""
    from remuda.client.jobs import batches

    states = batches.list_jobs(*batches.here(), whole=as_json)
    if as_json:
        print_json([state.to_json() for state in states])
        return
    rows = [
        [state.id, state.what, state.state, _done(state), f"{state.failed:,}" if state.failed else "-",
         f"{state.rate:,.1f}" if state.rate else "-", age(state.created_at), state.output, state.reason[:60]]
        for state in states
    ]  # fmt: skip
    table(["job", "what", "state", "rows", "errors", "rows/s", "age", "output", "notes"], rows, empty="no jobs yet")


def _done(state: JobRow) -> str:
    if state.done is None:
        return "-"
    return f"{state.done:,}/{state.total:,}" if state.total else f"{state.done:,}"


@job.command()
@click.argument("job_id")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(job_id: str, as_json: bool) -> None:
    """Show one job."""
    from remuda.client.jobs import batches

    show_state(batches.job_state(*batches.here(), job_id), as_json=as_json)


def _place(state: JobRow) -> str:
    if state.backend and not is_here(state.backend):
        return "on slurm"
    return "detached" if state.detached else "foreground"


def show_state(state: JobRow, *, as_json: bool) -> None:
    """Print one job."""
    if as_json:
        print_json(state.to_json())
        return
    numbers = {**state.progress, **state.summary}
    pairs([
        ("job", f"{state.id} ({state.kind}, {_place(state)})"),
        ("what", state.what),
        ("state", state.state),
        ("reason", state.reason),
        ("slurm job", state.native),
        ("node", state.node if state.native else ""),
        ("attempt", str(state.attempt) if state.attempt > 1 else ""),
        ("swarm", state.swarm),
        ("input", state.input),
        ("output", state.output),
        ("rows", _done(state)),
        *((name.replace("_", " "), f"{value:,}" if isinstance(value, int) else f"{value:,.1f}")
          for name, value in numbers.items()
          if isinstance(value, (int, float)) and not isinstance(value, bool) and name not in _HIDDEN),
    ])  # fmt: skip


@job.command()
@click.argument("job_id")
@click.option("-f", "--follow", is_flag=True, help="Follow new lines until the job ends.")
@click.option(
    "-n", "--lines", "tail", default=0, type=click.IntRange(min=0), help="Show only the last N lines (0: all)."
)
@click.option("--raw", is_flag=True, help="Raw output, including ANSI escape codes.")
def logs(job_id: str, follow: bool, tail: int, raw: bool) -> None:
    """Print the output of a detached job or a job on a cluster. Other jobs print to their own terminal."""
    from remuda.base.errors import Conflict
    from remuda.client import reconnect
    from remuda.client.http import connect
    from remuda.client.jobs import batches

    state = batches.job_state(*batches.here(), job_id)
    if not state.detached:
        raise Conflict(f"job {state.id!r} runs in the foreground", hint="its output is in the terminal that runs it")
    client, path = connect(), api_path(state.id, "logs")
    asked = {"task": "driver/0", "tail": tail}
    for line in reconnect.follow(client, path, **asked) if follow else client.lines(path, **asked):
        click.echo(line, color=True) if raw else echo(line)


@job.command()
@click.argument("job_id")
@click.option("--json", "as_json", is_flag=True, help="Print the last state as JSON.")
def wait(job_id: str, as_json: bool) -> int:
    """Wait until the job has ended. Exit code 0: done without errors; the verdict's code for a benchmark."""
    from remuda.client.jobs import batches

    state = batches.ended(*batches.here(), job_id)
    show_state(state, as_json=as_json)
    if state.state != batches.DONE:
        return 1
    return int(state.summary.get("exit_code", 1 if state.summary.get("failed") else 0))


@job.command()
@click.argument("job_id")
def cancel(job_id: str) -> None:
    """Stop a job and keep its checkpoint: re-run the submit command to resume it."""
    from remuda.client.jobs import batches

    paths, host = batches.here()
    if host is None and batches.job_state(paths, None, job_id).detached:
        from remuda.client.http import connect

        host = connect()
    state = batches.cancel_job(paths, host, job_id)
    say(f"{state.id} is stopping" if state.state == batches.RUNNING else f"{state.id} is {state.state}")


@job.command(hidden=True)
@click.argument("folder", type=click.Path(path_type=Path))
def drive(folder: Path) -> int:
    """Run the driver of a detached job (the host starts this)."""
    from remuda.base.disk.paths import state_paths
    from remuda.client.jobs import drivers

    # One log for all that it says, wherever it runs.
    os.dup2(1, 2)
    return drivers.drive(folder, state_paths())

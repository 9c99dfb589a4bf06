"""What `job submit` and `job submit-script` do, from their options."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.base.errors import InputError
from remuda.base.paths import state_paths
from remuda.base.units import parse_duration
from remuda.batch.request import JobRequest
from remuda.cli import watch
from remuda.cli.show import print_json, say
from remuda.control import ending, jobs, swarms, targets
from remuda.control.client import connect
from remuda.control.jobs import JobFolder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from remuda.control.targets import Target


def submit(job_class: str, options: dict[str, Any]) -> int:
    """Run or send a batch job. Returns the exit code: 1 when rows have an error."""
    if options["local"] and options["detach"]:
        raise click.UsageError("give --local or --detach, not both")
    _check_backend(options)
    with _target(options) as target:
        request = _request(job_class, options, target)
        folder = JobFolder(state_paths(), options["job_id"] or jobs.new_id(request.output))
        folder.create({
            "kind": "batch", "what": request.job, "input": request.input, "output": request.output,
            "swarm": target.swarm, "detached": options["detach"],
            "progress": str(request.checkpoint_path() / "progress.json"),
        })  # fmt: skip
        if options["detach"]:
            jobs.send_job(connect(), folder, request)
            say(f"job {folder.id} runs under the host: remuda job status {folder.id}")
            click.echo(folder.id)
            return 0
        return _run(folder, request, as_json=options["as_json"])


def _run(folder: JobFolder, request: JobRequest, *, as_json: bool) -> int:
    from remuda.batch.show import ProgressView, summary_lines

    with ProgressView() as view:
        summary = jobs.run_here(folder, request, view.update)
    if as_json:
        print_json(summary.to_json())
    else:
        for line in summary_lines(summary):
            say(line)
        click.echo(summary.output)
    return 1 if summary.failed else 0


def _check_backend(options: dict[str, Any]) -> None:
    chosen = options["runner"] or options["data_backend"]
    if chosen in ("polars", "ray"):
        raise InputError(f"the data backend {chosen!r} is not available yet in this version", where="--data-backend",
                         hint="available: arrow, pandas")  # fmt: skip
    options["data_backend"] = "arrow" if options["native_backend"] else chosen
    if options["mail_user"]:
        say("note: --mail-user has no effect here: jobs run on this machine, which sends no mail")


def _request(job_class: str, options: dict[str, Any], target: Target) -> JobRequest:
    return JobRequest(
        endpoint=target.endpoint,
        model=target.model,
        input=_absolute(options["input_"]),
        output=_absolute(options["output"]),
        job=job_class,
        job_kwargs=options["job_kwargs"],
        api_key_env=target.api_key_env,
        api_key_file=target.api_key_file,
        checkpoint_dir=_absolute(options["checkpoint_dir"]) if options["checkpoint_dir"] else "",
        checkpoint_tag=options["checkpoint_tag"],
        resume=not options["no_resume"],
        checkpointing=not options["no_checkpointing"],
        retry_errors=options["retry_errors"],
        max_concurrency=options["max_concurrency"],
        retries=options["retries"],
        timeout_s=parse_duration(options["timeout"]),
        order=options["order"],
        slots=target.slots,
        num_threads=options["num_threads"],
        limit=options["limit"],
        input_column=options["input_column"],
        output_columns=options["output_columns"],
        id_column=options["id_column"],
        data_backend=options["data_backend"],
        native_batch_size=options["native_batch_size"],
        read_kwargs=options["backend_read_kwargs"],
        write_kwargs=options["backend_write_kwargs"],
        shard_output=options["shard_output"],
        checkpoint_interval=options["checkpoint_interval"],
    )


def _absolute(path: str) -> str:
    """The driver may run elsewhere; patterns stay what they are."""
    folder = path.endswith("/")
    return str(Path(path).expanduser().absolute()) + ("/" if folder else "")


@contextmanager
def _target(options: dict[str, Any]) -> Iterator[Target]:
    """Where requests go; a swarm of `--config` is brought up for it, and taken down afterwards."""
    given = [flag for flag in ("name", "file", "endpoint") if options[flag]]
    if len(given) != 1:
        raise click.UsageError("give one of --name SWARM, --config FILE or --endpoint URL")
    if options["endpoint"]:
        target = targets.of_endpoint(options["endpoint"], options["model"], options["api_key_env"])
        if target.api_key_env and not options["api_key_env"]:
            say(f"note: requests to {target.endpoint} carry the key in {target.api_key_env}")
        yield target
        return
    if options["name"]:
        yield targets.of_swarm(options["name"], options["model"], options["api_key_env"], say)
        return
    planned = swarms.plan(options["file"])
    view = swarms.bring_up(planned)
    is_ours = view["uid"] == planned.workload.uid
    stays = options["keep_swarm"] or options["detach"] or not is_ours
    try:
        watch.announce(watch.until_up(view, planned.workload))
        yield targets.of_swarm(view["name"], options["model"], options["api_key_env"], say)
    finally:
        if stays:
            say(f"swarm {view['name']} stays up; take it down with: remuda down {view['name']}")
        else:
            for name in ending.take_down([view["name"]], tell=say):
                say(f"{name} is down")


def submit_script(script: Path, args: Sequence[str], options: dict[str, Any]) -> int:
    """Send a script to the host; follow it unless it is detached. Returns the script's fate as an exit code."""
    with _target(options) as target:
        folder = JobFolder(state_paths(), options["job_id"] or jobs.new_id(script.name))
        folder.create({
            "kind": "script", "what": str(script.absolute()), "swarm": target.swarm, "detached": True,
            "input": "", "output": "", "progress": "",
        })  # fmt: skip
        env = {
            "ENDPOINT": target.endpoint, "MODEL": target.model, "OPENAI_BASE_URL": f"{target.endpoint}/v1",
        }  # fmt: skip
        if not target.api_key_file:
            env["OPENAI_API_KEY"] = "none"
        client = connect()
        argv = [sys.executable, str(script.absolute()), *args]
        jobs.send_script(client, folder, argv, env, target.api_key_file, options["retries"] + 1)
        if options["detach"]:
            say(f"job {folder.id} runs under the host: remuda job status {folder.id}")
            click.echo(folder.id)
            return 0
        say(f"job {folder.id}; Ctrl-C leaves it running (stop it with: remuda job cancel {folder.id})")
        _follow(client, folder.id)
        state = jobs.ended(state_paths(), client, folder.id)
        say(f"{folder.id} is {state.state}{': ' + state.reason if state.reason else ''}")
        return 0 if state.state == jobs.DONE else 1


def _follow(client: Any, job_id: str) -> None:
    import time

    while client.get(f"/workloads/{job_id}")["tasks"] == []:
        time.sleep(0.05)
    for line in client.lines(f"/workloads/{job_id}/logs", task="driver/0", follow="true", tail=0):
        click.echo(line)

"""What `job submit` and `job submit-script` do, from their options."""

from __future__ import annotations

import shutil
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from remuda.base.disk.paths import state_paths
from remuda.base.errors import Conflict, InputError
from remuda.base.extras import need_batch
from remuda.base.settings import setting
from remuda.batch.input.expand import absolute
from remuda.batch.request import JobRequest
from remuda.batch.show import ProgressView
from remuda.cli import plans, typed, watch
from remuda.cli.jobs import following
from remuda.cli.show import echo, say
from remuda.client import ending, submission
from remuda.client.http import connect
from remuda.client.jobs import batches, drivers, targets
from remuda.look import planning
from remuda.views.job_folders import JobFolder, new_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from remuda.client.jobs.drivers import Sent
    from remuda.client.jobs.targets import Target
    from remuda.plan.job import Beside


def submit(job_class: str, options: dict[str, Any]) -> int:
    """Run or send a batch job. Returns the exit code: 1 when rows have an error."""
    if options["local"] and options["detach"]:
        raise click.UsageError("give --local or --detach, not both")
    _check_backend(options)
    need_batch("a batch job takes")
    from remuda.batch.prepare import check

    with _target(options) as target:
        request = _request(job_class, options, target)
        place = _place(target, options)
        if place is not None:
            check(request)
        folder = JobFolder(state_paths(), options["job_id"] or new_id(request.output))
        is_sent = options["detach"] or options["dry_run"] or place is not None
        sent = drivers.batch(folder, request, place) if is_sent else None
        if sent is not None and _is_shown(sent, options):
            return 0
        folder.begin("batch", request.job, target.swarm, _backend(place) if is_sent else "", request)
        if sent is None:
            return _run(folder, request, as_json=options["as_json"])
        drivers.send(connect(), folder, sent)
        if options["detach"]:
            return left(folder, place)
        return following.follow_job(folder, as_json=options["as_json"])


def _is_shown(sent: Sent, options: dict[str, Any]) -> bool:
    """Whether it is a dry run, which ends with what would be sent."""
    as_json, dry_run = bool(options.get("as_json")), options["dry_run"]
    return plans.tell(planning.answered([sent.plan], dry_run=dry_run), dry_run=dry_run, as_json=as_json)


def _place(target: Target, options: dict[str, Any]) -> Beside | None:
    """The swarm beside which it is to run; None for this machine."""
    names = {"cpus": "--cpus", "mem": "--mem", "time_limit": "--time", "mail_user": "--mail-user"}
    given = {name: options[name] for name in names} | {"mail_user": options["mail_user"] or setting("MAIL_USER")}
    place = drivers.place_of(connect(), target.swarm, here=options["local"], **given) if target.swarm else None
    if place is not None:
        return place
    unused = [flag for name, flag in names.items() if options[name]]
    if unused:
        say(f"note: {', '.join(unused)} has no effect here: the job runs on this machine")
    return None


def _backend(place: Beside | None) -> str:
    return place.swarm.backend if place is not None else "local"


def left(folder: JobFolder, place: Beside | None) -> int:
    """Say where a job runs that nobody waits for."""
    where = "runs under the host" if place is None else f"runs on {place.swarm.backend}, beside {place.swarm.name}"
    say(f"job {folder.id} {where}: remuda job status {folder.id}")
    echo(folder.id)
    return 0


def _run(folder: JobFolder, request: JobRequest, *, as_json: bool) -> int:
    say(f"job {folder.id}")
    view = ProgressView()
    try:
        with view:
            summary = batches.run_here(folder, request, view.update)
    except (InputError, Conflict):
        if not view.has_begun:  # the user is told here and now, so `job list` need not
            shutil.rmtree(folder.path, ignore_errors=True)
        raise
    return following.show_summary(summary, as_json=as_json)


def _check_backend(options: dict[str, Any]) -> None:
    chosen = options["runner"] or options["data_backend"]
    if chosen in ("polars", "ray"):
        raise InputError(f"the data backend {chosen!r} is not available yet in this version", where="--data-backend",
                         hint="available: arrow, pandas")  # fmt: skip
    options["data_backend"] = "arrow" if options["native_backend"] else chosen


def _request(job_class: str, options: dict[str, Any], target: Target) -> JobRequest:
    return JobRequest.of(
        options,
        target,
        input=absolute(options["input_"]),
        output=absolute(options["output"]),
        job=job_class,
        endpoint_file="",
        checkpoint_dir=absolute(options["checkpoint_dir"]) if options["checkpoint_dir"] else "",
        resume=not options["no_resume"],
        checkpointing=not options["no_checkpointing"],
        timeout_s=typed.duration(options["timeout"], "--timeout"),
        limit=options["limit"] or 0,
        read_kwargs=options["backend_read_kwargs"],
        write_kwargs=options["backend_write_kwargs"],
        name="",
    )


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
    if options["dry_run"]:
        raise click.UsageError("--dry-run needs a swarm that is up: --name, or --endpoint")
    planned = submission.ask("swarm", file=str(options["file"]))
    plans.tell(planned)
    (one,), (view,) = planned["plans"], submission.send(planned, repeats=True)
    is_ours = view["uid"] == one["uid"]
    stays = options["keep_swarm"] or options["detach"] or not is_ours
    try:
        watch.announce(watch.until_up(view, one))
        yield targets.of_swarm(view["name"], options["model"], options["api_key_env"], say)
    except following.LeftRunning:
        stays = True
        raise
    finally:
        if stays:
            say(f"swarm {view['name']} stays up; take it down with: remuda down {view['name']}")
        else:
            for name in ending.take_down([view["name"]], uid=view["uid"], tell=say):
                say(f"{name} is down")


def submit_script(script: Path, args: Sequence[str], options: dict[str, Any]) -> int:
    """Send a script to the host; follow it unless it is detached. Returns the script's fate as an exit code."""
    with _target(options) as target:
        place = _place(target, options)
        folder = JobFolder(state_paths(), options["job_id"] or new_id(script.name))
        wanted = drivers.Script(
            argv=(sys.executable, str(script.absolute()), *args), endpoint=target.endpoint, model=target.model,
            endpoint_file=target.endpoint_file, key_file=target.api_key_file, key_env=target.api_key_env,
        )  # fmt: skip
        sent = drivers.script(folder, wanted, max_failures=options["retries"] + 1, place=place)
        if _is_shown(sent, options):
            return 0
        folder.begin("script", str(script.absolute()), target.swarm, _backend(place))
        drivers.send(connect(), folder, sent)
        if options["detach"]:
            return left(folder, place)
        return following.follow_script(folder)

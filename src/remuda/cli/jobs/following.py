"""A job that runs elsewhere, seen from here until it has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remuda.base.errors import HostUnreachable, Interrupted
from remuda.base.ids import api_path
from remuda.batch.progress import Progress
from remuda.batch.show import ProgressView, summary_lines
from remuda.cli.show import echo, print_json, say
from remuda.client import mirror, reconnect
from remuda.client.http import connect
from remuda.client.jobs import batches, drivers

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.batch.request import Summary
    from remuda.client.http import HostClient
    from remuda.client.jobs.batches import JobRow
    from remuda.views.job_folders import JobFolder


class LeftRunning(Interrupted):
    """Nobody looks any more, and the job goes on."""


def _left(folder: JobFolder) -> LeftRunning:
    name = folder.id
    hint = f"come back: remuda job wait {name}; its output: remuda job logs {name} -f; end: remuda job cancel {name}"
    return LeftRunning(f"job {name} keeps running without this terminal", hint=hint)


def follow_job(folder: JobFolder, *, as_json: bool) -> int:
    """Show a batch job's progress until it has ended; its exit code, 1 when rows have an error.

    Raises:
        LeftRunning: Ctrl-C.
        RemudaError: it failed, or was cancelled.
    """
    say(f"job {folder.id} is sent; Ctrl-C leaves it running (end it with: remuda job cancel {folder.id})")
    try:
        with ProgressView() as view:
            state = _until_ended(folder, view)
    except KeyboardInterrupt:
        raise _left(folder) from None
    summary = batches.summary_of(state)
    if summary is None:
        say(f"{state.id} is done")
        return 0
    return show_summary(summary, as_json=as_json)


def show_summary(summary: Summary, *, as_json: bool) -> int:
    """Print what a job came to; its exit code."""
    if as_json:
        print_json(summary.to_json())
    else:
        for line in summary_lines(summary):
            say(line)
        echo(summary.output)
    return 1 if summary.failed else 0


def _until_ended(folder: JobFolder, view: ProgressView) -> JobRow:
    """The last state of a job."""
    told = ""
    for state in drivers.until_ended(folder):
        line = _line(state)
        if line != told:
            told = line
            say(line)
        if state.progress and state.state == batches.RUNNING:
            view.update(Progress.from_json(state.progress))
    return state


def _line(state: JobRow) -> str:
    """Where the driver is, in one line that changes when there is news."""
    where = f" on {state.node} (job {state.native})" if state.node and state.state == batches.RUNNING else ""
    attempt = f", attempt {state.attempt}" if state.attempt > 1 else ""
    reason = f": {state.reason}" if state.reason and state.state not in batches.ENDED else ""
    return f"{state.id}: {state.state}{where}{attempt}{reason}"


def follow_script(folder: JobFolder) -> int:
    """Show a script's output until it has ended; its fate as an exit code.

    Raises:
        LeftRunning: Ctrl-C.
    """
    say(f"job {folder.id}; Ctrl-C leaves it running (stop it with: remuda job cancel {folder.id})")
    client = connect()
    try:
        print_output(client, folder.id, "driver/0")
        state = batches.ended(folder.paths, client, folder.id)
    except KeyboardInterrupt:
        raise _left(folder) from None
    say(f"{folder.id} is {state.state}{': ' + state.reason if state.reason else ''}")
    return 0 if state.state == batches.DONE else 1


def print_output(client: HostClient, name: str, task: str, tell: Callable[[str], None] = echo) -> None:
    """Print what a task writes until it has ended, or nothing will come of it.

    Args:
        client: of the host.
        name: of the workload.
        task: which has not begun yet, it may be.
        tell: prints a line.
    """
    told = ""
    try:
        for (view,) in mirror.wait(client, [name]):
            if _has_run(view, task):
                break
            reason = str(view["reason"])
            if reason and reason != told:
                told = reason
                say(f"{name}: {reason}")
            if view["phase"] in ("FAILED", "DONE", "DOWN", "STOPPED"):
                return
        for line in reconnect.follow(client, api_path(name, "logs"), task=task, tail=0):
            tell(line)
    except HostUnreachable as error:
        say(f"{error}; {name} keeps running")


def _has_run(view: dict[str, Any], name: str) -> bool:
    mine = (task for task in view["tasks"] if task["task"] == name)
    return any(task["attempt"] and task["phase"] not in ("submitting", "pending") for task in mine)

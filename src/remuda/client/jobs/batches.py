"""Batch jobs and scripts: their folders, how they are found again, and how they are run in the user's process.

A job is a folder in the state directory, whoever runs it: the user's own process, or a driver that the supervisor keeps
alive. What is known of it is a row, which the host keeps (`host/reconcilers/job_rows.py`). Where none runs, whoever
looks takes the folders in as the next host will, and records nothing; so a host is needed only for what is detached.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections import deque
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from remuda.base import errors
from remuda.base.errors import Conflict, HostUnreachable, Interrupted, RemudaError, Unwritable
from remuda.base.ids import api_path
from remuda.base.units import show_counted
from remuda.store.rows import WHOLE, JobRow
from remuda.supervise import jobs as states
from remuda.supervise.jobs import DONE, ENDED, FAILED, RUNNING, STOPPED, due, taken_in
from remuda.views.job_folders import OUTCOME, OWNER, JobFolder, find, folders
from remuda.wire.fields import known
from remuda.wire.process import identify, is_alive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from remuda.base.disk.paths import StatePaths
    from remuda.batch.job import SwarmJob
    from remuda.batch.progress import Progress
    from remuda.batch.request import JobRequest, Summary
    from remuda.client.http import HostClient

__all__ = ["DONE", "ENDED", "FAILED", "RUNNING", "STOPPED", "JobRow"]


def here() -> tuple[StatePaths, HostClient | None]:
    """The state directory, and its host if one runs; jobs of the foreground need none."""
    from remuda.base.disk.paths import state_paths
    from remuda.client.http import running

    return state_paths(), running()


def list_jobs(paths: StatePaths, client: HostClient | None, *, whole: bool = True) -> list[JobRow]:
    """All jobs, newest first; with all of their fields, or those that lists show."""
    if client is None:
        rows = list(_offline(paths, brief=() if whole else (DONE, FAILED, STOPPED)).values())
    else:
        rows = _rows(**client.get("/jobs", brief=not whole))
    return sorted(rows, key=lambda row: -row.created_at)


def job_state(paths: StatePaths, client: HostClient | None, job_id: str) -> JobRow:
    """One job, by its id; by the name that its id was made of, the newest.

    Raises:
        NotFound: there is none.
        Conflict: it is something else.
    """
    if client is None:
        return find(_offline(paths, job_id), job_id, folders(paths))
    return _rows(**client.get("/jobs", name=job_id))[0]


def _rows(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[JobRow]:
    """Rows of an answer; a host of another version may have other columns."""
    if tuple(columns) == WHOLE[: len(columns)]:
        return [JobRow(*row) for row in rows]
    return [JobRow(**{name: cell for name, cell in zip(columns, row, strict=True) if name in WHOLE}) for row in rows]


_note = cache(partial(logging.getLogger("remuda").warning, "note: %s"))  # who waits is told once


def _offline(paths: StatePaths, prefix: str = "", brief: Sequence[str] = ()) -> dict[str, JobRow]:
    """Jobs whose ids begin so, as the next host will have them."""
    from remuda.base.settings import database_url
    from remuda.store.peek import peek_jobs

    names = frozenset(name for name in folders(paths) if name.startswith(prefix))
    try:
        rows = {row.id: row for row in peek_jobs(database_url(paths), prefix, brief) if row.id in names}
    except RemudaError as error:
        _note(f"{error}; jobs are shown as their folders say")
        rows = {}
    now = time.time()
    for name in due(rows, names, (), now):
        if (seen := JobFolder(paths, name).look()) is not None:
            rows[name] = taken_in(rows.get(name), seen, None, now - seen.heard_at, now)
    return rows


def summary_of(state: JobRow) -> Summary | None:
    """What a job that has ended came to; None where its driver left no numbers.

    Raises:
        RemudaError: it failed, or was cancelled; as what it was where it ran.
    """
    from remuda.batch.request import Summary

    if state.state == DONE:
        numbers = known(Summary, state.summary)
        return Summary(**numbers) if numbers else None
    told = state.to_json()
    kind: Any = getattr(errors, told["error"] or "RemudaError", RemudaError)
    if not (isinstance(kind, type) and issubclass(kind, RemudaError)):
        kind = RemudaError
    reason = f": {state.reason}" if state.reason else ""
    hint = told["hint"] or f"its output: remuda job logs {state.id}"
    made: RemudaError = kind(f"job {state.id} is {state.state}{reason}", hint=hint)
    raise made


def failure(error: RemudaError) -> dict[str, Any]:
    """What a job's folder keeps of the error that ended it."""
    return {"state": FAILED, "reason": str(error), "hint": error.hint, "error": type(error).__name__}


def run_here(
    folder: JobFolder,
    request: JobRequest,
    on_progress: Callable[[Progress], None] | None,
    job: SwarmJob | None = None,
    ends: tuple[type[RemudaError], ...] = (RemudaError,),
) -> Summary:
    """Run a batch job in this process, and leave its outcome in the folder.

    Args:
        folder: of the job.
        request: what to do.
        on_progress: called about twice a second.
        job: used instead of the class that the request names.
        ends: errors that are the end of the job. After others somebody will begin it again, so the folder says nothing.

    Raises:
        RemudaError: what ended it; the folder says so too.
    """
    (folder.path / OUTCOME).unlink(missing_ok=True)
    folder.write(OWNER, identify(os.getpid()).__dict__)
    from remuda.batch.driver import run_job

    def tell(progress: Progress) -> None:
        with suppress(OSError):
            os.utime(folder.path / OWNER)
        if on_progress is not None:
            on_progress(progress)

    try:
        summary = run_job(request, tell, job=job)
    except Interrupted as error:
        if issubclass(Interrupted, ends):
            with suppress(Unwritable):
                folder.write(OUTCOME, {"state": STOPPED, "reason": error.message})
        raise
    except ends as error:
        with suppress(Unwritable):
            folder.write(OUTCOME, failure(error))
        raise
    rows = show_counted(summary.failed, "row", "has", "have")
    reason = f"{rows} an error" if summary.failed else ""
    folder.write(OUTCOME, {"state": DONE, "reason": reason, "summary": summary.to_json()})
    return summary


def cancel_job(paths: StatePaths, client: HostClient | None, job_id: str) -> JobRow:
    """Stop a job. Its checkpoint stays, and the same command resumes.

    Raises:
        NotFound: there is none of that id.
        Conflict: it has ended.
    """
    state = job_state(paths, client, job_id)
    if state.state in ENDED:
        raise Conflict(f"job {state.id!r} is {state.state} already")
    if state.detached:
        if client is None:
            raise HostUnreachable(
                "the host is not running, so the job cannot be stopped", hint="start one: remuda host start"
            )
        client.post(api_path(state.id, "down"))
    elif (owner := JobFolder(paths, state.id).owner()) is not None and is_alive(owner):
        os.kill(owner.pid, signal.SIGINT)
    return job_state(paths, client, state.id)


_LOOK_AGAIN_S = 0.5


def wait_job(
    paths: StatePaths, client: HostClient | None, job_id: str, revive: Callable[[], HostClient] | None = None
) -> Iterator[JobRow]:
    """The job's state, and again whenever it may have changed, until it has ended; the last one is the end.

    Of a detached job the host tells; one in the foreground is files. `revive` starts the next host where one has gone.
    """
    told: Iterator[bool] | None = None
    while True:
        try:
            state = job_state(paths, client, job_id)
        except HostUnreachable:
            state = job_state(paths, None, job_id)
        job_id = state.id
        yield state
        if state.state in ENDED:
            return
        if client is not None and state.detached and state.reason != states.UNSEEN:
            told = told or _news(client, job_id)
            if next(told, False):
                continue
        told = None
        time.sleep(_LOOK_AGAIN_S)
        with suppress(RemudaError):
            client = client if revive is None else revive()


def _news(client: HostClient, job_id: str) -> Iterator[bool]:
    """At once, and whenever something of a job's workload has changed, until its host does not tell any more."""
    from remuda.client.mirror import Mirror, touched

    with suppress(Conflict, errors.Unavailable):
        yield from (True for delta in Mirror(client).life() if job_id in touched(delta, numbers=True))


def ended(paths: StatePaths, client: HostClient | None, job_id: str) -> JobRow:
    """Wait until the job has ended; its last state."""
    return deque(wait_job(paths, client, job_id), maxlen=1).pop()

"""Batch jobs and scripts: their folders, how they are found again, and how they are run in the user's process.

A job is a folder in the state directory, whoever runs it: the user's own process, or a driver that the supervisor keeps
alive. What is known of it is a row, which the host keeps (`control/jobkeeper.py`). Where none runs, whoever looks takes
the folders in as the next host will, and records nothing; so a host is needed only for what is detached.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import time
from collections import deque
from contextlib import suppress
from dataclasses import fields
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda.base import errors
from remuda.base.errors import Conflict, HostUnreachable, Interrupted, NotFound, RemudaError, Unwritable
from remuda.base.files import read_whole, write_atomic
from remuda.base.ids import SUFFIX_LENGTH, api_path, check_name, new_suffix, slug
from remuda.base.text import brief, did_you_mean
from remuda.base.units import show_counted
from remuda.store.rows import WHOLE, JobRow
from remuda.supervise import jobs as states
from remuda.supervise.jobs import DONE, ELSEWHERE, ENDED, FAILED, GONE, HERE, RUNNING, STOPPED, JobSeen, due, taken_in
from remuda.wire.process import ProcessId, boot_id, identify, is_alive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from remuda.base.paths import StatePaths
    from remuda.batch.job import SwarmJob
    from remuda.batch.progress import Progress
    from remuda.batch.request import JobRequest, Summary
    from remuda.control.client import HostClient

__all__ = ["DONE", "ENDED", "FAILED", "RUNNING", "STOPPED", "JobFolder", "JobRow"]

META = "job.json"
"""What a job is, as its folder says it."""
OUTCOME = "outcome.json"
"""File in a job's folder: what came of it. Whoever ends the job writes it, once it is over."""
_OWNER = "owner.json"
"""The process that asks its rows, or did. It is touched as long as that lives."""


def _refused(path: Path, error: OSError) -> Unwritable:
    hint = "make room and type the same command again; the rows written so far are kept"
    return Unwritable(f"{path} cannot be written: {error.strerror}", hint=hint)


def new_id(output: str) -> str:
    """A name for a job that writes `output`."""
    return f"{slug(Path(output).stem or 'job')[:30]}-{new_suffix()}"


class JobFolder:
    """The files of one job."""

    def __init__(self, paths: StatePaths, job_id: str) -> None:
        self.id = job_id
        self.paths = paths
        self.path = paths.jobs / job_id

    def begin(self, kind: str, what: str, swarm: str, backend: str = "", request: JobRequest | None = None) -> None:
        """Remember a new job; without a backend it runs in this process. See `create`."""
        self.create({
            "kind": kind, "what": what, "swarm": swarm, "detached": bool(backend), "backend": backend,
            "input": request.input if request else "", "output": request.output if request else "",
            "progress": str(request.checkpoint_path() / "progress.json") if request else "",
        })  # fmt: skip

    def create(self, meta: Mapping[str, Any]) -> None:
        """Remember a new job.

        Raises:
            Conflict: there is a job of that id.
            Unwritable: the disk refuses.
        """
        check_name(self.id)
        try:
            self.paths.folder(self.paths.jobs)
            self.path.mkdir(mode=0o700)
        except FileExistsError:
            raise Conflict(f"there is a job {self.id!r} already", hint="choose another --job-id") from None
        except OSError as error:
            raise _refused(self.path, error) from error
        try:
            self.write(META, {"created_at": time.time(), **meta})
        except Unwritable:
            shutil.rmtree(self.path, ignore_errors=True)
            raise

    def write(self, name: str, data: Mapping[str, Any]) -> None:
        """Write one of its JSON files, whole.

        Raises:
            Unwritable: the disk refuses.
        """
        try:
            write_atomic(self.path / name, json.dumps(data, indent=1), mode=0o600)
        except OSError as error:
            raise _refused(self.path, error) from error

    def read(self, name: str) -> dict[str, Any]:
        """One of its JSON files; empty when it is not there. Its path may lead anywhere: to a pipe, or a terabyte."""
        path = self.path / name
        try:
            data = json.loads(read_whole(path, 64 << 20)) if path.is_file() else None
        except (OSError, ValueError):
            return {}
        return data if isinstance(data, dict) else {}

    def owner(self) -> ProcessId | None:
        """The process that runs it, or did; None when there was none."""
        try:
            return ProcessId(**self.read(_OWNER))
        except TypeError:
            return None

    def changed_at(self, name: str) -> float:
        """When one of its files was written, seconds since the epoch; 0 when it is not there."""
        try:
            return (self.path / name).stat().st_mtime
        except OSError:
            return 0.0

    def look(self) -> JobSeen | None:
        """What its files show; None when it is no folder of a job."""
        if not (self.path / META).exists():
            return None
        meta, owner = self.read(META), self.owner()
        file = str(meta.get("progress") or "")
        heard_at = max(self.changed_at(_OWNER), self.changed_at(file) if file else 0.0)
        return JobSeen(
            self.id, meta, self.read(OUTCOME), self.changed_at(OUTCOME), self.read(file) if file else {}, heard_at,
            _life(owner) if owner else GONE, owner.pid if owner else 0,
        )  # fmt: skip


def _life(owner: ProcessId) -> str:
    if is_alive(owner):
        return HERE
    return GONE if owner.boot == boot_id() or owner.node == os.uname().nodename else ELSEWHERE


def folders(paths: StatePaths) -> frozenset[str]:
    """Names of all folders of jobs.

    Raises:
        OSError: they cannot be listed.
    """
    return frozenset(os.listdir(paths.jobs)) if paths.jobs.is_dir() else frozenset()  # noqa: PTH208 - only names


def find(rows: Mapping[str, JobRow], job_id: str, known: Iterable[str]) -> JobRow:
    """One job, by its id; by the name that its id was made of, the newest.

    Raises:
        NotFound: there is none; the nearest `known` is in the hint.
    """
    named = [row for row in rows.values() if row.id == job_id or row.id[:-SUFFIX_LENGTH] == f"{job_id}-"]
    if not named:
        hint = did_you_mean(job_id, known, "`remuda job list` shows what there is", most=3)
        raise NotFound(f"there is no job {brief(job_id)!r}", hint=hint)
    return max(named, key=lambda row: (row.id == job_id, row.created_at))


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
    from remuda.control.wiring import database_url
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
        known = {item.name for item in fields(Summary)}
        numbers = {name: value for name, value in state.summary.items() if name in known}
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
    folder.write(_OWNER, identify(os.getpid()).__dict__)
    from remuda.batch.driver import run_job

    def tell(progress: Progress) -> None:
        with suppress(OSError):
            os.utime(folder.path / _OWNER)
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
    from remuda.control.mirror import Mirror, touched

    with suppress(Conflict, errors.Unavailable):
        yield from (True for delta in Mirror(client).life() if job_id in touched(delta, numbers=True))


def ended(paths: StatePaths, client: HostClient | None, job_id: str) -> JobRow:
    """Wait until the job has ended; its last state."""
    return deque(wait_job(paths, client, job_id), maxlen=1).pop()

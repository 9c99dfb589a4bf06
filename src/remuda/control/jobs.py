"""Batch jobs and scripts: where they are remembered, how they are found again, and how they are sent to the host.

A job is a folder in the state directory, whoever runs it: the user's own process, or a driver that the supervisor keeps
alive. So `job list` sees both, and a host is needed only for what is detached.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda.base import errors
from remuda.base.errors import Conflict, HostUnreachable, Interrupted, NotFound, RemudaError, Unwritable
from remuda.base.files import write_atomic
from remuda.base.ids import SUFFIX_LENGTH, api_path, check_name, new_suffix, slug
from remuda.base.text import brief, did_you_mean
from remuda.base.units import show_counted
from remuda.specs.places import is_here
from remuda.wire.process import ProcessId, identify, is_alive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from remuda.base.paths import StatePaths
    from remuda.batch.job import SwarmJob
    from remuda.batch.progress import Progress
    from remuda.batch.request import JobRequest, Summary
    from remuda.control.client import HostClient

RUNNING, DONE, FAILED, STOPPED, WAITING, LOST = "RUNNING", "DONE", "FAILED", "STOPPED", "WAITING", "LOST"
ENDED = frozenset({DONE, FAILED, STOPPED, LOST})
META = "job.json"
"""What a job is, as its folder says it."""
OUTCOME = "outcome.json"
"""File in a job's folder: what came of it. Whoever ends the job writes it, once it is over."""


@dataclass(frozen=True)
class JobState:
    """One job as `job list` and `job status` show it."""

    id: str
    state: str
    """WAITING, RUNNING, DONE, FAILED, STOPPED, or LOST: its process was killed; the same command resumes."""
    kind: str
    """`batch` or `script`."""
    detached: bool
    created_at: float
    swarm: str
    what: str
    """Job class, or script."""
    input: str
    output: str
    reason: str
    progress: Mapping[str, Any]
    summary: Mapping[str, Any]
    backend: str = ""
    """Where its driver runs: `local`, `slurm`; empty for jobs of the foreground."""
    native: str = ""
    """The scheduler's own name of the driver: its job id."""
    node: str = ""
    attempt: int = 0
    error: str = ""
    """Class of the error that ended it."""
    hint: str = ""

    def to_json(self) -> dict[str, Any]:
        """A JSON-able dict."""
        return {**self.__dict__, "progress": dict(self.progress), "summary": dict(self.summary)}


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
        """One of its JSON files; empty when it is not there."""
        try:
            data = json.loads((self.path / name).read_text())
        except (OSError, ValueError):
            return {}
        return data if isinstance(data, dict) else {}

    def owner(self) -> ProcessId | None:
        """The process that runs it now, None when there is none."""
        try:
            owner = ProcessId(**self.read("owner.json"))
        except TypeError:
            return None
        return owner if is_alive(owner) else None


def list_jobs(paths: StatePaths, client: HostClient | None) -> list[JobState]:
    """All jobs, newest first. Without a host, detached ones show what their files say."""
    views = {view["name"]: view for view in client.get("/workloads", kind="job", everything="true")} if client else {}
    folders = [JobFolder(paths, entry.name) for entry in paths.jobs.iterdir()] if paths.jobs.is_dir() else []
    states = [_state(folder, views.get(folder.id)) for folder in folders if (folder.path / META).exists()]
    return sorted(states, key=lambda state: -state.created_at)


def job_state(paths: StatePaths, client: HostClient | None, job_id: str) -> JobState:
    """One job, by its id; by the name that its id was made of, the newest.

    Raises:
        NotFound: there is none.
    """
    known = [entry.name for entry in paths.jobs.iterdir()] if paths.jobs.is_dir() else []
    folders = [JobFolder(paths, one) for one in known if one == job_id or one[:-SUFFIX_LENGTH] == f"{job_id}-"]
    folder = max(folders, key=lambda one: (one.id == job_id, one.read(META).get("created_at", 0.0)), default=None)
    view: dict[str, Any] | None = None
    with suppress(NotFound):
        view = client.get(api_path(folder.id if folder else job_id)) if client else None
    if folder is not None:
        return _state(folder, view)
    if view is not None and view["kind"] != "job":
        raise Conflict(f"{job_id!r} is a {view['kind']}, not a job", hint=f"remuda status {job_id}")
    hint = did_you_mean(job_id, known, "`remuda job list` shows what there is", most=3)
    raise NotFound(f"there is no job {brief(job_id)!r}", hint=hint)


def _state(folder: JobFolder, view: Mapping[str, Any] | None) -> JobState:
    meta, outcome = folder.read(META), folder.read(OUTCOME)
    state, reason = _word(folder, meta, outcome, view)
    progress_file = meta.get("progress", "")
    progress: dict[str, Any] = {}
    if progress_file:
        try:
            progress = json.loads(Path(progress_file).read_text())
        except (OSError, ValueError):
            progress = {}
    task: Mapping[str, Any] = next(iter(view.get("tasks") or ()), {}) if view is not None else {}
    return JobState(
        id=folder.id,
        state=state,
        kind=str(meta.get("kind", "batch")),
        detached=bool(meta.get("detached")),
        created_at=float(meta.get("created_at", 0.0)),
        swarm=str(meta.get("swarm", "")),
        what=str(meta.get("what", "")),
        input=str(meta.get("input", "")),
        output=str(meta.get("output", "")),
        reason=reason,
        progress=progress,
        summary=outcome.get("summary") or {},
        backend=str(meta.get("backend", "")),
        native=str(task.get("native", "")) if not is_here(str(meta.get("backend") or "local")) else "",
        node=str(task.get("node", "")),
        attempt=int(task.get("attempt", 0)),
        error=str(outcome.get("error", "")),
        hint=str(outcome.get("hint", "")),
    )


def _word(
    folder: JobFolder, meta: Mapping[str, Any], outcome: Mapping[str, Any], view: Mapping[str, Any] | None
) -> tuple[str, str]:
    """State and reason: what its process wrote at its end, else who runs it, else what the supervisor says."""
    if outcome.get("state"):
        return str(outcome["state"]), str(outcome.get("reason", ""))
    if folder.owner() is not None:
        return RUNNING, ""
    if meta.get("detached") and view is not None:
        return _by_view(meta, view)
    if meta.get("detached"):
        if _is_fresh(str(meta.get("progress", ""))):
            return RUNNING, "no host runs: the job keeps running, and would not be restarted"
        return WAITING, "no host runs that could keep it going"
    return LOST, "its process was killed; type the same command again to resume"


_WORDS = {
    "DONE": DONE, "FAILED": FAILED, "DOWN": STOPPED, "STOPPING": STOPPED, "STOPPED": STOPPED, "RUNNING": RUNNING,
}  # fmt: skip
_LATE_S = 30.0
"""What another machine has written may be seen so much later on a network file system."""


def _by_view(meta: Mapping[str, Any], view: Mapping[str, Any]) -> tuple[str, str]:
    """What the supervisor says of a job whose driver has left no outcome."""
    state = _WORDS.get(str(view["phase"]), WAITING)
    since = max((float(task["since"]) for task in view.get("tasks") or ()), default=0.0)
    if state == DONE and meta.get("kind") == "batch" and 0 <= time.time() - since < _LATE_S:
        return RUNNING, "its driver has ended; what came of it is not to be seen yet"
    return state, str(view["reason"])


def _is_fresh(progress_file: str) -> bool:
    """Whether somebody has just written how far the job is."""
    try:
        return bool(progress_file) and abs(time.time() - Path(progress_file).stat().st_mtime) < _LATE_S
    except OSError:
        return False


def summary_of(state: JobState) -> Summary | None:
    """What a job that has ended came to; None where its driver left no numbers.

    Raises:
        RemudaError: it failed, or was cancelled; as what it was where it ran.
    """
    from remuda.batch.request import Summary

    if state.state == DONE:
        known = {item.name for item in fields(Summary)}
        numbers = {name: value for name, value in state.summary.items() if name in known}
        return Summary(**numbers) if numbers else None
    kind: Any = getattr(errors, state.error, RemudaError) if state.error else RemudaError
    if not (isinstance(kind, type) and issubclass(kind, RemudaError)):
        kind = RemudaError
    reason = f": {state.reason}" if state.reason else ""
    hint = state.hint or f"its output: remuda job logs {state.id}"
    made: RemudaError = kind(f"job {state.id} is {state.state}{reason}", hint=hint)
    raise made


def prune(paths: StatePaths, before: float) -> int:
    """Remove the folders of jobs that ended before `before`, seconds since the epoch; checkpoints are elsewhere."""
    gone = 0
    for entry in paths.jobs.iterdir() if paths.jobs.is_dir() else ():
        folder = JobFolder(paths, entry.name)
        outcome = entry / OUTCOME
        if folder.owner() is None and outcome.exists() and outcome.stat().st_mtime < before:
            shutil.rmtree(entry, ignore_errors=True)
            gone += 1
    return gone


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
    from remuda.batch.driver import run_job

    (folder.path / OUTCOME).unlink(missing_ok=True)
    folder.write("owner.json", identify(os.getpid()).__dict__)
    try:
        summary = run_job(request, on_progress, job=job)
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


def cancel_job(paths: StatePaths, client: HostClient | None, job_id: str) -> JobState:
    """Stop a job. Its checkpoint stays, and the same command resumes.

    Raises:
        NotFound: there is none of that id.
        Conflict: it has ended.
    """
    state = job_state(paths, client, job_id)
    if state.state in ENDED:
        raise Conflict(f"job {state.id!r} is {state.state} already")
    folder = JobFolder(paths, state.id)
    if state.detached:
        if client is None:
            raise HostUnreachable("no host runs that could end it", hint="start one: remuda host start")
        client.post(api_path(state.id, "down"))
        folder.write(OUTCOME, {"state": STOPPED, "reason": "cancelled"})
    else:
        owner = folder.owner()
        if owner is not None:
            os.kill(owner.pid, signal.SIGINT)
    return job_state(paths, client, state.id)


_LOOK_AGAIN_S = 0.5


def wait_job(paths: StatePaths, client: HostClient | None, job_id: str) -> Iterator[JobState]:
    """The job's state, twice a second, until it has ended; the last one is the end."""
    while True:
        try:
            state = job_state(paths, client, job_id)
        except HostUnreachable:
            state = job_state(paths, None, job_id)
        job_id = state.id
        yield state
        if state.state in ENDED:
            return
        time.sleep(_LOOK_AGAIN_S)


def ended(paths: StatePaths, client: HostClient | None, job_id: str) -> JobState:
    """Wait until the job has ended; its last state."""
    return deque(wait_job(paths, client, job_id), maxlen=1).pop()

"""Batch jobs and scripts: where they are remembered, how they are found again, and how they are sent to the host.

A job is a folder in the state directory, whoever runs it: the user's own process, or a driver that the supervisor keeps
alive. So `job list` sees both, and a host is needed only for what is detached.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda.base.errors import Conflict, InputError, Interrupted, NotFound, RemudaError
from remuda.base.files import write_atomic
from remuda.base.ids import check_name, new_suffix, slug
from remuda.wire.process import ProcessId, identify, is_alive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from remuda.base.paths import StatePaths
    from remuda.batch.job import SwarmJob
    from remuda.batch.progress import Progress
    from remuda.batch.request import JobRequest, Summary
    from remuda.control.client import HostClient

RUNNING, DONE, FAILED, STOPPED, WAITING, LOST = "RUNNING", "DONE", "FAILED", "STOPPED", "WAITING", "LOST"
ENDED = frozenset({DONE, FAILED, STOPPED, LOST})


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

    def to_json(self) -> dict[str, Any]:
        """A JSON-able dict."""
        return {**self.__dict__, "progress": dict(self.progress), "summary": dict(self.summary)}


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
        """
        check_name(self.id)
        try:
            self.path.mkdir(mode=0o700, parents=True)
        except FileExistsError:
            raise Conflict(f"there is a job {self.id!r} already", hint="choose another --job-id") from None
        self.write("job.json", {"created_at": time.time(), **meta})

    def write(self, name: str, data: Mapping[str, Any]) -> None:
        """Write one of its JSON files, whole."""
        write_atomic(self.path / name, json.dumps(data, indent=1), mode=0o600)

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
    states = [_state(folder, views.get(folder.id)) for folder in folders if (folder.path / "job.json").exists()]
    return sorted(states, key=lambda state: -state.created_at)


def job_state(paths: StatePaths, client: HostClient | None, job_id: str) -> JobState:
    """One job.

    Raises:
        NotFound: there is none of that id.
    """
    folder = JobFolder(paths, job_id)
    if not (folder.path / "job.json").exists():
        import difflib

        known = [entry.name for entry in paths.jobs.iterdir()] if paths.jobs.is_dir() else []
        near = difflib.get_close_matches(job_id, known, 3)
        hint = f"did you mean {', '.join(near)}?" if near else "`remuda job list` shows what there is"
        raise NotFound(f"there is no job {job_id!r}", hint=hint)
    view: dict[str, Any] | None = None
    if client is not None:
        try:
            view = client.get(f"/workloads/{job_id}")
        except NotFound:
            view = None
    return _state(folder, view)


def _state(folder: JobFolder, view: Mapping[str, Any] | None) -> JobState:
    meta, outcome = folder.read("job.json"), folder.read("outcome.json")
    state, reason = _word(folder, meta, outcome, view)
    progress_file = meta.get("progress", "")
    progress: dict[str, Any] = {}
    if progress_file:
        try:
            progress = json.loads(Path(progress_file).read_text())
        except (OSError, ValueError):
            progress = {}
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
        words = {"DONE": DONE, "FAILED": FAILED, "DOWN": STOPPED, "STOPPING": STOPPED, "RUNNING": RUNNING}
        return words.get(str(view["phase"]), WAITING), str(view["reason"])
    if meta.get("detached"):
        return WAITING, "no host runs that could keep it going"
    return LOST, "its process was killed; type the same command again to resume"


def prune(paths: StatePaths, before: float) -> int:
    """Remove the folders of jobs that ended before `before`, seconds since the epoch; checkpoints are elsewhere."""
    gone = 0
    for entry in paths.jobs.iterdir() if paths.jobs.is_dir() else ():
        folder = JobFolder(paths, entry.name)
        outcome = entry / "outcome.json"
        if folder.owner() is None and outcome.exists() and outcome.stat().st_mtime < before:
            shutil.rmtree(entry, ignore_errors=True)
            gone += 1
    return gone


def run_here(
    folder: JobFolder,
    request: JobRequest,
    on_progress: Callable[[Progress], None] | None,
    job: SwarmJob | None = None,
) -> Summary:
    """Run a batch job in this process, and leave its outcome in the folder; `job` is used instead of the named class.

    Raises:
        RemudaError: what ended it; the folder says so too.
    """
    from remuda.batch.driver import run_job

    (folder.path / "outcome.json").unlink(missing_ok=True)
    folder.write("owner.json", identify(os.getpid()).__dict__)
    try:
        summary = run_job(request, on_progress, job=job)
    except Interrupted as error:
        folder.write("outcome.json", {"state": STOPPED, "reason": error.message})
        raise
    except RemudaError as error:
        folder.write("outcome.json", {"state": FAILED, "reason": str(error), "hint": error.hint})
        raise
    reason = f"{summary.failed} rows have an error" if summary.failed else ""
    folder.write("outcome.json", {"state": DONE, "reason": reason, "summary": summary.to_json()})
    return summary


def send_job(client: HostClient, folder: JobFolder, request: JobRequest) -> None:
    """Hand a batch job to the host, whose supervisor keeps its driver alive."""
    folder.write("request.json", request.to_json())
    argv = (sys.executable, "-m", "remuda", "job", "drive", str(folder.path))
    secret_env: dict[str, Any] = {}
    if request.api_key_env:
        secret_env[request.api_key_env] = {"env": request.api_key_env}
    _send(client, folder, argv, {"REMUDA_HOME": str(folder.paths.root)}, secret_env, max_failures=5)


def send_script(
    client: HostClient, folder: JobFolder, argv: Sequence[str], env: Mapping[str, str], key_file: str, failures: int
) -> None:
    """Hand a script to the host."""
    secret_env = {"OPENAI_API_KEY": {"file": key_file}} if key_file else {}
    _send(client, folder, argv, env, secret_env, max_failures=failures)


def _send(
    client: HostClient,
    folder: JobFolder,
    argv: Sequence[str],
    env: Mapping[str, str],
    secret_env: Mapping[str, Any],
    *,
    max_failures: int,
) -> None:
    from remuda.control.planning import deliver_secrets, kept_environment
    from remuda.plan.model import Command, Group, Kind, NodeRestart, Replace, Role, Secret, Workload

    command = Command(
        argv=tuple(argv),
        env=dict(env),
        secret_env={name: Secret(**ref) for name, ref in secret_env.items()},
        cwd=str(Path.cwd()),
    )
    replace = Replace(policy="on-failure", max_failures=max_failures, backoff_initial_s=2.0, backoff_max_s=60.0)
    group = Group(
        name="driver", role=Role.DRIVER, count=1, command=command, restart=NodeRestart(policy="never"),
        replace=replace, kill_grace_s=30.0,
    )  # fmt: skip
    workload = Workload(
        name=folder.id, kind=Kind.JOB, uid=new_suffix(8), backend="local", groups=(group,),
        place={"env": kept_environment()}, run_dir=str(folder.paths.workload(folder.id)),
    )  # fmt: skip
    delivered = deliver_secrets(workload)
    client.post("/workloads", {"workload": json.loads(delivered.model_dump_json()), "spec": ""})


def drive(path: Path, paths: StatePaths) -> int:
    """What the driver task runs. Its exit code tells the supervisor whether to try again.

    Returns:
        0 when the job has ended, well or not: its folder says how; else the error's own code.
    """
    from remuda.batch.request import JobRequest
    from remuda.batch.show import ProgressView, summary_lines

    folder = JobFolder(paths, path.name)
    request = JobRequest.from_json(folder.read("request.json"))
    try:
        with ProgressView() as view:
            summary = run_here(folder, request, view.update)
        for line in summary_lines(summary):
            print(line, file=sys.stderr)  # noqa: T201 - the driver's log
    except Interrupted as error:
        return error.exit_code
    except (InputError, Conflict, NotFound) as error:
        print(f"{error}\n{error.hint}".strip(), file=sys.stderr)  # noqa: T201 - the driver's log
        return 0
    except RemudaError as error:
        # Worth another attempt: the outcome must not say that it is over.
        (folder.path / "outcome.json").unlink(missing_ok=True)
        print(f"{error}\n{error.hint}".strip(), file=sys.stderr)  # noqa: T201 - the driver's log
        return error.exit_code
    return 0


def cancel_job(paths: StatePaths, client: HostClient | None, job_id: str) -> JobState:
    """Stop a job. Its checkpoint stays, and the same command resumes.

    Raises:
        NotFound: there is none of that id.
        Conflict: it has ended.
    """
    state = job_state(paths, client, job_id)
    if state.state in ENDED:
        raise Conflict(f"job {job_id!r} is {state.state} already")
    folder = JobFolder(paths, job_id)
    if state.detached and client is not None:
        client.post(f"/workloads/{job_id}/down")
        folder.write("outcome.json", {"state": STOPPED, "reason": "cancelled"})
    else:
        owner = folder.owner()
        if owner is not None:
            os.kill(owner.pid, signal.SIGINT)
    return job_state(paths, client, job_id)


def wait_job(paths: StatePaths, client: HostClient | None, job_id: str) -> Iterator[JobState]:
    """The job's state, twice a second, until it has ended; the last one is the end."""
    while True:
        state = job_state(paths, client, job_id)
        yield state
        if state.state in ENDED:
            return
        time.sleep(0.5)


def ended(paths: StatePaths, client: HostClient | None, job_id: str) -> JobState:
    """Wait until the job has ended; its last state."""
    return deque(wait_job(paths, client, job_id), maxlen=1).pop()

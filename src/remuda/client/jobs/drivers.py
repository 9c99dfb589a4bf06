"""Drivers of jobs: how they are sent to the supervisor, here or beside a swarm, and what a driver task runs."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from remuda import enter
from remuda.base.disk.files import write_atomic
from remuda.base.errors import Conflict, InputError, Interrupted, NotFound, Rejected, RemudaError
from remuda.base.ids import api_path, new_suffix
from remuda.base.waiting import until
from remuda.batch.address import ENDPOINT_FILE
from remuda.client import submission
from remuda.client.http import connect
from remuda.client.jobs.batches import FAILED, run_here, wait_job
from remuda.look import planning
from remuda.plan.job import Beside, Driver, DriverOptions
from remuda.plan.model import Secret, Workload
from remuda.specs.backend import SlurmJob
from remuda.views.job_folders import META, OUTCOME, JobFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from remuda.base.disk.paths import StatePaths
    from remuda.batch.progress import Progress
    from remuda.batch.request import JobRequest
    from remuda.client.http import HostClient
    from remuda.client.jobs.batches import JobRow
    from remuda.plan.compile import Plan

SCRIPT: Final = "script.json"
REQUEST: Final = "request.json"
_KEY_NAMES: Final = ("OPENAI_API_KEY", "REMUDA_API_TOKEN", "DOMYN_SWARM_API_TOKEN")
"""Variables in which a script finds the key of the endpoint."""
PROGRESS_FILE: Final = "REMUDA_PROGRESS_FILE"
"""Where a task says how far it is; the node program sets it."""
_ENDPOINT_WAIT_S: Final = 600.0


def beside(
    client: HostClient, name: str, *, cpus: int = 0, mem: str = "", time_limit: str = "", mail_user: str = ""
) -> Beside:
    """The swarm `name` as the host knows it, and what the user says of the driver; empty where nothing is said.

    Raises:
        NotFound: there is none of that name.
    """
    known = client.get(api_path(name, "spec"))
    document = json.loads(known["spec"] or "{}")
    spec = SlurmJob.model_validate(document.get("backend", {}).get("job", {}))
    return Beside(Workload.model_validate(known["plan"]), spec, DriverOptions(cpus, mem, time_limit, mail_user))


def place_of(client: HostClient, swarm: str, *, here: bool = False, **asked: Any) -> Beside | None:
    """Where a job of a swarm runs, whoever sends it: beside the swarm where the host's record has it on a cluster.

    Args:
        client: of the host.
        swarm: its name; empty for an endpoint that is no swarm's.
        here: the user wants it on this machine.
        asked: what the user says of the driver, see `beside`.

    Returns:
        None for this machine.

    Raises:
        NotFound: there is none of that name.
    """
    if here or not swarm:
        return None
    place = beside(client, swarm, **asked)
    return place if can_be_beside(place.swarm) else None


def can_be_beside(swarm: Workload) -> bool:
    """Whether drivers run on the cluster of a swarm: not where its router is here, or tasks have files of their own."""
    return not swarm.is_asked_here


def endpoint_file(place: Beside) -> str:
    """Where drivers beside a swarm read where its router is."""
    return f"{place.swarm.run_dir}/{ENDPOINT_FILE}"


def until_ended(folder: JobFolder) -> Iterator[JobRow]:
    """States of a job that was sent, until it has ended; a host that has gone is started again."""
    return wait_job(folder.paths, connect(), folder.id, connect)


@dataclass(frozen=True)
class Script:
    """A user's script and what it finds in its environment."""

    argv: tuple[str, ...]
    endpoint: str
    """Base URL as it is now; empty where `endpoint_file` says it when the script starts."""
    model: str
    endpoint_file: str = ""
    key_file: str = ""
    key_env: str = ""


@dataclass(frozen=True)
class Sent:
    """A job that is to be sent."""

    plan: Plan
    files: Mapping[str, Mapping[str, Any]]
    """What its driver finds in its folder, by name."""


def batch(folder: JobFolder, request: JobRequest, place: Beside | None = None) -> Sent:
    """A batch job, whose driver the host's supervisor keeps alive.

    Args:
        folder: of the job.
        request: what to do; paths are absolute.
        place: beside which swarm; None: on the host's machine.

    Raises:
        InputError: the cluster cannot be asked for such a job.
    """
    uid = new_suffix(8)
    request = replace(request, name=folder.id, owner=f"{folder.id}.{uid}")
    if place is not None:
        request = replace(request, endpoint="", swarm_dir="", endpoint_file=endpoint_file(place))
    secrets = {request.api_key_env: Secret(env=request.api_key_env)} if request.api_key_env else {}
    return Sent(_plan(folder, _driver(folder, secrets, place), uid), {REQUEST: request.to_json()})


def script(folder: JobFolder, wanted: Script, *, max_failures: int, place: Beside | None = None) -> Sent:
    """A script. Beside a swarm on a cluster it is started by a driver, which knows the address then.

    Raises:
        InputError: the cluster cannot be asked for such a job.
    """
    secrets: dict[str, Secret] = {}
    if wanted.key_file or wanted.key_env:
        secrets = {name: Secret(file=wanted.key_file, env=wanted.key_env) for name in _KEY_NAMES}
    if place is None:
        env = script_env(wanted, wanted.endpoint, has_key=bool(secrets))
        return Sent(_plan(folder, Driver(folder.id, wanted.argv, env, secrets, max_failures)), {})
    told = {"argv": list(wanted.argv), "model": wanted.model, "endpoint_file": endpoint_file(place)}
    driver = replace(_driver(folder, secrets, place), max_failures=max_failures)
    return Sent(_plan(folder, driver), {SCRIPT: told})


def driver(
    folder: JobFolder, files: Mapping[str, Mapping[str, Any]], variables: Sequence[str] = (),
    place: Beside | None = None,
) -> Sent:  # fmt: skip
    """A driver that finds in its folder what to do, and keys in those variables.

    Raises:
        InputError: the cluster cannot be asked for such a job.
    """
    secrets = {name: Secret(env=name) for name in variables if name}
    return Sent(_plan(folder, _driver(folder, secrets, place)), files)


def send(client: HostClient, folder: JobFolder, sent: Sent) -> None:
    """Hand a job to the host; what is not accepted leaves no folder behind.

    Raises:
        InputError: a secret is missing.
    """
    try:
        for name, data in sent.files.items():
            folder.write(name, data)
        submission.send_plans([sent.plan], client, repeats=True)
    except RemudaError:
        shutil.rmtree(folder.path, ignore_errors=True)
        raise


def script_env(script: Script, endpoint: str, *, has_key: bool) -> dict[str, str]:
    """What a script finds in its environment, the key aside."""
    env = {"ENDPOINT": endpoint, "MODEL": script.model, "OPENAI_BASE_URL": f"{endpoint}/v1"}
    if script.endpoint_file:
        env["REMUDA_ENDPOINT_FILE"] = script.endpoint_file
    if not has_key:
        # The client library wants one, whatever it is.
        env["OPENAI_API_KEY"] = "none"
    return env


def _driver(folder: JobFolder, secrets: Mapping[str, Secret], place: Beside | None) -> Driver:
    """A driver that finds in its folder what to do."""
    # -P: it is started where the command was typed, and no file there may pass for a module of ours.
    argv = (sys.executable, "-P", *enter.words("drive"), str(folder.path))
    return Driver(folder.id, argv, {"REMUDA_HOME": str(folder.paths.root)}, secrets, beside=place)


def _plan(folder: JobFolder, driver: Driver, uid: str = "") -> Plan:
    return planning.plan("job", driver, planning.facts_of(folder.paths), uid)


def drive(path: Path, paths: StatePaths) -> int:
    """What the driver task runs. Its exit code tells the supervisor whether to try again.

    Returns:
        0 when the job has ended, well or not: its folder says how; else the error's own code.
    """
    if not (path / META).is_file():
        from remuda.client.bench import deployed

        return deployed.drive(path)
    folder = JobFolder(paths, path.name)
    kind = str(folder.read(META)["kind"])
    if kind == "benchmark":
        from remuda.client.bench import job

        return job.drive(folder)
    return _drive_script(folder) if kind == "script" else _drive_batch(folder)


def _drive_batch(folder: JobFolder) -> int:
    """Ask all rows; what may pass by another attempt is its exit code."""
    from remuda.batch.address import EndpointGone
    from remuda.batch.request import JobRequest
    from remuda.batch.show import ProgressView, summary_lines

    request = JobRequest.from_json(folder.read(REQUEST))
    lasting = (InputError, Conflict, NotFound, Rejected, EndpointGone)
    try:
        with ProgressView() as view:
            summary = run_here(folder, request, _and_tell(view.update), ends=lasting)
        for line in summary_lines(summary):
            say(line)
    except lasting as error:
        say(f"{error}\n{error.hint}".strip())
        return 0
    except RemudaError as error:
        # Worth another attempt; also when it was asked to end, which the supervisor knows more of.
        if not isinstance(error, Interrupted):
            say(f"{error}\n{error.hint}".strip())
        return error.exit_code
    return 0


def _and_tell(update: Callable[[Progress], None]) -> Callable[[Progress], None]:
    """Tell the supervisor, too, how many rows are done: a driver that gets on is not given up."""
    file = os.environ.get(PROGRESS_FILE, "")

    def tell(progress: Progress) -> None:
        update(progress)
        if file:
            with suppress(OSError):
                write_atomic(Path(file), json.dumps({"step": progress.done}), sync=False)

    return tell


def _drive_script(folder: JobFolder) -> int:
    """Become the user's script, with the address of the endpoint as it is now."""
    told = folder.read(SCRIPT)
    file = str(told["endpoint_file"])
    try:
        endpoint = address_in(file)
    except RemudaError as error:
        say(error.message)
        if not isinstance(error, NotFound):
            return 5
        folder.write(OUTCOME, {"state": FAILED, "reason": error.message})
        return 0
    wanted = Script(tuple(told["argv"]), "", str(told["model"]), file)
    has_key = bool(os.environ.get(_KEY_NAMES[0]))
    return _become(wanted.argv, {**os.environ, **script_env(wanted, endpoint, has_key=has_key)})


def address_in(file: str) -> str:
    """URL of an endpoint, once its file says it.

    Raises:
        NotFound: it was taken down.
        RemudaError: the file says nothing for ten minutes.
    """
    from remuda.batch.address import EndpointAddress

    address = EndpointAddress(file)
    deadline = time.monotonic() + _ENDPOINT_WAIT_S

    def base() -> str:
        if not (found := address.read()) and (gone := address.gone()):
            raise NotFound(gone)
        if not found and time.monotonic() > deadline and not address.is_coming():
            raise RemudaError(f"{file} has not said where the endpoint is for {_ENDPOINT_WAIT_S:.0f} s")
        return found

    return until(base, pause_s=0.5)


def _become(argv: Sequence[str], env: Mapping[str, str]) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvpe(argv[0], list(argv), dict(env))  # noqa: S606 - the user's own script


def say(text: str) -> None:
    """One line of the driver's log."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - the driver's log

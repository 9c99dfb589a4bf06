"""What faces do with gangs: plan, start, follow, look at their rounds. Runs in the user's process."""

from __future__ import annotations

import shutil
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, cast

from remuda.backends.local.devices import present_gpus
from remuda.base.errors import InputError, RemudaError
from remuda.base.files import remove_empty
from remuda.base.ids import api_path, check_name, new_suffix
from remuda.base.paths import state_paths
from remuda.base.private import make_private
from remuda.control import again, planning, runs
from remuda.control.client import HostClient, connect
from remuda.control.runs import PlannedScript, Said
from remuda.control.scripts import find_script, read_script
from remuda.plan.gang import RENDEZVOUS, RUN_ID, gang_name, plan_gang, rendezvous_of
from remuda.plan.model import Kind
from remuda.plan.run import RunSite
from remuda.specs.gang import GangSpec
from remuda.specs.load import Loaded, load

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from remuda.plan.model import Workload
    from remuda.specs.resolve import Override

_BEGUN = frozenset({"starting", "ready", "unhealthy", "waiting", "stopping", "stopped", "failed", "done"})
"""Phases of a task with an attempt whose output may be read."""
INSTALL = "pip install 'remuda[gang]'"


@dataclass(frozen=True)
class PlannedGang(PlannedScript):
    """A gang as it would be started."""

    spec: GangSpec


def plan(file: str, overrides: Sequence[Override] = ()) -> PlannedGang:
    """Plan a gang. Nothing is started or written.

    Args:
        file: its document; empty where the overrides say all.
        overrides: from the command line; they win.

    Raises:
        InputError: something is wrong; says where.
    """
    loaded = load(file or None, overrides)
    if not isinstance(loaded.spec, GangSpec):
        hint = "begin the document with `kind: gang`" if loaded.kind == "run" else ""
        raise InputError(f"is a {loaded.kind}, and a gang is needed here", hint=hint, where=file)
    try:
        return _plan(cast("Loaded[GangSpec]", loaded))
    except InputError as error:
        raise loaded.locate(error) from error


def _plan(loaded: Loaded[GangSpec]) -> PlannedGang:
    spec, paths = loaded.spec, state_paths()
    name = check_name(gang_name(spec), where="name")
    run_dir, uid = paths.workload(name), new_suffix(8)
    text, copy = "", None
    if spec.script:
        script = find_script(spec.script, loaded.file)
        text = read_script(script)
        copy = run_dir / "scripts" / uid / script.name
    _check_here(spec)
    site = RunSite(
        cwd=str(Path.cwd()),
        script="",
        copy=str(copy or ""),
        backend="local",
        python=sys.executable,
        env=planning.kept_environment(),
        gpus=present_gpus() if spec.resources.gpus else (),
    )
    workload = plan_gang(
        spec, site, name=name, uid=uid, run_dir=str(run_dir), now=time.time(), spec_file=loaded.file
    )  # fmt: skip
    return PlannedGang(workload, spec, text, copy, tuple(_notes(spec, workload)))


def _check_here(spec: GangSpec) -> None:
    """What would make every rank fail at once is told before anything is recorded.

    Raises:
        InputError: there is no such directory or program.
    """
    if spec.workdir and not Path(spec.workdir).is_dir():
        raise InputError(f"there is no directory {spec.workdir!r}", hint="make it first", where="workdir")
    if spec.command:
        program = spec.command[0]
        found = Path(spec.workdir or ".", program).exists() if "/" in program else shutil.which(program)
        if not found:
            hint = "it is looked for in PATH, or where the ranks start when it has a slash"
            raise InputError(f"there is no program {program!r}", hint=hint, where="command")


def _notes(spec: GangSpec, workload: Workload) -> Iterator[str]:
    """What the user should know."""
    folder = _own_rendezvous(workload)
    if folder is not None and folder.is_dir() and any(folder.iterdir()):
        run_id = workload.labels[RUN_ID]
        yield f"if {run_id!r} was trained before it goes on from there; to begin anew: -s run_id=OTHER ({folder})"
    if spec.rendezvous and spec.rendezvous.startswith("file://"):
        return
    if spec.rendezvous and not spec.secret_env and not spec.env:
        yield f"ranks look for the credentials of {spec.rendezvous} in their home directory; others go by secret_env"


def _own_rendezvous(workload: Workload) -> Path | None:
    """The folder where the ranks meet, where it is in the run directory."""
    run_dir = Path(workload.run_dir)
    return run_dir / "rendezvous" if workload.labels[RENDEZVOUS] == (run_dir / "rendezvous").as_uri() else None


def start(planned: PlannedGang, client: HostClient | None = None) -> dict[str, Any]:
    """Hand a gang to the host; returns its view at once.

    Raises:
        Conflict: a workload of that name is up, or there are not enough GPUs for all ranks; says who has them.
        InputError: a secret is missing.
    """
    folder = _own_rendezvous(planned.workload)
    try:
        if folder is not None:
            make_private(folder, below=folder.parents[1])
        return runs.start([planned], client)[0]
    except RemudaError:
        if folder is not None:
            remove_empty(folder, folder.parent)
        raise


def follow(name: str, client: HostClient | None = None) -> Iterator[Said]:
    """Output of all ranks over all of their attempts, each line with its rank, and what becomes of each of them.

    Ends when the gang has ended.
    """
    host = client or connect()
    lines: SimpleQueue[Said | Exception | None] = SimpleQueue()
    Thread(target=_watch, args=(host, name, lines), daemon=True).start()
    while (said := lines.get()) is not None:
        if isinstance(said, Exception):
            raise said
        yield said


def _watch(host: HostClient, name: str, lines: SimpleQueue[Said | Exception | None]) -> None:
    """Tell what becomes of the ranks, and begin to read the output of each that has begun."""
    readers: dict[str, Thread] = {}
    told: dict[str, str] = {}
    try:
        for views in runs.wait_ended([name], host):
            for task in views[0]["tasks"]:
                rank = str(task["task"])
                if (news := _news(task)) != told.get(rank):
                    told[rank] = news
                    lines.put(Said(news, is_output=False))
                if rank not in readers and (task["attempt"] > 1 or task["phase"] in _BEGUN) and task["attempt"]:
                    readers[rank] = Thread(target=_read, args=(host, name, rank, lines), daemon=True)
                    readers[rank].start()
        for reader in readers.values():
            reader.join()
    except Exception as error:  # noqa: BLE001 - told by whoever reads the lines
        lines.put(error)
    lines.put(None)


def _news(task: dict[str, Any]) -> str:
    attempt = f", attempt {task['attempt']}" if task["attempt"] > 1 else ""
    return f"{task['task']}: {task['phase']}{attempt}" + (f": {task['reason']}" if task["reason"] else "")


def _read(host: HostClient, name: str, rank: str, lines: SimpleQueue[Said | Exception | None]) -> None:
    with suppress(RemudaError):
        for text in again.follow(host, api_path(name, "logs"), task=rank, tail=0):
            lines.put(Said(f"{rank}: {text}"))


def rounds(target: str, run_id: str = "", client: HostClient | None = None) -> dict[str, Any]:
    """What the ranks have trained together so far.

    Args:
        target: name of a gang, or URL of a rendezvous.
        run_id: of what is trained, with a URL.
        client: of the host.

    Raises:
        InputError: it is no gang, or which run is meant is not said, or what reads a rendezvous is not installed.
        NotFound: there is no gang of that name.
    """
    url = target
    if "://" in target:
        if not run_id:
            raise InputError("a rendezvous may have several runs in it", hint="say which: --run-id ID", where="URL")
    else:
        view = (client or connect()).get(api_path(target))
        if view["kind"] != Kind.GANG:
            raise InputError(f"{target!r} is a {view['kind']}, which has no rounds", where="NAME")
        url, run_id = view["labels"][RENDEZVOUS], run_id or view["labels"][RUN_ID]
    try:
        reader = import_module("remuda.gang.rounds")
    except ImportError as error:
        raise InputError(f"rounds cannot be read without numpy and obstore ({error})", hint=INSTALL) from error
    return dict(reader.summary(url, run_id).to_json())


def rendezvous(planned: PlannedGang) -> str:
    """Where the ranks of a planned gang meet."""
    return rendezvous_of(planned.spec, planned.workload.run_dir)

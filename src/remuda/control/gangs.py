"""What faces do with gangs: plan, start, follow, look at their rounds. Runs in the user's process."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, cast

from remuda.base.errors import InputError, RemudaError, TimedOut
from remuda.base.ids import api_path, check_name, new_suffix
from remuda.base.paths import state_paths
from remuda.control import ending, runs
from remuda.control.client import HostClient, connect
from remuda.control.runs import PlannedScript, Said
from remuda.look.caller import context
from remuda.look.scripts import find_script, read_script
from remuda.plan.gang import RENDEZVOUS, RUN_ID, gang_name, plan_gang
from remuda.plan.model import Kind
from remuda.plan.run import RunSite
from remuda.specs.gang import GangSpec
from remuda.specs.load import Loaded, load

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from remuda.plan.model import Workload
    from remuda.specs.resolve import Override

_LOOK_AGAIN_S = 0.2
INSTALL = "pip install 'remuda[gang]'"
_LEFT_S = 120.0
"""How long the ranks of a gang that has failed are waited for; the host ends them, whoever looks."""


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
    caller = context(paths, gpus=bool(spec.resources.gpus))
    site = RunSite(
        cwd=caller.cwd,
        script="",
        copy=str(copy or ""),
        backend="local",
        python=caller.python,
        env=caller.env,
        gpus=caller.gpus,
    )
    workload = plan_gang(
        spec, site, name=name, uid=uid, run_dir=str(run_dir), now=time.time(), spec_file=loaded.file
    )  # fmt: skip
    folder = _own_rendezvous(workload)
    files = {**({str(copy): text} if copy else {}), **({f"{folder}/": ""} if folder else {})}
    workload = workload.model_copy(update={"files": files})
    return PlannedGang(workload, spec, tuple(_notes(spec, workload)))


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
    return runs.start([planned], client)[0]


def ended(name: str, client: HostClient | None = None) -> dict[str, Any]:
    """Wait until a gang has ended, and until nothing is left of the ranks that one which failed has let down."""
    host = client or connect()
    view = runs.ended([name], host)[0]
    if view["phase"] == "FAILED":
        with suppress(TimedOut):
            ending.wait_down(name, _LEFT_S, host)
    return view


def follow(name: str, client: HostClient | None = None) -> Iterator[Said]:
    """Output of all ranks over all of their attempts, each line with its rank, and what becomes of each of them.

    Ends when the gang has ended.
    """
    follower = _Follower(client or connect(), name)
    Thread(target=follower.watch, daemon=True).start()
    while (said := follower.lines.get()) is not None:
        if isinstance(said, Exception):
            raise said
        yield said


class _Follower:
    """One thread that looks at the gang, and one for each rank that reads its output."""

    def __init__(self, host: HostClient, name: str) -> None:
        self._host = host
        self._name = name
        self.lines: SimpleQueue[Said | Exception | None] = SimpleQueue()
        """What there is to show; None at the end."""
        self._begun: dict[str, int] = {}
        """Attempts of each rank that have begun."""
        self._over = Event()

    def watch(self) -> None:
        """Tell what becomes of the ranks, and begin to read each of them."""
        readers: dict[str, Thread] = {}
        told: dict[str, str] = {}
        try:
            for views in runs.wait_ended([self._name], self._host):
                for task in views[0]["tasks"]:
                    rank = str(task["task"])
                    self._begun[rank] = runs.begun_of(task)
                    if (news := _news(task)) != told.get(rank):
                        told[rank] = news
                        self.lines.put(Said(news, is_output=False))
                    if rank not in readers:
                        readers[rank] = Thread(target=self._read, args=(rank,), daemon=True)
                        readers[rank].start()
            ended(self._name, self._host)
            self._over.set()
            for reader in readers.values():
                reader.join()
        except Exception as error:  # noqa: BLE001 - told by whoever reads the lines
            self._over.set()
            self.lines.put(error)
        self.lines.put(None)

    def _read(self, rank: str) -> None:
        """The output of a rank, one attempt after the other."""
        shown = 0
        with suppress(RemudaError):
            while shown < self._begun[rank] or not self._over.wait(_LOOK_AGAIN_S):
                if shown < self._begun[rank]:
                    shown += 1
                    for text in runs.output(self._host, self._name, shown, rank):
                        self.lines.put(Said(f"{rank}: {text}"))


def _news(task: dict[str, Any]) -> str:
    attempt = f", attempt {task['attempt']}" if task["attempt"] > 1 else ""
    return f"{task['task']}: {task['phase']}{attempt}" + (f": {task['reason']}" if task["reason"] else "")


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
        from remuda.gang.rounds import summary
    except ImportError as error:
        raise InputError(f"rounds cannot be read without numpy and obstore ({error})", hint=INSTALL) from error
    return summary(url, run_id).to_json()

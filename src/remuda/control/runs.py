"""What faces do with supervised runs: plan, start, wait, follow. Runs in the user's process."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from remuda.backends.base import Request, TaskKey, make_token
from remuda.backends.slurm.arrays import batch_uid, in_calls
from remuda.backends.slurm.commands import own_options
from remuda.base.errors import BackendUnreachable, InputError, NotFound, RemudaError
from remuda.base.files import remove_empty
from remuda.base.ids import api_path, check_name, new_suffix
from remuda.base.paths import state_paths
from remuda.base.secrets import MASK, looks_secret
from remuda.base.shell import show_command
from remuda.control import again, planning, wiring
from remuda.control.client import HostClient, connect
from remuda.control.follow import secret_folder
from remuda.control.reach import check_cluster
from remuda.control.settle import with_devices
from remuda.look.caller import context
from remuda.look.scripts import find_script, read_script
from remuda.plan.pools import Found, find_pools
from remuda.plan.run import RunSite, notes_of, plan_run, refuse_local, run_name
from remuda.specs.directives import Directives, read_directives
from remuda.specs.load import Loaded, build, read_defaults, read_document, read_settings
from remuda.specs.places import is_here
from remuda.specs.resolve import Override, document_layer, override_layer, resolve
from remuda.specs.resolve import Source as From
from remuda.specs.sbatch_options import BUILT_IN
from remuda.supervise.summary import ENDED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from remuda.backends.base import Backend, Cluster, Rendered
    from remuda.base.paths import StatePaths
    from remuda.plan.context import Context
    from remuda.plan.model import Pool, Workload
    from remuda.specs.document import Document
    from remuda.specs.load import Setting
    from remuda.specs.run import RunSpec
    from remuda.specs.sbatch_options import Table, Takes
    from remuda.specs.strict import Strict

_LOOK_AGAIN_S = 0.2
_DOCUMENTS = frozenset({".yaml", ".yml", ".json"})
_MOST_TOGETHER = 1000
"""Runs in one array, where the cluster would take more: what Slurm takes if it is not told otherwise."""
_AT_ONCE = 8
"""Runs whose files are written at the same time."""


@dataclass(frozen=True)
class PlannedScript:
    """A script or command as it would be started."""

    workload: Workload
    spec: Strict
    notes: tuple[str, ...]


@dataclass(frozen=True)
class PlannedRun(PlannedScript):
    """A run as it would be started."""

    spec: RunSpec


@dataclass
class Planner:
    """Plans runs of one command: what they have in common is read once."""

    paths: StatePaths = field(default_factory=state_paths)
    defaults: Document | None = field(default_factory=read_defaults)
    settings: Mapping[str, Setting] = field(default_factory=read_settings)
    taken: set[str] = field(default_factory=set)
    together: int = 1
    """How many runs the command asks for: several of them may share a call to the scheduler."""
    _batch: tuple[str, int] = ("", 0)
    """Name of the batch that is being filled, and how many are in it."""
    _caller: Context | None = None
    _checked: set[tuple[str, tuple[str, ...]]] = field(default_factory=set)
    _cluster: Cluster | str | None = None
    _found: dict[str, Found] = field(default_factory=dict)
    _backends: Mapping[str, Backend] | None = None
    _options: Table | None = None

    def plan(self, file: str, overrides: Sequence[Override] = ()) -> PlannedRun:
        """Plan the run of a script, or of a document. Nothing is started or written.

        Raises:
            InputError: something is wrong with the script, a directive or a value; says where.
            BackendUnreachable: the cluster had to be asked and does not answer.
        """
        document = read_document(file) if Path(file).suffix in _DOCUMENTS else None
        said = [*overrides] if document else [Override("script", file, "SCRIPT"), *overrides]
        script = _script_of(document, said)
        text = read_script(script)
        head = read_directives(text, str(script), self._table() if "#SBATCH" in text else BUILT_IN)
        loaded = cast(
            "Loaded[RunSpec]",
            build(
                document, said, expect="run", defaults=self.defaults, settings=self.settings,
                script=[head.sbatch, head.own],
            ),
        )  # fmt: skip
        if loaded.kind != "run":
            raise InputError(f"is a {loaded.kind}, and a run is needed here", where=file)
        try:
            planned = self._plan(loaded, script, text, head)
            if not planned.workload.is_here:
                self._check(planned, head)
        except InputError as error:
            raise loaded.locate(error) from error
        return planned

    def _table(self) -> Mapping[str, Takes]:
        """The options of this cluster's sbatch, asked once."""
        if self._options is None:
            self._options = own_options()
        return self._options

    def _check(self, planned: PlannedRun, head: Directives) -> None:
        """What cannot be expressed is told here, not by a run that was accepted and is given up.

        Runs that differ in nothing but script, name and arguments are rendered alike, so one of them tells for all.
        """
        asked = planned.spec.model_dump_json(exclude={"script", "name", "args"})
        if (asked, head.options) not in self._checked:
            self.render(planned)
            self._checked.add((asked, head.options))

    def _plan(self, loaded: Loaded[RunSpec], script: Path, text: str, head: Directives) -> PlannedRun:
        spec = loaded.spec
        name = self._name(spec)
        run_dir = self.paths.workload(name)
        caller = self.caller(gpus=False)
        backend = spec.backend or ("slurm" if caller.has_sbatch else "local")
        pools, notes = self._pools(spec, backend)
        uid = self._uid(backend)
        copy = run_dir / "scripts" / uid / script.name
        site = RunSite(
            cwd=caller.cwd,
            script=str(script.absolute()),
            copy=str(copy),
            backend=backend,
            python=caller.nodes_python,
            env=caller.env,
            directives=head.options,
            gpus=self.caller(gpus=True).gpus if is_here(backend) and spec.gpus else (),
            options=self._table() if spec.sbatch_args and not is_here(backend) else BUILT_IN,
        )
        workload = plan_run(
            spec, site, name=name, uid=uid, run_dir=str(run_dir), pools=pools, now=time.time(), spec_file=loaded.file
        )  # fmt: skip
        said = (*head.notes, *notes_of(spec, backend, head.options), *notes, *_see_workdir(spec, backend))
        workload = workload.model_copy(update={"files": {str(copy): text}})
        return PlannedRun(workload, spec, said)

    def caller(self, *, gpus: bool) -> Context:
        """The surroundings of the command, looked at once."""
        if self._caller is None or (gpus and not self._caller.gpus):
            self._caller = context(self.paths, gpus=gpus)
        return self._caller

    def _uid(self, backend: str) -> str:
        """Random. Runs of one command have one that says which of them may be tasks of one array."""
        if self.together < 2 or is_here(backend):
            return new_suffix(8)
        size = self._cluster.array_size if self._cluster is not None and not isinstance(self._cluster, str) else 0
        most = min(_MOST_TOGETHER, size - 1) if size else _MOST_TOGETHER
        batch, number = self._batch
        if not batch or number >= most:
            batch, number = new_suffix(8), 0
        self._batch = (batch, number + 1)
        return batch_uid(batch, number + 1)

    def _name(self, spec: RunSpec) -> str:
        """The name; scripts of one command that are called alike get a number."""
        wanted = check_name(run_name(spec), where="name")
        name, number = wanted, 1
        while name in self.taken:
            number += 1
            name = f"{wanted[:58]}-{number}"
        self.taken.add(name)
        return name

    def _pools(self, spec: RunSpec, backend: str) -> tuple[tuple[Pool, ...], tuple[str, ...]]:
        """Where it may run, best first, and notes."""
        if is_here(backend):
            refuse_local(spec)
            return (), ()
        cluster = self.cluster(backend)
        if isinstance(cluster, str):
            if not spec.partitions:
                raise BackendUnreachable(
                    f"the cluster does not answer, so no partition can be chosen: {cluster}",
                    hint="name them: --partitions a,b; to run on this machine: --backend local",
                )
            from remuda.plan.model import Pool

            listed = tuple(Pool(name=name, place={"partition": name}) for name in spec.partitions)
            return listed, (f"the cluster does not answer, so the partitions are taken unchecked: {cluster}",)
        key = repr([getattr(spec, name) for name in _PLACING])
        if key not in self._found:
            self._found[key] = find_pools(spec, cluster)
        found = self._found[key]
        return found.pools, found.notes

    def cluster(self, backend: str) -> Cluster | str:
        """What there is to run on; a sentence when nobody answers."""
        if self._cluster is None:
            try:
                self._cluster = asyncio.run(self.backend(backend).cluster())
            except BackendUnreachable as error:
                self._cluster = str(error)
        return self._cluster

    def backend(self, name: str) -> Backend:
        """A backend of the user's process.

        Raises:
            InputError: there is none of that name.
        """
        if self._backends is None:
            self._backends = wiring.backends(self.paths)
        found = self._backends.get(name)
        if found is None:
            hint = f"known: {', '.join(sorted(self._backends))}"
            raise InputError(f"there is no backend {name!r} in this version", hint=hint, where="backend")
        return found

    def render(self, planned: PlannedRun) -> Rendered:
        """What starting it would send for its first attempt: the same rendering that is sent.

        Raises:
            InputError: the backend cannot express it.
        """
        workload = planned.workload
        if workload.is_here:
            workload = with_devices(workload, {})
        group = workload.groups[0]
        key = TaskKey(workload.name, group.name, 0)
        pools = group.pools if group.failover.hedge else group.pools[:1]
        token = make_token(key, 1, workload.uid)
        return self.backend(workload.backend).render(Request(key, 1, token, workload, group, pools=pools))


_PLACING = ("partitions", "gpus", "gpu_type", "min_vram", "max_vram", "nodes", "cpus_per_task", "mem", "time_limit",
            "prefer", "constraint")  # fmt: skip
"""Fields that the choice of partitions depends on."""


def _script_of(document: Document | None, said: Sequence[Override]) -> Path:
    """The script that is meant, before anything else is known."""
    layers = [document_layer(document, From.FILE)] if document else []
    script = resolve([*layers, override_layer(said)]).data.get("script")
    if not isinstance(script, str) or not script:
        raise InputError("`script` is required", hint="the file to run", where=document.name if document else "")
    return find_script(script, document.name if document else "")


def _see_workdir(spec: RunSpec, backend: str) -> Iterator[str]:
    """Notes on where it is to run.

    Raises:
        InputError: that is this machine, and there is no such directory.
    """
    if not spec.workdir or Path(spec.workdir).is_dir():
        return
    if is_here(backend):
        raise InputError(f"there is no directory {spec.workdir!r}", hint="make it first", where="workdir")
    yield f"the working directory {spec.workdir} is not to be seen here; the nodes need it"


def start(planned: Sequence[PlannedScript], client: HostClient | None = None) -> list[dict[str, Any]]:
    """Hand runs or gangs to the host, all or none; returns their views at once.

    Raises:
        Conflict: one of them is up already, or the host asks another cluster.
        InputError: a secret is missing.
    """
    host = client or connect()
    if any(not run.workload.is_here for run in planned):
        check_cluster(host)
    try:
        items = deliver_all(planned)
        return list(host.post("/workloads/batch", {"workloads": items}))
    except RemudaError:
        for run in planned:
            discard(run)
        raise


def discard(run: PlannedScript) -> None:
    """Remove what `deliver` wrote, with the folders that were made for it."""
    folder = secret_folder(run.workload.run_dir, run.workload.uid)
    shutil.rmtree(folder, ignore_errors=True)
    remove_empty(folder.parent, Path(run.workload.run_dir))


def deliver_all(planned: Sequence[PlannedScript]) -> list[dict[str, Any]]:
    """`deliver` each, several at a time: making directories is waiting for the file system.

    Raises:
        InputError: one of them cannot be written, or a secret is missing.
    """
    with ThreadPoolExecutor(max_workers=min(_AT_ONCE, max(1, len(planned)))) as pool:
        return list(pool.map(deliver, planned))


def deliver(run: PlannedScript) -> dict[str, Any]:
    """Write the secrets; what is sent to the host.

    Raises:
        InputError: one cannot be written, or is missing.
    """
    has_secrets = any(group.command.secret_env for group in run.workload.groups)
    workload = planning.deliver_secrets(run.workload) if has_secrets else run.workload
    spec = json.dumps(run.spec.model_dump(mode="json", exclude_none=True))
    return {"workload": workload.model_dump(mode="json"), "spec": spec}


def change(verb: str, names: Sequence[str], client: HostClient | None = None) -> list[dict[str, Any]]:
    """`pause`, `unpause`, `down` or `restart` of several workloads; their views, in order.

    Every name is looked up before the first is changed.

    Raises:
        NotFound: there is none of one of the names.
        Conflict: the state of one forbids it.
    """
    host = client or connect()
    return list(host.post(f"/workloads/batch/{verb}", {"names": list(names)}))


def look_up(names: Sequence[str], client: HostClient | None = None) -> list[dict[str, Any]]:
    """Views of workloads, in order.

    Raises:
        NotFound: there is none of one of the names.
    """
    host = client or connect()
    return [host.get(api_path(name)) for name in names]


def ended(names: Sequence[str], client: HostClient | None = None) -> list[dict[str, Any]]:
    """Wait until runs have ended, over the ends of hosts; their last views."""
    return deque(wait_ended(names, client), maxlen=1).pop()


def wait_ended(names: Sequence[str], client: HostClient | None = None) -> Iterator[list[dict[str, Any]]]:
    """Views of runs until all have ended; the last ones are the ends."""
    host = client or connect()
    pause = _LOOK_AGAIN_S
    while True:
        views = [again.get(host, api_path(name)) for name in names]
        yield views
        if all(view["phase"] in ENDED for view in views):
            return
        time.sleep(pause)
        pause = min(2.0, pause * 1.2)


@dataclass(frozen=True)
class Said:
    """One line of what a follower sees."""

    text: str
    is_output: bool = True
    """False: about the run, not of it."""


def follow(name: str, client: HostClient | None = None) -> Iterator[Said]:
    """Output of a run over all of its attempts, from now on until it has ended, with what happens in between."""
    host = client or connect()
    shown, told = 0, ""
    for views in wait_ended([name], host):
        view = views[0]
        task = view["tasks"][0] if view["tasks"] else None
        if task is None:
            continue
        line = f"{name}: {task['phase']}" + (f" on {task['node']}" if task["node"] else "")
        line += f", attempt {task['attempt']}" if task["attempt"] > 1 else ""
        line += f": {task['reason']}" if task["reason"] else ""
        if line != told:
            told = line
            yield Said(line, is_output=False)
        while shown < begun_of(task):
            shown += 1
            for text in output(host, name, shown):
                yield Said(text)


def begun_of(task: Mapping[str, Any]) -> int:
    """How many attempts of a task have begun."""
    return int(task["attempt"]) - (task["phase"] in ("submitting", "pending"))


def output(host: HostClient, name: str, attempt: int, task: str = "") -> Iterator[str]:
    """What an attempt of a task writes until it ends; nothing of one that was never begun."""
    with suppress(NotFound):
        yield from again.follow(host, api_path(name, "logs"), task=task, tail=0, attempt=attempt)


def shown(planner: Planner, planned: Sequence[PlannedRun]) -> list[dict[str, Any]]:
    """What would be sent, for eyes and programs: one item for each call.

    Values of variables whose names look secret are masked.
    """
    rendered = [planner.render(one) for one in planned]
    by_file = {path: run for item, run in zip(rendered, planned, strict=True) for path in item.files}
    items = in_calls(rendered)
    return [_shown(item, next(by_file[path] for path in item.files if path in by_file)) for item in items]


def _shown(rendered: Rendered, run: PlannedRun) -> dict[str, Any]:
    env = {name: value for group in run.workload.groups for name, value in group.command.env.items()}
    hidden = [value for name, value in env.items() if value and looks_secret(name)]

    def masked(text: str) -> str:
        for value in hidden:
            text = text.replace(value, MASK)
        return text

    return {
        "token": rendered.token,
        "pools": [pool.name for pool in run.workload.groups[0].pools],
        "argv": [masked(word) for word in rendered.argv],
        "command": masked(show_command(rendered.argv, rendered.env)),
        "env": dict(rendered.env),
        "files": {path: masked(text) for path, text in rendered.files.items()},
        "notes": list(run.notes),
    }


def kept_variable(text: str) -> Override:
    """What `--env NAME=VALUE`, or `--env NAME` for the value here, means.

    Raises:
        InputError: the variable is not set.
    """
    name, equals, value = text.partition("=")
    flag = f"--env {name}"
    if not equals:
        if name not in os.environ:
            raise InputError(f"environment variable {name} is not set", hint=f"write --env {name}=VALUE", where=flag)
        if looks_secret(name):
            return Override(f"secret_env.{name}", {"env": name}, flag)
        value = os.environ[name]
    return Override(f"env.{name}", value, flag)

"""What one command finds out for its plans, each thing once."""

from __future__ import annotations

import asyncio
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from remuda.backends.registry import BACKENDS, environment
from remuda.backends.slurm.commands import own_options
from remuda.base.errors import BackendUnreachable, InputError, RemudaError
from remuda.look import caller
from remuda.plan.placing.pools import find_pools
from remuda.specs.reading.load import read_defaults, read_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from remuda.backends.base import Backend, Cluster
    from remuda.backends.slurm.backend import SlurmBackend
    from remuda.base.disk.paths import StatePaths
    from remuda.plan.context import Context
    from remuda.plan.placing.pools import Found
    from remuda.specs.reading.document import Document
    from remuda.specs.reading.load import Setting
    from remuda.specs.reading.sbatch_options import Takes
    from remuda.specs.run import RunSpec

T = TypeVar("T")
_PLACING = ("partitions", "gpus", "gpu_type", "min_vram", "max_vram", "nodes", "cpus_per_task", "mem", "time_limit",
            "prefer", "constraint")  # fmt: skip
"""Fields that the choice of partitions depends on."""


@dataclass
class Looked:
    """The facts of `plan.compile.PlanFacts`, of the machine and the cluster that the command sees."""

    paths: StatePaths
    slurm: Callable[[], SlurmBackend]
    """The cluster that this machine's Slurm commands talk to."""
    said: tuple[Document | None, Mapping[str, Setting]] | None = None
    """The user's defaults file, and settings of the environment; None: they were not read yet."""
    asked: Cluster | BackendUnreachable | None = None
    """What the cluster answered; None: it was not asked yet."""
    surroundings: dict[bool, Context] = field(default_factory=dict)
    """Of the command, with the GPUs of this machine or without."""
    taken: set[str] = field(default_factory=set)
    """Shapes of plans that their backends would take, as they were asked once."""
    _options: Mapping[str, Takes] | None = None
    _pools: dict[str, Found] = field(default_factory=dict)
    _program: str | None = None
    _backends: dict[str, Backend] = field(default_factory=dict)
    _stamps: dict[tuple[str, str], list[tuple[str, int, int]]] = field(default_factory=dict)

    def usual(self) -> tuple[Document | None, Mapping[str, Setting]]:
        """The user's defaults file, and the settings of the environment that are fields.

        Raises:
            InputError: the file is wrong.
        """
        if self.said is None:
            self.said = read_defaults(), read_settings()
        return self.said

    def context(self, *, gpus: bool = True) -> Context:
        """The surroundings of the command; which GPUs there are may take a second to find out."""
        found = self.surroundings.get(True) or self.surroundings.get(gpus)
        if found is None:
            found = self.surroundings[gpus] = caller.context(self.paths, gpus=gpus)
        return found

    def backend(self, name: str) -> Backend:
        """The backend of a type.

        Raises:
            InputError: there is none, or a setting of it cannot be read.
        """
        if name not in BACKENDS:
            hint = f"known: {', '.join(sorted(BACKENDS))}"
            raise InputError(f"there is no backend {name!r} in this version", hint=hint, where="backend")
        if name not in self._backends:
            self._backends[name] = BACKENDS[name](self.paths, None)
        return self._backends[name]

    def cluster(self) -> Cluster:
        """What there is to run on.

        Raises:
            BackendUnreachable: nobody answers.
        """
        if self.asked is None:
            try:
                self.asked = apart(self.slurm().cluster())
            except BackendUnreachable as error:
                self.asked = error
        if isinstance(self.asked, BackendUnreachable):
            raise self.asked
        return self.asked

    def pools(self, spec: RunSpec) -> Found:
        """Partitions of the cluster that a run may use."""
        key = repr([getattr(spec, name) for name in _PLACING])
        if key not in self._pools:
            self._pools[key] = find_pools(spec, self.cluster())
        return self._pools[key]

    def sbatch_options(self) -> Mapping[str, Takes]:
        """The options of the cluster's own sbatch."""
        if self._options is None:
            self._options = own_options(environ=environment(self.paths))
        return self._options

    def container_program(self) -> str:
        """What starts images of a registry there, Pyxis also where Slurm cannot be asked; empty: nothing."""
        if self._program is None:
            try:
                told = apart(self.slurm().client.commands.ask(("srun", "--help")))
            except RemudaError:
                told = "--container-image"
            others = (name for name in ("apptainer", "singularity") if shutil.which(name))
            self._program = "pyxis" if "--container-image" in told else next(others, "")
        return self._program

    def program(self, name: str, python: str = "") -> str:
        """Path of a program beside an interpreter, else in the PATH; empty: there is none."""
        beside = Path(python).with_name(name) if python else None
        return str(beside) if beside is not None and beside.is_file() else shutil.which(name) or ""

    def stamp(self, path: str, module: str = "") -> list[tuple[str, int, int]]:
        """See there; empty where nothing is to be seen from here, as of what lies on nodes only."""
        if (path, module) not in self._stamps:
            self._stamps[path, module] = _stamp(path, module)
        return self._stamps[path, module]

    def sees(self, path: Path) -> bool:
        """Whether nodes surely see the same at `path`: it would be on the file system of the state directory."""
        if self.paths.fleet_carried.exists():
            return False
        parent = next((parent for parent in path.parents if parent.exists()), None)
        try:
            return parent is not None and parent.stat().st_dev == self.paths.root.stat().st_dev
        except OSError:
            return False


def _stamp(path: str, module: str) -> list[tuple[str, int, int]]:
    root, parts = Path(path), (f"{module}/*.py", f"{module}*.dist-info")  # a folder changes when it is imported
    try:
        own = (one for part in parts for one in root.parent.parent.glob(f"lib/python3*/site-packages/{part}"))
        found = sorted(own if module else root.iterdir() if root.is_dir() else [root])
        seen = [(one.name, one.stat()) for one in found if not one.name.startswith(".") and one.exists()]
    except OSError:
        return []
    return [(name, is_at.st_size, is_at.st_mtime_ns) for name, is_at in seen]


def apart(question: Coroutine[Any, Any, T]) -> T:
    """The answer to a question of a backend, also where the caller is in an event loop of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, question).result()

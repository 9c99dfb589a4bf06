"""One way from a document to a plan: what every kind's compiler is given, and what it gives. Pure.

`compile_KIND(draft, context, facts)` makes a `Plan`, which says nothing of a moment: its uid is the mark `UID`, and
what counts from a moment is a duration. `accept` puts both in; port and GPUs are the host's to choose.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from remuda.base.errors import InputError
from remuda.plan.model import Workload
from remuda.specs.places import in_images
from remuda.specs.strict import Strict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.backends.base import Cluster
    from remuda.plan.context import Context
    from remuda.plan.placing.pools import Found
    from remuda.specs.reading.directives import Directives
    from remuda.specs.reading.document import Path
    from remuda.specs.reading.load import Loaded
    from remuda.specs.reading.resolve import Shown
    from remuda.specs.reading.sbatch_options import Takes
    from remuda.specs.run import RunSpec

UID: Final = "__REMUDA_UID__"
"""Stands for the uid of a workload that was not accepted yet."""
AT: Final = "__REMUDA_AT__"
"""Stands for the time of that, as it is in names of folders."""
SpecT_co = TypeVar("SpecT_co", bound=Strict, covariant=True)


@dataclass(frozen=True)
class Draft(Generic[SpecT_co]):
    """A document as it was read, with the script that it names."""

    loaded: Loaded[SpecT_co]
    name: str
    """Of the workload."""
    script: str = ""
    """Absolute path of the user's script."""
    text: str = ""
    """Of the script."""
    head: Directives | None = None
    """What the first lines of the script say."""
    notes: tuple[str, ...] = ()
    """What was read and is not used, a sentence each."""
    derived: Mapping[str, str] = field(default_factory=dict)
    """Dotted path -> why, for values that nobody said."""

    @property
    def spec(self) -> SpecT_co:
        """The checked document."""
        return self.loaded.spec


@dataclass(frozen=True)
class Plan:
    """A workload as it would be accepted, and what its user should know."""

    workload: Workload
    """Its uid is `UID`."""
    spec: Any = None
    """The document without gaps; it is recorded with the workload. None: there is no document."""
    notes: tuple[str, ...] = ()
    draft: Draft[Any] | None = None
    """Knows where the document says what."""
    derived: Mapping[str, str] = field(default_factory=dict)
    """Dotted path -> why, for values of `spec` that nobody said."""

    @property
    def shown(self) -> list[Shown]:
        """Every value with its origin; none without a document."""
        return self.draft.loaded.show(self.spec, self.derived) if self.draft is not None else []


@dataclass(frozen=True)
class Finding:
    """One thing that was seen of a plan before it is sent."""

    path: Path
    """Of the field that it speaks of, in the words of the document; empty: of none."""
    sentence: str
    fails: bool = True
    """false: worth a note, as it may be meant, or could not be looked at."""
    hint: str = ""


class PlanFacts(Protocol):
    """What is found out where a plan needs it, each once: the only input besides document and context.

    What asks the cluster raises `BackendUnreachable` where nobody answers.
    """

    def cluster(self) -> Cluster:
        """What there is to run on."""

    def pools(self, spec: RunSpec) -> Found:
        """Partitions of the cluster that a run may use; raises `InputError` where there is none."""

    def sbatch_options(self) -> Mapping[str, Takes]:
        """The options of the cluster's own sbatch."""

    def container_program(self) -> str:
        """What starts images of a registry on the cluster; empty: nothing."""

    def program(self, name: str, python: str = "") -> str:
        """Path of a program beside an interpreter, else in the PATH; empty: there is none."""

    def stamp(self, path: str, module: str = "") -> list[tuple[str, int, int]]:
        """Name, size and time of change of a file, or of all in a folder; of a module, where an interpreter has it."""


def accept(workload: Workload, uid: str, now: float) -> Workload:
    """The workload of a plan as it is recorded.

    Args:
        workload: of a plan.
        uid: random, new for every creation.
        now: seconds since the epoch; what lasts a while counts from here.
    """
    if workload.uid != UID:
        return workload
    at = time.strftime("%Y%m%dT%H%M%S", time.localtime(now))
    files = {path.replace(UID, uid): text for path, text in workload.files.items()}
    bare = workload.model_copy(update={"files": {}}).model_dump_json()
    made = Workload.model_validate_json(bare.replace(UID, uid).replace(AT, at))
    groups = tuple(
        group.model_copy(update={"replace": group.replace.begun(now)}) if group.replace.keep_s else group
        for group in made.groups
    )
    return made.model_copy(update={"files": files, "groups": groups})


def refuse_secrets(workload: Workload) -> None:
    """A Secret of a namespace reaches what runs in it.

    Raises:
        InputError: something else asks for one.
    """
    for group in workload.groups:
        backend = group.backend or workload.backend
        for name, source in group.command.secret_env.items():
            if source.secret and not in_images(backend):
                where = f"secret_env.{name}.secret"
                raise InputError(f"a Secret is given to what runs on Kubernetes, and this runs on {backend}",
                                 hint="write {env: NAME} or {file: PATH}", where=where)  # fmt: skip


def copy_of(context: Context, name: str, script: str) -> str:
    """Path of the copy of its user's script that a workload runs."""
    return f"{context.run_dir(name)}/scripts/{UID}/{PurePath(script).name}"


def secret_folder(run_dir: str, uid: str = UID) -> str:
    """Where the secrets of one creation of a workload are: files of mode 0600, in a folder of mode 0700."""
    return f"{run_dir}/secrets/{uid}"

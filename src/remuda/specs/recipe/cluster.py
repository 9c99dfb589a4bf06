"""The cluster file: what every recipe of a cluster would say again. All three layouts of srtctl, and no key dropped."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Final

from remuda.base.disk.private import check_above, check_private, exposures, user_name
from remuda.base.errors import NotPrivate
from remuda.base.settings import variable
from remuda.specs.reading.document import fail
from remuda.specs.reading.fields import inside
from remuda.specs.reading.load import read_document
from remuda.specs.reading.resolve import Layer, Moving, Resolved, ValueOrigin, document_layer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.specs.reading.document import Document, Path

NAME: Final = "srtslurm.yaml"
_PARENTS: Final = 2
_TRUSTED: Final = "if you trust it, say --cluster FILE"

USED: Final[dict[str, Path]] = {
    "default_account": ("backend", "account"),
    "default_partition": ("backend", "partition"),
    "default_qos": ("backend", "qos"),
    "frontend_partition": ("backend", "frontend_partition"),
    "default_time_limit": ("backend", "time_limit"),
    "network_interface": ("backend", "network_interface"),
    "default_sbatch_directives": ("backend", "sbatch_directives"),
    "gpus_per_node": ("gpus_per_node",),
    "default_gpu_type": ("gpu_type",),
    "default_health_check": ("health_check",),
    "default_mounts": ("mounts",),
    "default_container": ("container",),
    "srtctl_root": ("home_directory",),
    "output_dir": ("home_directory",),
}
"""Key -> the field of a deployment; of two for one field the later counts."""
NESTED: Final[dict[str, Path]] = {
    "account": ("backend", "account"),
    "partition": ("backend", "partition"),
    "network_interface": ("backend", "network_interface"),
    "gpus_per_node": ("gpus_per_node",),
    "default_time_limit": ("backend", "time_limit"),
    "time_limit": ("backend", "time_limit"),
    "default_container": ("container",),
}
"""The same below `cluster:` in the oldest layout."""
ALIASES: Final = ("model_paths", "containers")
_PLACES: Final = ("error", "output", "chdir", "export-file")
IGNORED: Final[dict[str, str]] = {
    "cluster": "a name for tables",
    "visible_devices_env": "each worker sees its own GPUs",
    "use_gpus_per_node_directive": "each worker asks for its own GPUs",
    "use_segment_sbatch_directive": "each worker is a job of its own",
    "use_exclusive_sbatch_directive": "say `exclusive` in `default_sbatch_directives`",
    "use_het_jobs": "each worker is a job of its own",
    "cloud": "results stay where they are",
    "default_bash_preamble": "workers are started without a shell",
    "default_host_setup": "commands on each node cannot be run yet",
    "reporting": "status, events and results are always kept",
    "telemetry": "every task is watched and reported",
    "nginx_raise_ulimit": "limits are raised where they may be",
    "preflight": "a recipe is always checked",
    "launcher": "the backend is chosen with `--backend`",
}
"""Keys that are read and not used, and why."""


@dataclass(frozen=True)
class Cluster:
    """What a cluster file says.

    Args:
        name: of the file; empty without one.
        layer: below every recipe, in the words of a deployment.
        models: alias -> path of a model.
        containers: alias -> image.
        notes: what was read and is not used, a sentence each.
    """

    name: str = ""
    layer: Layer = field(default_factory=lambda: Layer({}))
    models: Mapping[str, str] = field(default_factory=dict)
    containers: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def find(start: FilePath, state: FilePath) -> tuple[FilePath | None, tuple[str, ...]]:
    """The cluster file: what SRTSLURM_CONFIG names, else in `start` or two folders above, else in the state directory.

    Args:
        start: where the command was typed. Files that somebody else may have written are passed over, with a sentence.
        state: the state directory.
    """
    named, _ = variable("SRTSLURM_CONFIG")
    if named:
        return FilePath(named).expanduser(), ()
    passed: list[str] = []
    for folder in (start, *list(start.parents)[:_PARENTS]):
        if (folder / NAME).is_file():
            if not (why := _stranger(folder / NAME)):
                return folder / NAME, tuple(passed)
            passed.append(f"cluster file {folder / NAME} is passed over: {why}")
    file = state / "cluster.yaml"
    return file if file.is_file() else None, tuple(passed)


def _stranger(file: FilePath) -> str:
    """Why somebody else may have written a file; empty where nobody could."""
    try:
        check_private(file, instead=_TRUSTED)
        check_above(file, instead=_TRUSTED)
    except NotPrivate as error:
        return f"{error.message}; {error.hint}"
    foreign = [found for found in exposures(file) if found.owner not in (os.geteuid(), 0)]
    return f"{foreign[0].folder}, above it, belongs to {user_name(foreign[0].owner)}; {_TRUSTED}" if foreign else ""


def read(file: FilePath | None, notes: tuple[str, ...] = ()) -> Cluster:
    """What a cluster file says; configurations below its `srtctl_root` are seen in containers where srtctl has them.

    Args:
        file: None: there is none.
        notes: what was said when it was looked for.

    Raises:
        InputError: it cannot be read, or has a key that is not known; says where.
    """
    if file is None:
        return Cluster(notes=notes)
    document = read_document(file)
    root, said = str(document.data.get("srtctl_root") or ""), document.data.get("default_mounts") or {}
    configs = str(FilePath(root).expanduser().absolute() / "configs")
    if root and isinstance(said, dict) and FilePath(configs).is_dir():
        values = {**document.values, ("default_mounts", configs): document.values["srtctl_root",]}
        data = {**document.data, "default_mounts": {configs: "/configs", **said}}
        document = replace(document, data=data, values=values)
    found = of_document(document)
    return replace(found, notes=(f"cluster file {file}", *notes, *found.notes))


def of_document(document: Document) -> Cluster:
    """The same from what was read already. Pure.

    Raises:
        InputError: a key is not known, or has no mapping; names all of them.
    """
    source = document_layer(document, ValueOrigin.DEFAULTS)
    reading = _Reading(Resolved(document.data, (source,)))
    for key, value in document.data.items():
        reading.take(key, value)
    if reading.problems:
        raise fail(reading.problems)
    models, containers = reading.aliases.values()
    return Cluster(document.name, reading.layer(), models, containers, tuple(reading.notes))


class _Reading(Moving):
    def __init__(self, resolved: Resolved) -> None:
        super().__init__(resolved)
        self.aliases: dict[str, dict[str, str]] = {name: {} for name in ALIASES}

    def take(self, key: str, value: Any) -> None:
        if key == "cluster" and isinstance(value, dict):
            for inner, below in value.items():
                if inner in NESTED:
                    self.said(NESTED[inner], ("cluster", inner), below)
                else:
                    self.unknown(("cluster", inner), NESTED)
        elif key in ALIASES:
            self.alias(key, value)
        elif key in USED:
            self.refuse_places(key, value)
            self.said(USED[key], (key,), value)
        elif key in IGNORED:
            if key != "cluster":
                self.notes.append(f"{self.resolved.key((key,)).text}: `{key}` is not used: {IGNORED[key]}")
        else:
            self.unknown((key,), [*USED, *ALIASES, *IGNORED])

    def refuse_places(self, at: str, value: Any) -> None:
        """Options that say where jobs read and write are the user's own; sbatch takes them shortened, too."""
        for name in value if at == "default_sbatch_directives" and isinstance(value, dict) else ():
            short = name.lstrip("-").replace("_", "-").lower()
            if short != "export" and any(option.startswith(short) for option in _PLACES):
                sentence = f"`{at}.{name}` cannot be said in a cluster file: it chooses where jobs read or write"
                self.wrong((at, name), sentence)

    def alias(self, key: str, value: Any) -> None:
        if not isinstance(value, dict):
            self.wrong((key,), f"`{key}` must be a mapping of names to paths")
            return
        for name, path in value.items():
            if isinstance(path, str) and path:
                self.aliases[key][str(name)] = str(path)
            else:
                self.wrong((key, name), f"`{key}.{name}` must be a path")

    def said(self, to: Path, at: Path, value: Any) -> None:
        if value is not None:
            inside(self.data, to[:-1]).pop(str(to[-1]), None)  # of two for one field the later counts
            self.put(to, at, value)

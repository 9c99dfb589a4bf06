"""Reads gswarm's `config.yaml`, and says of each of its keys what it is here: a command, a default, or not used."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from remuda.base.errors import InputError
from remuda.specs.reading.defaults import render_defaults
from remuda.specs.reading.document import parse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from remuda.specs.reading.document import Document

_ALWAYS: Final = "every recording has it"
_NO_STORE: Final = "not used: remuda keeps no models; documents name them by path or hub"
_MEASURED: Final = "not used: looked up where it is needed"
MEANING: Final = {
    "cluster.host": "on each other machine: {join}",
    "cluster.port": "on the head: remuda host start --port {value}",
    "profiling.default_frequency": "remuda profiler start --freq {value}ms",
    "profiling.enable_bandwidth": _ALWAYS,
    "profiling.enable_nvlink": _ALWAYS,
    "models.storage_path": _NO_STORE,
    "models.cache_size": _NO_STORE,
    "queue.max_concurrent_tasks": "not used: a run starts as soon as its GPUs are free",
    "queue.task_timeout": "not a default: remuda run SCRIPT --backend fleet --time-limit {value}s",
    "queue.retry_count": "in the defaults file, run.max_retries",
    "nodes.name": "on that machine: {join} --node-id {value}",
    "nodes.address": "not used: a machine says its own address when it joins",
    "nodes.capabilities.gpus": "not used: its driver says so when it joins (client connect --gpus says otherwise)",
    "nodes.capabilities.storage.disk": _MEASURED,
    "nodes.capabilities.storage.dram": _MEASURED,
}
"""Key, without the number of a node -> what a user does here."""
_NUMBERS: Final = {"cluster.port", "profiling.default_frequency", "queue.task_timeout", "queue.retry_count"}


@dataclass(frozen=True)
class Meaning:
    """One key of the file."""

    key: str
    value: str
    where: str
    here: str


@dataclass
class GswarmState:
    """What gswarm has left."""

    keys: list[Meaning] = field(default_factory=list)
    defaults: str = ""
    """Text for the defaults file; empty: nothing of it is a default."""
    recordings: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """One sentence for each key that is not known, or has another value than it should."""

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


def read(folder: Path) -> GswarmState:
    """Read gswarm's directory, and the one of its recordings beside it; nothing is changed.

    Raises:
        InputError: it is none, or its file is no YAML; says where.
    """
    folder = folder.expanduser()
    config, beside = folder / "config.yaml", folder.with_name(f"{folder.name}_profiler_data")
    found = GswarmState(recordings=[str(path) for path in sorted(beside.glob("*.json"))])
    if not config.is_file() and not found.recordings:
        hint = "the directory that holds config.yaml, usually ~/.gswarm"
        raise InputError("is not a directory of gswarm", hint=hint, where=str(folder))
    if config.is_file():
        try:
            document = parse(config.read_text(encoding="utf-8"), str(config))
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot be read: {error}", where=str(config)) from error
        _take(document, found)
    return found


def _take(document: Document, found: GswarmState) -> None:
    leaves = list(_leaves(document.data, ()))
    said = {_name(path): value for path, value in leaves}
    head = f"{said.get('cluster.host', 'HOST')}:{said.get('cluster.port', '8090')}"
    join = f"remuda client connect {head} --token-file FILE --resilient"
    for path, value in leaves:
        key, mark = _name(path), document.keys.get(path) or document.values.get(path)
        where = f"{document.name}:{mark.line}" if mark else document.name
        if key not in MEANING:
            found.problems.append(f"{where}: {key} is no key of gswarm's that remuda knows")
        elif key in _NUMBERS and not value.isdecimal():
            found.problems.append(f"{where}: {key} must be a whole number, and is {value!r}")
        else:
            found.keys.append(Meaning(key, value, where, MEANING[key].format(value=value, join=join)))
    retries = next((one.value for one in found.keys if one.key == "queue.retry_count"), "")
    found.defaults = render_defaults({"run.max_retries": retries}) if retries else ""


def _leaves(value: object, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """All values that are no mappings, as text; a list of words is one."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, (*path, name))
    elif isinstance(value, list) and any(isinstance(one, (dict, list)) for one in value):
        for number, inner in enumerate(value):
            yield from _leaves(inner, (*path, number))
    else:
        yield path, ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _name(path: tuple[str | int, ...]) -> str:
    return ".".join(word for word in path if isinstance(word, str))

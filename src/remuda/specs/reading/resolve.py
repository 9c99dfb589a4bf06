"""Layers of settings laid over each other, and where each value came from. Pure.

Highest first: command line, spec file, directives of a script, environment, defaults file, built-in. Mappings are
merged key by key; everything else is replaced. `null` says: as if nobody had said anything, the built-in default
included.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from remuda.base.secrets import MASK, looks_secret
from remuda.base.text import did_you_mean
from remuda.specs.reading.document import Problem
from remuda.specs.reading.fields import dotted, inside, leaves, lookup

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pydantic import BaseModel

    from remuda.specs.reading.document import Document, Mark, Path


class ValueOrigin(StrEnum):
    """Who said a value."""

    CLI = "command line"
    FILE = "file"
    SCRIPT = "script"
    ENVIRONMENT = "environment"
    DEFAULTS = "defaults file"
    BUILT_IN = "built-in"
    DERIVED = "derived"


@dataclass(frozen=True)
class Origin:
    """Where a value came from."""

    source: ValueOrigin
    text: str
    """For people: `swarm.yaml:7`, `--replicas`, `environment REMUDA_HOME`, `built-in`, `derived from replicas`."""
    column: int = 0
    line: int = 0

    @property
    def where(self) -> str:
        """For error messages: `file:line:column` where there is a column."""
        return f"{self.text}:{self.column}" if self.column else self.text


BUILT_IN = Origin(ValueOrigin.BUILT_IN, "built-in")


@dataclass(frozen=True)
class Override:
    """One value from the command line or a caller."""

    path: str
    """Dotted: `replicas`, `watchdog.max_restarts`."""
    value: object
    origin: str
    """The flag, `--replicas`, or what else shall be shown."""


@dataclass(frozen=True)
class Layer:
    """What one source says."""

    data: dict[str, Any]
    values: Mapping[Path, Origin] = field(default_factory=dict)
    keys: Mapping[Path, Origin] = field(default_factory=dict)

    def below(self, prefix: Path) -> Layer:
        """What it says below a key, as a layer of its own."""
        data, size = lookup(self.data, prefix), len(prefix)
        return Layer(
            data if isinstance(data, dict) else {},
            {path[size:]: origin for path, origin in self.values.items() if path[:size] == prefix},
            {path[size:]: origin for path, origin in self.keys.items() if path[:size] == prefix and len(path) > size},
        )


@dataclass(frozen=True)
class Resolved:
    """All layers as one."""

    data: dict[str, Any]
    layers: tuple[Layer, ...] = ()
    """Lowest first."""

    def origin(self, path: Path) -> Origin:
        """Where the value at `path` came from; of a path that nobody said, `BUILT_IN`."""
        for layer in reversed(self.layers):
            if path in layer.values:
                return layer.values[path]
        return BUILT_IN

    def key(self, path: Path) -> Origin:
        """Where the key at `path` stands, else its value, else the same of what encloses it."""
        for end in range(len(path), -1, -1):
            for layer in reversed(self.layers):
                found = layer.keys.get(path[:end]) or layer.values.get(path[:end])
                if found is not None:
                    return found
        return BUILT_IN

    def says(self, path: Path) -> bool:
        """Whether any source says a value at `path`."""
        return self.origin(path) is not BUILT_IN


@dataclass(frozen=True)
class Shown:
    """One line of `config show`."""

    path: str
    value: Any
    origin: str


def document_layer(document: Document, source: ValueOrigin) -> Layer:
    """The layer of a file."""

    def origins(marks: Mapping[Path, Mark]) -> dict[Path, Origin]:
        name = document.name
        return {path: Origin(source, f"{name}:{at.line}", at.column, at.line) for path, at in marks.items()}

    return Layer(document.data, origins(document.values), origins(document.keys))


def override_layer(overrides: Sequence[Override]) -> Layer:
    """The layer of the command line; of two for one path the later counts."""
    data: dict[str, Any] = {}
    values: dict[Path, Origin] = {}
    for item in overrides:
        origin = Origin(ValueOrigin.CLI, item.origin)
        start = tuple(item.path.split("."))
        inside(data, start[:-1])[start[-1]] = item.value
        values[start] = origin
        values |= {(*start, *path): origin for path, _ in leaves(item.value)}
    return Layer(data, values)


def setting_layer(settings: Iterable[tuple[Path, str, str]]) -> Layer:
    """The layer of the environment, from (path, value, origin)."""
    data: dict[str, Any] = {}
    values: dict[Path, Origin] = {}
    for path, value, origin in settings:
        inside(data, path[:-1])[str(path[-1])] = value
        values[path] = Origin(ValueOrigin.ENVIRONMENT, origin)
    return Layer(data, values)


def resolve(layers: Sequence[Layer]) -> Resolved:
    """Lay `layers` over each other, lowest first, and take out what is null."""
    data: dict[str, Any] = {}
    for layer in layers:
        data = _over(data, layer.data)
    return Resolved(_without_null(data), tuple(layers))


def _over(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    types = low.get("type"), high.get("type")
    out = {} if None not in types and types[0] != types[1] else dict(low)
    for key, value in high.items():
        below = out.get(key)
        out[key] = _over(below, value) if isinstance(value, dict) and isinstance(below, dict) else value
    return out


def _without_null(data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_null(value) if isinstance(value, dict) else value
        for key, value in data.items()
        if value is not None
    }


class Moving:
    """Values on their way to where a document of ours has them, each with its place, and what is wrong with them."""

    def __init__(self, resolved: Resolved) -> None:
        self.resolved = resolved
        self.data: dict[str, Any] = {}
        self.values: dict[Path, Origin] = {}
        self.keys: dict[Path, Origin] = {}
        self.notes: list[str] = []
        self.problems: list[Problem] = []

    def layer(self) -> Layer:
        """What has arrived."""
        return Layer(self.data, self.values, self.keys)

    def wrong(self, at: Path, sentence: str, hint: str = "") -> None:
        """Note what is wrong with a key."""
        origin = self.resolved.key(at)
        self.problems.append(Problem(origin.where, sentence, hint, (origin.line, origin.column)))

    def unknown(self, at: Path, known: Iterable[str]) -> None:
        """Note a key that is none of the known ones."""
        below = f" in `{dotted(at[:-1])}`" if at[:-1] else ""
        hint = did_you_mean(str(at[-1]), known) or f"known: {', '.join(sorted(known))}"
        self.wrong(at, f"unknown key {str(at[-1])!r}{below}", hint)

    def put(self, to: Path, at: Path, value: Any) -> None:
        """A value, and where everything in it was written, from `at` to its new place; mappings there are merged."""
        owner, name, size = inside(self.data, to[:-1]), str(to[-1]), len(at)
        old = owner.get(name)
        owner[name] = {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value
        for layer in self.resolved.layers:
            for marks, own in ((layer.values, self.values), (layer.keys, self.keys)):
                own.update({(*to, *path[size:]): origin for path, origin in marks.items() if path[:size] == at})


def show(spec: BaseModel, resolved: Resolved, derived: Mapping[str, str] | None = None) -> list[Shown]:
    """Every value of `spec` with its origin, in the order of the fields, secrets masked.

    Args:
        spec: validated from `resolved`; where values were derived since, with them.
        resolved: where each value came from.
        derived: dotted path -> reason, for values that nobody said.
    """
    rows: list[Shown] = []
    for path, value in leaves(spec.model_dump(mode="json")):
        above = lookup(resolved.data, path[:-1])
        said = isinstance(above, dict) and path[-1] in above
        reason = (derived or {}).get(dotted(path), "")
        origin = _said(resolved, path) if said else (reason or BUILT_IN.text)
        rows.append(Shown(dotted(path), _masked(path, value), origin))
    return rows


def _said(resolved: Resolved, path: Path) -> str:
    while path and resolved.origin(path) is BUILT_IN:
        path = path[:-1]
    return resolved.origin(path).text


def _masked(path: Path, value: Any) -> Any:
    """Values of secret-looking environment variables are hidden; references to secrets may be seen."""
    if isinstance(value, str) and value and "env" in path[:-1] and looks_secret(str(path[-1])):
        return MASK
    return value

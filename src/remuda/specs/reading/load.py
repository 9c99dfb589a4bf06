"""From a file, flags, the environment and the defaults file to one checked spec. The only reader of files here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from pydantic import ValidationError

from remuda.base.disk.files import read_whole
from remuda.base.disk.private import check_private
from remuda.base.errors import InputError
from remuda.base.settings import setting_with_origin, variable
from remuda.specs.kinds import kind_of
from remuda.specs.kubernetes import KubernetesFields
from remuda.specs.places import in_images
from remuda.specs.reading.defaults import pods_section, run_section, sections
from remuda.specs.reading.document import Document, Problem, fail, parse
from remuda.specs.reading.errors import problems_of
from remuda.specs.reading.resolve import (
    Layer,
    Origin,
    Override,
    Resolved,
    Shown,
    ValueOrigin,
    document_layer,
    override_layer,
    resolve,
    setting_layer,
    show,
)
from remuda.specs.reading.shapes import DOCUMENTS, MOST_BYTES
from remuda.specs.strict import Plain, Strict
from remuda.specs.swarm import SwarmSpec, expand

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from remuda.specs.reading.document import Path

SpecT_co = TypeVar("SpecT_co", bound=Strict, covariant=True)
Setting = tuple[str, str]
"""Value and origin, both empty when unset."""


@dataclass(frozen=True)
class Loaded(Generic[SpecT_co]):
    """A checked spec, and where each of its values came from."""

    spec: SpecT_co
    kind: str
    file: str
    """As the user named it; empty without a file."""
    resolved: Resolved

    def origin(self, path: str) -> Origin:
        """Where the value at a dotted path came from."""
        return self.resolved.origin(tuple(path.split(".")))

    def words(self, names: Iterable[str]) -> list[str]:
        """Those of the fields that document or command line say, in the word that stands there."""
        said = [(name, self.origin(name)) for name in names if name in self.spec.model_fields_set]
        text = {ValueOrigin.FILE: "{name}", ValueOrigin.CLI: "{at.text}"}
        return [text[at.source].format(name=name, at=at) for name, at in said if at.source in text]

    def show(self, spec: Strict | None = None, derived: Mapping[str, str] | None = None) -> list[Shown]:
        """Every value with its origin; `spec` and `derived` come from `remuda.plan.derive`."""
        return show(spec or self.spec, self.resolved, derived)

    def problem(self, path: Path, message: str, hint: str = "") -> Problem:
        """What is wrong with a value, where it is said, else above or below that, else at the file."""
        resolved = self.resolved
        for end in range(len(path), 0, -1):
            part = path[:end]
            if resolved.says(part):
                said = resolved.origin(part)
                found = said if said.source is ValueOrigin.CLI else resolved.key(part)
                return Problem(found.where, message, hint, (found.line, found.column))
            below = [mark for layer in resolved.layers for at, mark in layer.keys.items() if at[:end] == part]
            if below:
                found = min(below, key=lambda mark: (mark.line, mark.column))
                return Problem(found.where, message, hint, (found.line, found.column))
        return Problem(self.file, message, hint)

    def locate(self, error: InputError) -> InputError:
        """The same error with `file:line:column` instead of the dotted path that a pure room knows."""
        if not error.where:
            return error
        message = error.message.removeprefix(f"{error.where}: ")
        return fail([self.problem(tuple(error.where.split(".")), message, error.hint)])


def load(path: FilePath | str | None, overrides: Sequence[Override] = (), *, expect: str = "") -> Loaded[Strict]:
    """Read a document of any kind and everything that may change it.

    Args:
        path: YAML or JSON file; None when the overrides say all.
        overrides: from the command line; they win.
        expect: kind to take when neither `kind` nor the shape tells.

    Raises:
        InputError: something is wrong; says where, and names all problems.
    """
    document = read_document(path) if path is not None else None
    return build(document, overrides, expect=expect, defaults=read_defaults(), settings=read_settings())


def load_swarm(path: FilePath | str | None, overrides: Sequence[Override] = ()) -> Loaded[SwarmSpec]:
    """Read a swarm's document; see `load`.

    Raises:
        InputError: something is wrong, or it is a document of another kind.
    """
    loaded = load(path, overrides, expect="swarm")
    if not isinstance(loaded.spec, SwarmSpec):
        does = {"gang": "remuda gang up", "deployment": "remuda apply"}.get(loaded.kind, "")
        hint = f"{does} {loaded.file}" if does else ""
        raise InputError(f"is a {loaded.kind}, and a swarm is needed here", hint=hint, where=loaded.file)
    return cast("Loaded[SwarmSpec]", loaded)


def build(
    document: Document | None,
    overrides: Sequence[Override] = (),
    *,
    expect: str = "",
    defaults: Document | None = None,
    settings: Mapping[str, Setting] | None = None,
    script: Sequence[Layer] = (),
) -> Loaded[Strict]:
    """The same as `load` from what was read already. Pure.

    Args:
        document: of the user.
        overrides: from the command line.
        expect: kind to take when nothing tells.
        defaults: of the user.
        settings: from the environment.
        script: what the head of a run's script says, lowest first.

    Raises:
        InputError: as for `load`.
    """
    said = [document_layer(document, ValueOrigin.FILE)] if document else []
    said.append(override_layer(overrides))
    kind = kind_of(resolve(said), expect)
    if kind.name == "swarm":
        said = [_expanded(layer) for layer in said]
    low = _low_layers(said, defaults, settings or {}) if kind.name == "swarm" else []
    if issubclass(kind.model, KubernetesFields):
        said = [_lifted(layer) for layer in said]
    if kind.name == "run":
        low = [*run_layers(defaults, settings or {}), *script]
    if defaults and in_images(str(resolve([*low, *said]).data.get("backend"))):
        low = [pods_section(defaults), *low]
    resolved = resolve([*low, *said])
    try:
        spec = kind.model.model_validate(resolved.data)
    except ValidationError as error:
        raise fail(problems_of(error, kind.model, resolved)) from error
    return Loaded(spec, kind.name, document.name if document else "", resolved)


def _lifted(layer: Layer) -> Layer:
    """The layer of a run or gang with what its `backend` says beside `type` where those have it."""
    backend = layer.data.get("backend")
    if not isinstance(backend, dict):
        return layer

    def moved(marks: Mapping[Path, Origin]) -> dict[Path, Origin]:
        inner = {path[1:]: mark for path, mark in marks.items() if path[:1] == ("backend",) and len(path) > 1}
        outer = {path: mark for path, mark in marks.items() if path[:1] != ("backend",)}
        return {**outer, **{path if path != ("type",) else ("backend",): mark for path, mark in inner.items()}}

    inner = {key: value for key, value in backend.items() if key != "type"}
    data = {**layer.data, **inner, "backend": backend.get("type")}
    return Layer(data, moved(layer.values), moved(layer.keys))


def run_layers(defaults: Document | None, settings: Mapping[str, Setting]) -> list[Layer]:
    """Defaults file and environment, as far as they speak about runs."""
    own = [run_section(defaults)] if defaults else []
    fields = {"MAIL_USER": "mail_user", "SBATCH_ACCOUNT": "account", "SBATCH_QOS": "qos"}
    values: list[tuple[Path, str, str]] = []
    for setting, key in fields.items():
        value, origin = settings.get(setting, ("", ""))
        if value:
            values.append(((key,), value, origin))
    return [*own, setting_layer(values)]


def _low_layers(said: list[Layer], defaults: Document | None, settings: Mapping[str, Setting]) -> list[Layer]:
    """Defaults file and environment, as far as they speak about the backend that is used."""
    top, by_backend = sections(defaults) if defaults else (Layer({}), {})
    top = _expanded(top)
    backend = resolve([top, *said]).data.get("backend")
    name = str(backend.get("type", "local")) if isinstance(backend, dict) else "local"
    own = [by_backend[name]] if name in by_backend else []
    fields: dict[str, Path] = {"HOME": ("home_directory",), "LOG_LEVEL": ("log_level",)}
    if name == "slurm":
        fields["MAIL_USER"] = ("backend", "mail_user")
    if name == "lepton":
        fields["LEPTON_WORKSPACE_ID"] = ("backend", "workspace_id")
    values = []
    for setting, path in fields.items():
        value, origin = settings.get(setting, ("", ""))
        if value:
            values.append((path, value.lower() if setting == "LOG_LEVEL" else value, origin))
    environment = setting_layer(values)
    if "backend" in environment.data:
        environment.data["backend"]["type"] = name
    return [top, *own, environment]


def _expanded(layer: Layer) -> Layer:
    """The layer with its one-word forms written out; what they mean stands where the word stood."""
    data = expand(layer.data)
    values = dict(layer.values)
    for key in ("backend", "router"):
        origin = values.get((key,)) or next((o for p, o in values.items() if p[:1] == (key,)), None)
        value = data.get(key)
        if origin is not None and isinstance(value, dict) and "type" in value:
            values.setdefault((key, "type"), origin)
    if "image" in data and "image" not in layer.data:  # it stood under `backend`
        values, keys = (
            {path if path != ("backend", "image") else ("image",): mark for path, mark in marks.items()}
            for marks in (values, layer.keys)
        )
        return replace(layer, data=data, values=values, keys=keys)
    return replace(layer, data=data, values=values)


def read_document(path: FilePath | str, fits: Callable[[FilePath], bool] = FilePath.is_file) -> Document:
    """Read one file.

    Args:
        path: of it.
        fits: where it is missing, whether another document in its folder may have been meant.

    Raises:
        InputError: it is missing, cannot be read, or is not valid YAML.
    """
    file = FilePath(path).expanduser()
    name = str(path)
    try:
        text = read_whole(file, MOST_BYTES).decode("utf-8-sig")
    except FileNotFoundError as error:
        raise InputError("there is no such file", hint=_similar(file, fits), where=name) from error
    except IsADirectoryError as error:
        raise InputError("is a directory, not a file", where=name) from error
    except OSError as error:
        raise InputError(f"cannot be read: {(error.strerror or '').lower()}", where=name) from error
    except UnicodeDecodeError as error:
        raise InputError(f"is not UTF-8 text (byte {error.start})", where=name) from error
    return parse(text, name)


def _similar(file: FilePath, fits: Callable[[FilePath], bool]) -> str:
    """A hint with the documents that are there."""
    try:
        found = (item for item in file.parent.iterdir() if item.suffix in DOCUMENTS and item.name[0] != ".")
        there = sorted(item.name for item in found if fits(item))
    except OSError:
        return f"there is no directory {str(file.parent)!r} either"
    return f"there: {', '.join(there[:5])}" if there else ""


def defaults_path() -> tuple[FilePath, str]:
    """The defaults file and what set its path (empty when nothing did)."""
    said, origin = setting_with_origin("DEFAULTS")
    if said:
        return FilePath(said).expanduser(), origin
    from remuda.base.disk.paths import state_paths

    return state_paths().root / "defaults.yaml", ""


def read_defaults() -> Document | None:
    """The user's defaults file, None without one.

    Raises:
        InputError: it is wrong, or was named in the environment and is missing.
        NotPrivate: nobody named it, and others could have written it.
    """
    path, origin = defaults_path()
    if not origin:
        if not path.is_file():
            return None
        check_private(path, below=path.parent)
    try:
        document = read_document(path)
    except InputError as error:
        named = f"it was named by {origin}" if origin else ""
        raise InputError(error.message, hint="; ".join(filter(None, (named, error.hint)))) from error
    return replace(document, name=_short(path))


def _short(path: FilePath) -> str:
    try:
        return f"~/{path.relative_to(FilePath.home())}"
    except (ValueError, RuntimeError):
        return str(path)


def read_settings() -> dict[str, Setting]:
    """The settings from the environment that are fields of a spec."""
    names = ("HOME", "LOG_LEVEL", "MAIL_USER", "LEPTON_WORKSPACE_ID")
    slurm = {name: variable(name) for name in ("SBATCH_ACCOUNT", "SBATCH_QOS")}
    return {**{name: setting_with_origin(name) for name in names}, **slurm}


def assignment(text: str, flag: str = "--set") -> Override:
    """The override that `KEY=VALUE` on the command line means; `KEY=` means as if nobody had said it.

    Raises:
        InputError: there is no `=`, or no key.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InputError(f"{text!r} is not KEY=VALUE", hint=f"for example {flag} watchdog.max_restarts=5", where=flag)
    return Override(key.strip(), Plain(value) if value else None, f"{flag} {key.strip()}")


def mapping_overrides(values: Mapping[str, Any], origin: str) -> list[Override]:
    """Overrides for a caller that has values in hand, e.g. `Swarm(model=…, replicas=2)`."""
    return [Override(path, value, origin) for path, value in values.items()]

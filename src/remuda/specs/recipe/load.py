"""From a recipe, or a deployment of our own, and the cluster file to checked deployments."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from remuda.base.errors import InputError, located
from remuda.specs.deployment import DeploymentSpec
from remuda.specs.places import traits
from remuda.specs.reading.document import fail
from remuda.specs.reading.errors import problems_of
from remuda.specs.reading.fields import lookup
from remuda.specs.reading.load import Loaded
from remuda.specs.reading.resolve import Layer, Resolved, ValueOrigin, document_layer, override_layer
from remuda.specs.recipe import normal
from remuda.specs.recipe.cluster import Cluster
from remuda.specs.recipe.sweeps import SweepPoint, expand
from remuda.specs.recipe.variants import lay, variants, without_null

if TYPE_CHECKING:
    from collections.abc import Sequence

    from remuda.specs.reading.document import Document
    from remuda.specs.reading.resolve import Override


@dataclass(frozen=True)
class Recipe:
    """One deployment of a file, checked.

    Args:
        loaded: the spec, and where each value came from.
        selector: what names it in its file; empty where the file holds one.
        notes: what was read and is not used, a sentence each.
        derived: dotted path -> why, for values that nobody said.
        point: of a sweep, which one it is; None: of none was asked.
    """

    loaded: Loaded[DeploymentSpec]
    selector: str = ""
    notes: tuple[str, ...] = ()
    derived: dict[str, str] | None = None
    point: SweepPoint | None = None


def split_target(target: str) -> tuple[FilePath, str]:
    """File and selector of `recipe.yaml:selector`; a file whose name has a colon is a file."""
    file = FilePath(target).expanduser()
    if ":" not in file.name or file.exists():
        return file, ""
    name, _, selector = target.rpartition(":")
    return FilePath(name).expanduser(), selector


def build(
    document: Document,
    selector: str = "",
    overrides: Sequence[Override] = (),
    unset: Sequence[str] = (),
    *,
    cluster: Cluster | None = None,
    backend: str = "",
    sweep: bool = False,
) -> list[Recipe]:
    """All deployments of a file that are named. Pure.

    Args:
        document: the file.
        selector: see `variants`.
        overrides: from the command line, in the words of the file.
        unset: dotted paths to take out of it.
        cluster: what the cluster file says.
        backend: type of the backend, where the command line chooses it.
        sweep: each recipe stands for those of its section `sweep`, see `sweeps.expand`.

    Raises:
        InputError: something is wrong; says where, and names all problems of the first recipe that has any.
    """
    said = document_layer(document, ValueOrigin.FILE)
    with located(document.name):
        chosen = variants(said, selector)
    found = []
    for variant in chosen:
        resolved = _changed(variant.resolved, overrides, unset, document.name)
        for point in expand(resolved) if sweep else [None]:
            filled = point.resolved if point is not None else resolved
            recipe = _one(document.name, variant.selector, filled, cluster or Cluster(), backend)
            found.append(replace(recipe, point=point))
    return found


def _one(name: str, selector: str, resolved: Resolved, cluster: Cluster, backend: str) -> Recipe:
    is_ours = str(resolved.data.get("kind", "")) == "deployment"
    read = normal.Normal(Layer(resolved.data)) if is_ours else normal.normalise(resolved)
    own = [*resolved.layers] if is_ours else [read.layer]
    data = resolved.data if is_ours else read.layer.data
    low = _fitting(cluster.layer, data, backend, is_ours=is_ours)
    full = _with_backend(without_null(lay(low.data, data)), backend, is_ours=is_ours)
    final = Resolved(full, (low, *own))
    try:
        spec = DeploymentSpec.model_validate(full)
    except ValidationError as error:
        problems = problems_of(error, DeploymentSpec, final)
        raise fail([read.in_their_words(problem) for problem in problems]) from error
    spec, derived = with_aliases(spec, cluster)
    loaded = Loaded(spec, "deployment", name, final)
    return Recipe(loaded, selector, (*cluster.notes, *read.notes), derived)


def _changed(resolved: Resolved, overrides: Sequence[Override], unset: Sequence[str], name: str) -> Resolved:
    layer = override_layer(overrides)
    data = without_null(lay(resolved.data, layer.data))
    for text in unset:
        path = text.split(".")
        inner = lookup(data, tuple(path[:-1]))
        if not isinstance(inner, dict) or path[-1] not in inner:
            raise InputError(f"--unset {text}: {name} does not say {text!r}", hint="keys are written with dots between")
        del inner[path[-1]]
    return Resolved(data, (*resolved.layers, layer))


def _fitting(low: Layer, data: dict[str, Any], backend: str, *, is_ours: bool) -> Layer:
    """What the cluster file says, without its Slurm where the deployment runs on this machine or in a fleet."""
    said = data.get("backend")
    kind = backend or (str(said.get("type", "local")) if isinstance(said, dict) else str(said or "local"))
    if (is_ours or backend) and kind != "slurm":
        return Layer({key: value for key, value in low.data.items() if key != "backend"}, low.values, low.keys)
    return low


def _with_backend(data: dict[str, Any], backend: str, *, is_ours: bool) -> dict[str, Any]:
    said = data.get("backend")
    if isinstance(said, str):
        said = {"type": said}
    kind = backend or (str((said or {}).get("type", "local" if is_ours else "slurm")))
    if traits(backend).planned_as:
        return {**data, "backend": {"type": backend}}
    if kind == "local" and (backend or said is None):
        endpoint = said if isinstance(said, dict) and said.get("type") == "local" else {}
        return {**data, "backend": {**endpoint, "type": "local"}}
    return {**data, "backend": {**(said or {}), "type": kind}}


def with_aliases(spec: DeploymentSpec, cluster: Cluster) -> tuple[DeploymentSpec, dict[str, str]]:
    """The spec with paths in place of the cluster file's names for them, and which name each was."""
    derived: dict[str, str] = {}

    def meant(path: str, value: str | None, names: Any, what: str) -> str | None:
        if value is None or value not in names:
            return value
        derived[path] = f"{cluster.name}, {what} {value!r}"
        return str(names[value])

    model = spec.model.model_copy(
        update={"path": meant("model.path", spec.model.path, cluster.models, "model"),
                "name": spec.model.name or _said_name(spec)
                or spec.model.path.removeprefix("hf:").rstrip("/").rpartition("/")[2] or spec.model.path}
    )  # fmt: skip
    if spec.model.name is None:
        derived["model.name"] = "the workers' served-model-name" if _said_name(spec) else "derived from model.path"
    update: dict[str, Any] = {
        "model": model,
        "container": meant("container", spec.container, cluster.containers, "container"),
        "roles": spec.roles.model_copy(
            update={
                name: role.model_copy(
                    update={"container": meant(f"roles.{name}.container", role.container, cluster.containers, "image")}
                )
                for name, role in spec.by_name().items()
            }
        ),
    }
    return spec.model_copy(update=update), derived


def _said_name(spec: DeploymentSpec) -> str:
    """The one name that the flags of workers say; empty where they say none, or several."""
    said = {
        str(value)
        for role in spec.by_name().values()
        for key, value in role.args.items()
        if key.lstrip("-").replace("_", "-") == "served-model-name" and value is not None
    }
    return said.pop() if len(said) == 1 else ""

"""Kinds of documents, and how to tell which one a document is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.base.text import did_you_mean
from remuda.specs.benchmark import BenchmarkSpec
from remuda.specs.deployment import DeploymentSpec
from remuda.specs.gang import GangSpec
from remuda.specs.pool import PoolSpec
from remuda.specs.reading.document import Problem, fail
from remuda.specs.reading.shapes import SHAPES, is_never_guessed
from remuda.specs.run import RunSpec
from remuda.specs.swarm import SwarmSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from remuda.specs.reading.resolve import Resolved
    from remuda.specs.strict import Strict


@dataclass(frozen=True)
class DocumentKind:
    """One kind of document."""

    name: str
    model: type[Strict]
    is_shape: Callable[[Mapping[str, object]], bool]
    """Whether data without `kind` is surely of this one."""


_MODELS: dict[str, type[Strict]] = {
    "swarm": SwarmSpec, "run": RunSpec, "pool": PoolSpec, "benchmark": BenchmarkSpec, "gang": GangSpec,
    "deployment": DeploymentSpec,
}  # fmt: skip
KINDS = {name: DocumentKind(name, _MODELS[name], is_shape) for name, is_shape in SHAPES.items()}


def kind_of(resolved: Resolved, expect: str = "") -> DocumentKind:
    """The kind of a document: what it says, else what its shape tells, else `expect`, else where most keys are known.

    Raises:
        InputError: none, or an unknown one.
    """
    said = resolved.data.get("kind")
    if said is not None:
        if str(said) in KINDS:
            return KINDS[str(said)]
        origin = resolved.origin(("kind",))
        sentence = f"`kind` must be one of {', '.join(KINDS)}, not {str(said)!r}"
        raise fail([Problem(origin.where, sentence, did_you_mean(str(said), KINDS))])
    _refuse_recipe(resolved)
    for kind in KINDS.values():
        if kind.is_shape(resolved.data):
            return kind
    if expect:
        return KINDS[expect]
    shares = {name: len(resolved.data.keys() & kind.model.model_fields.keys()) for name, kind in KINDS.items()
              if kind.is_shape is not is_never_guessed}  # fmt: skip
    best = max(shares, key=lambda name: shares[name])
    if shares[best] == 0:
        where = resolved.origin(()).where
        raise fail([Problem(where, "the document does not say what it is", f"add `kind: {next(iter(KINDS))}`")])
    return KINDS[best]


def _refuse_recipe(resolved: Resolved) -> None:
    """A recipe of srtctl is no document of ours, and would be told of every key that it has.

    Raises:
        InputError: it is one.
    """
    data = resolved.data
    told = [key for key in ("schema", "base", "roles", "resources") if key in data]
    if "schema" in told or "base" in told or (isinstance(data.get("model"), dict) and told):
        where = resolved.key((told[0],)).where
        raise fail([Problem(where, f"`{told[0]}` makes it a recipe of srtctl", "remuda resolve or apply it")])

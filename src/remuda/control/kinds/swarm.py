"""Swarms: replicas of a model behind one address."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from remuda.base.ids import new_suffix
from remuda.control import preflight, rundirs
from remuda.control.kinds import WorkKind
from remuda.control.rendering import ask_backends
from remuda.look.engines import unknown_arguments
from remuda.plan.cluster import engine_python
from remuda.plan.compile import Draft, Finding
from remuda.plan.derive import name_base
from remuda.plan.swarm import compile_swarm

if TYPE_CHECKING:
    from collections.abc import Iterator

    from remuda.look.facts import Looked
    from remuda.plan.compile import Plan
    from remuda.specs.load import Loaded
    from remuda.specs.swarm import SwarmSpec


def draft_of(loaded: Loaded[SwarmSpec], name: str = "") -> Draft[SwarmSpec]:
    """A swarm's document with its name: `name`, else what the document says, else one is made of the model."""
    return Draft(loaded, name or loaded.spec.name or f"{name_base(loaded.spec)}-{new_suffix()}")


def _model(plan: Plan, _: Looked) -> Iterator[Finding]:
    """A model that is surely a file, and is not there, would cost minutes of restarts."""
    spec = plan.spec
    is_path = spec.model.startswith(("/", "./", "../")) or (spec.engine == "llamacpp" and not spec.image)
    path = Path(spec.cwd or ".") / spec.model
    if plan.workload.is_here and spec.engine != "command" and is_path and not path.exists():
        hint = "relative paths start at `cwd`, by default where the command was typed"
        yield Finding(("model",), f"there is no model {str(path)!r}", hint=hint)


def _flags(plan: Plan, facts: Looked) -> Iterator[Finding]:
    """Arguments that the engine does not list in its help."""
    python = engine_python(plan.spec, facts.context().python)
    for sentence in unknown_arguments(plan.spec, python, facts.paths):
        yield Finding((), sentence, fails=False)


def _home(plan: Plan, facts: Looked) -> Iterator[Finding]:
    """Who else has `home_directory` in their hands."""
    home = plan.spec.home_directory
    if home and (told := rundirs.told_elsewhere(home, facts.paths)):
        yield Finding((), f"home_directory: {told}", fails=False)


def _needs_gpus(_: SwarmSpec) -> bool:
    return True


KIND = WorkKind(compile_swarm, (_model, _flags, _home), (preflight.parts, ask_backends), needs_gpus=_needs_gpus)

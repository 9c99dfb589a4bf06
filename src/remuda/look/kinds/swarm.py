"""Swarms: replicas of a model behind one address."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from remuda.base.ids import new_suffix
from remuda.look import planning, preflight, run_dirs
from remuda.look.engines import unknown_arguments
from remuda.look.kinds import WorkKind
from remuda.look.rendering import ask_backends
from remuda.plan.compile import Draft, Finding
from remuda.plan.derive import name_base
from remuda.plan.placing.cluster import engine_python
from remuda.plan.swarm import compile_swarm
from remuda.specs.reading.load import assignment, load_swarm
from remuda.specs.reading.resolve import Override

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from remuda.look.facts import Looked
    from remuda.plan.compile import Plan
    from remuda.specs.reading.load import Loaded
    from remuda.specs.swarm import SwarmSpec


def draft_of(loaded: Loaded[SwarmSpec], name: str = "") -> Draft[SwarmSpec]:
    """A swarm's document with its name: `name`, else what the document says, else one is made of the model."""
    return Draft(loaded, name or loaded.spec.name or f"{name_base(loaded.spec)}-{new_suffix()}")


def plan(
    facts: Looked, file: Path | str | None, replicas: int | None = None, name: str = "", router: bool | None = None,
    settings: Sequence[str] = (),
) -> list[Plan]:  # fmt: skip
    """Plan the swarm of a document, with what the command line says. Nothing is started or written.

    Args:
        facts: of the command.
        file: the document.
        replicas: `--replicas`.
        name: `--name`.
        router: `--reverse-proxy` or `--no-reverse-proxy`.
        settings: `KEY=VALUE` with dotted keys; values are read as YAML.

    Raises:
        InputError: something is wrong; says where.
    """
    overrides = [assignment(text) for text in settings]
    if replicas is not None:
        overrides.append(Override("replicas", replicas, "--replicas"))
    if name:
        overrides.append(Override("name", name, "--name"))
    if router is False:
        overrides.append(Override("router.type", "none", "--no-reverse-proxy"))
    loaded = load_swarm(file, overrides)
    if router is True and loaded.spec.router.type == "none":
        loaded = load_swarm(file, [*overrides, Override("router.type", "smg", "--reverse-proxy")])
    return [plan_loaded(loaded, facts)]


def plan_loaded(loaded: Loaded[SwarmSpec], facts: Looked, name: str = "") -> Plan:
    """The same from a document that was read already; `name` wins over what it says."""
    return planning.plan("swarm", draft_of(loaded, name), facts)


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
    if home and (told := run_dirs.told_elsewhere(home, facts.paths)):
        yield Finding((), f"home_directory: {told}", fails=False)


KIND = WorkKind(compile_swarm, (_model, _flags, _home), (preflight.parts, ask_backends), needs_gpus=lambda _: True)

"""What faces do with deployments: plan them from a recipe, and bring them up. Runs in the user's process."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.base.errors import InputError
from remuda.base.ids import check_name, new_suffix, slug
from remuda.base.paths import state_paths
from remuda.base.private import make_private
from remuda.control import planning, recipes
from remuda.plan.deployment import FRONTEND, plan_deployment, refuse_what_is_not_built
from remuda.plan.deployment.bench import with_benchmark
from remuda.plan.deployment.flags import words
from remuda.plan.model import Endpoint
from remuda.serving.router import RouterSettings, router_named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from remuda.base.paths import StatePaths
    from remuda.plan.model import Workload
    from remuda.specs.deployment import DeploymentSpec
    from remuda.specs.recipe.load import Recipe


@dataclass(frozen=True)
class PlannedDeployment:
    """A deployment as it would be brought up."""

    workload: Workload
    spec: DeploymentSpec
    notes: tuple[str, ...]
    """What the user should know."""
    recipe: Recipe

    def check(self, paths: StatePaths) -> None:
        """Look for what would make it fail at once, and make what its parts find each other by.

        Raises:
            InputError: there is no such interpreter, or no such model.
        """
        python, model = Path(self.workload.groups[0].command.argv[0]), self.spec.model.path
        error = None
        if not python.is_file():
            error = InputError(f"there is no interpreter {str(python)!r}", where="python")
        elif model.startswith("/") and not Path(model).is_dir():
            error = InputError(f"there is no folder of a model {model!r}", where="model.path")
        if error is not None:
            raise _located(self.recipe, error)
        make_private(Path(self.workload.labels["discovery"]), below=paths.root)


def plan(
    target: str,
    settings: Sequence[str] = (),
    unset: Sequence[str] = (),
    *,
    name: str = "",
    backend: str = "",
    cluster_file: Path | None = None,
) -> PlannedDeployment:
    """Plan the deployment of a recipe, or of a document of our own. Nothing is started or written.

    Args:
        target: `FILE` or `FILE:SELECTOR`, which names one.
        settings: `KEY=VALUE` in the words of the file.
        unset: keys to take out of it.
        name: of the deployment; wins over the file.
        backend: `local` or `slurm`, in place of what the file says.
        cluster_file: instead of the one that is found.

    Raises:
        InputError: something is wrong; says where.
    """
    found = recipes.resolve(target, settings, unset, backend=backend, cluster_file=cluster_file)
    if len(found) > 1:
        there = ", ".join(f"{found[0].loaded.file}:{one.selector}" for one in found[:5])
        raise InputError(f"holds {len(found)} recipes, and one is brought up", hint=f"name it: {there}", where=target)
    (recipe,) = found
    try:
        return _plan(recipe, name)
    except InputError as error:
        raise _located(recipe, error) from error


def _located(recipe: Recipe, error: InputError) -> InputError:
    """The same error with the place of its field, or of what encloses it where it was said in one word."""
    parts = error.where.split(".")
    for end in range(len(parts), 0, -1):
        if recipe.loaded.resolved.says(tuple(parts[:end])):
            message = error.message.removeprefix(f"{error.where}: ")
            return recipe.loaded.locate(InputError(message, hint=error.hint, where=".".join(parts[:end])))
    return recipe.loaded.locate(error)


def _plan(recipe: Recipe, name: str) -> PlannedDeployment:
    spec = recipe.loaded.spec
    refuse_what_is_not_built(spec)
    name = check_name(name or spec.name or slug(Path(recipe.loaded.file).stem), where="name")
    python = spec.python or sys.executable
    settings = RouterSettings(
        Endpoint(), 2, group=FRONTEND, python=python, apart="agg" not in spec.by_name(),
        extra_args=words(spec.frontend.args),
    )  # fmt: skip
    workload = plan_deployment(
        spec, router_named("dynamo").group(settings), name=name, uid=new_suffix(8),
        run_dir=str(state_paths().workload(name)), python=python, spec_file=recipe.loaded.file,
    )  # fmt: skip
    home = str(state_paths().root)
    workload = with_benchmark(workload, spec, python=sys.executable, home=home, cwd=str(Path.cwd()))
    notes = list(recipe.notes)
    images = dict.fromkeys(
        image for image in (spec.container, *(r.container for r in spec.by_name().values())) if image
    )
    notes += [f"container {image} is not used: workers on this machine run by `python`" for image in images]
    if spec.benchmark.container:
        notes.append(f"container {spec.benchmark.container} is not used: `benchmark.command` runs beside the workers")
    env = planning.kept_environment()
    groups = tuple(
        group.model_copy(update={"command": group.command.model_copy(update={"env": {**env, **group.command.env}})})
        for group in workload.groups
    )
    return PlannedDeployment(workload.model_copy(update={"groups": groups}), spec, tuple(notes), recipe)

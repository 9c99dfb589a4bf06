"""What faces do with deployments: plan them from a recipe, and bring them up. Runs in the user's process."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.backends.container import in_registry
from remuda.base.errors import InputError
from remuda.base.ids import check_name, new_suffix, slug
from remuda.base.paths import from_here, is_path, state_paths
from remuda.control import deployed_records, planning, preflight, recipechecks, recipes, rundirs, swarms
from remuda.control.follow import CONTROL_KEY, secret_folder
from remuda.control.nodelist import settle
from remuda.control.wiring import slurm_backend
from remuda.look.caller import context
from remuda.look.programs import PACKAGES, located
from remuda.plan.deployment import (
    BALANCER,
    FRONTEND,
    ROUTERS,
    Site,
    frontend_args,
    frontend_python,
    has_balancer,
    plan_deployment,
)
from remuda.plan.deployment.bench import with_benchmark
from remuda.plan.deployment.preflight import check_ports
from remuda.plan.deployment.terms import asked_as
from remuda.plan.identity import digest
from remuda.plan.model import Secret
from remuda.serving.router import RouterSettings, router_named
from remuda.specs.document import fail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from remuda.base.paths import StatePaths
    from remuda.plan.model import Group, Workload
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
            InputError: there is no such interpreter or program, no such model or image, or its cluster refuses it.
        """
        try:
            self._check_interpreter(paths)
            self._check_programs()
        except InputError as error:
            raise _located(self.recipe, error) from error
        recipechecks.refuse(self.recipe, paths.root)
        planning.check_calls(self.workload, paths)

    def record(self) -> dict[str, str]:
        """Its directory, as files: what is started, and what is needed to start it again."""
        return self._files(Path(self.workload.folder))

    def _files(self, folder: Path) -> dict[str, str]:
        return deployed_records.files(self, swarms.rendered(self.workload), folder)

    def write(self, folder: Path) -> None:
        """Write its directory somewhere else, for eyes.

        Raises:
            InputError: there is something already, or it cannot be written.
        """
        rundirs.write_files(self._files(folder.absolute()), is_new=True)

    def _check_interpreter(self, paths: StatePaths) -> None:
        python = self.spec.python or ""
        is_seen = self.workload.is_here or (is_path(python) and preflight.is_shared(Path(python), paths.root))
        if python and is_seen and not shutil.which(python):
            raise InputError(f"there is no interpreter {python!r}", where="python")

    def _check_programs(self) -> None:
        here = self.workload.groups if self.workload.is_here else ()
        started = {group.command.argv[0] for group in here}
        if missing := [name for name in PACKAGES if name in started]:
            raise InputError(f"there is no program {missing[0]} on this machine", where="services",
                             hint=f"install it where the engine is: pip install {PACKAGES[missing[0]]}")  # fmt: skip


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
    return plan_recipe(found[0], name)


def plan_recipe(recipe: Recipe, name: str = "") -> PlannedDeployment:
    """Plan the deployment of a recipe that was resolved. Nothing is started or written.

    Raises:
        InputError: it cannot be brought up; says where.
    """
    if wrong := [recipechecks.located(recipe, one) for one in check_ports(recipe.loaded.spec)]:
        raise fail(wrong)
    try:
        return _plan(recipe, name)
    except InputError as error:
        raise _located(recipe, error) from error


def _located(recipe: Recipe, error: InputError) -> InputError:
    """The same error with the place of its field, or of what encloses it where it was said in one word."""
    parts, resolved = tuple(error.where.split(".")) if error.where else (), recipe.loaded.resolved
    said = next((parts[:end] for end in range(len(parts), 0, -1) if resolved.says(parts[:end])), ())
    return InputError(error.message.removeprefix(f"{error.where}: "), hint=error.hint, where=resolved.key(said).where)


def _plan(recipe: Recipe, name: str) -> PlannedDeployment:
    spec, paths = _from_here(recipe.loaded.spec), state_paths()
    caller = context(paths)
    name = check_name(name or spec.name or slug(Path(recipe.loaded.file).stem), where="name")
    uid, run_dir = new_suffix(8), str(paths.workload(name))
    site = Site(name, uid, run_dir, caller.python, caller.gpus, caller.state, recipe.loaded.file)
    keys = secret_folder(run_dir, uid)
    plan = plan_deployment(spec, _front(spec, keys, site.python), site, _balancer(spec, keys, site.python))
    workload = with_benchmark(plan.workload, spec, python=site.python, home=site.state, cwd=caller.cwd)
    if workload.is_here:
        workload = located(workload, shutil.which(spec.python or "") or site.python)
    found = caller.place if workload.is_here else caller.place_elsewhere
    if not workload.is_here:
        images = [group.command.image for group in workload.groups if group.command.image]
        if any(map(in_registry, images)) and (program := recipechecks.container_program(paths.root)) != "pyxis":
            found = {**found, "container": program}
    place = {**found, **workload.place, "home": spec.home_directory or ""}
    workload = workload.model_copy(update={"place": place})
    if not workload.is_here:
        widest = max(group.resources.nodes for group in workload.groups)
        settled = settle(place, widest, lambda: preflight.apart(slurm_backend(paths).cluster()))
        workload = workload.model_copy(update={"place": settled})
    at = time.strftime("%Y%m%dT%H%M%S")
    workload = workload.model_copy(update={
        "folder": str(deployed_records.folder_of(spec, name, paths.root, at, uid)),
        "digest": digest(recipe.loaded.spec, cwd=caller.cwd, name=name, port=("frontend", "port")),
    })  # fmt: skip
    notes = [*recipe.notes, *plan.notes]
    if spec.benchmark.container:
        notes.append(f"container {spec.benchmark.container} is not used: `benchmark.command` runs beside the workers")
    return PlannedDeployment(workload, spec, tuple(notes), recipe)


def _from_here(spec: DeploymentSpec) -> DeploymentSpec:
    """Paths that start where the command was typed, absolute: workers start elsewhere."""

    def whole(text: str | None) -> str | None:
        return from_here(text) if text else text

    roles = {
        name: role.model_copy(update={"container": whole(role.container)}) for name, role in spec.by_name().items()
    }
    return spec.model_copy(update={
        "model": spec.model.model_copy(update={"path": whole(spec.model.path)}), "python": whole(spec.python),
        "container": whole(spec.container), "roles": spec.roles.model_copy(update=roles),
    })  # fmt: skip


def _balancer(spec: DeploymentSpec, keys: Path, python: str) -> Group | None:
    """The group before several frontends; None before one."""
    if not has_balancer(spec):
        return None
    settings = RouterSettings(
        asked_as(spec), spec.frontend.replicas, policy="round_robin", group=BALANCER,
        control_key=Secret(file=str(keys / CONTROL_KEY)),
        public=not spec.backend.is_here, python=python, log_level=spec.log_level,
    )  # fmt: skip
    return router_named("smg").group(settings)


def _front(spec: DeploymentSpec, keys: Path, python: str) -> Group | None:
    """The group of the frontend, rendered by the router that it is; None without one."""
    if spec.frontend.type not in ROUTERS:
        return None
    kind = ROUTERS[spec.frontend.type]
    settings = RouterSettings(
        asked_as(spec),
        max(2, *(role.workers for role in spec.by_name().values())),
        group=FRONTEND,
        control_key=Secret(file=str(keys / CONTROL_KEY)) if kind != "dynamo" else None,
        public=not spec.backend.is_here,
        python=frontend_python(spec, python),
        log_level=spec.log_level,
        apart="agg" not in spec.by_name(),
        extra_args=frontend_args(spec),
    )
    try:
        return router_named(kind).group(settings)
    except InputError as error:
        raise InputError(error.message, hint=error.hint, where="frontend.type") from error

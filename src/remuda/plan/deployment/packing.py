"""A deployment whose workers and frontend are one job (`allocation: one-job`). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from remuda.plan.model import Resources
from remuda.plan.placing.seats import Row, on_fullest, seated_rows

if TYPE_CHECKING:
    from remuda.plan.model import Group, Workload
    from remuda.specs.deployment import DeploymentSpec

PACK: Final = "pack"
"""Label: the groups that are one job."""


def in_one_job(workload: Workload, spec: DeploymentSpec) -> Workload:
    """The same with workers and frontends as one job, where the document says so, and a cluster has jobs.

    They begin together: none waits for another, and what comes after one of them comes after all of them. So all wait
    for the same services, too.
    """
    if spec.allocation != "one-job" or workload.is_here:
        return workload
    mine = [group for group in workload.groups if group.role.serves or (group.role.routes and not group.backend)]
    names = tuple(group.name for group in mine)
    pack = seated_rows([_row(spec, group) for group in mine], spec.gpus_per_node)
    known = {group.name: group for group in mine}
    gpus = on_fullest(pack, known, lambda group: group.resources.gpus)
    tasks = on_fullest(pack, known, lambda group: max(1, group.command.ranks // group.resources.nodes))
    is_whole = bool(gpus) and gpus == spec.gpus_per_node
    shared = {
        "after": tuple(dict.fromkeys(name for group in mine for name in group.after if name not in names)),
        "kill_grace_s": max(group.kill_grace_s for group in mine), "pools": (), "succession": None, "together": True,
    }  # fmt: skip
    return workload.model_copy(update={
        "groups": tuple(
            group.model_copy(update={**shared, "resources": _resources(group, whole=is_whole)})
            if group.name in names else _later(group, names)
            for group in workload.groups
        ),
        "pack": pack.model_copy(update={"tasks": 1 if is_whole else tasks}),
        "labels": {**workload.labels, PACK: " ".join(names)},
    })  # fmt: skip


def _row(spec: DeploymentSpec, group: Group) -> Row:
    """Workers of a role have the nodes that the recipe gives them; frontends need no GPU, and are beside them."""
    role, needs = spec.by_name().get(group.name), group.resources
    own: dict[str, Any] = {"beside": True}
    if role is not None:
        own = {"beside": True} if role.nodes == "colocate" else {"over": max(1, role.nodes)}
    return Row(group.name, group.count, gpus=needs.gpus, nodes=needs.nodes, **own)


def _resources(group: Group, *, whole: bool) -> Resources:
    """Frontends have no share of their own: what is said of one node is for all that run there."""
    needs = group.resources if group.role.serves else Resources(time_limit_s=group.resources.time_limit_s)
    return needs.model_copy(update={"whole_nodes": whole})


def _later(group: Group, names: tuple[str, ...]) -> Group:
    """What comes after a part of the job comes after all of it."""
    if not any(name in names for name in group.after):
        return group
    return group.model_copy(update={"after": tuple(dict.fromkeys((*names, *group.after)))})

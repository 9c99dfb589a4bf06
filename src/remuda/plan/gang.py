"""From a gang's spec to the workload that backends and the supervisor see. Pure."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from remuda.base.errors import BackendUnreachable, InputError
from remuda.base.ids import slug
from remuda.base.units import parse_size
from remuda.plan.compile import UID, Plan, copy_of
from remuda.plan.model import INDEX_MARK, MEETING_PORT_MARK, Command, Kind, Role, Secret, Workload
from remuda.plan.placing.seats import most_on_one, node_counts, seated
from remuda.plan.run import asked_pools, carried, notes_of, place_of, refuse_elsewhere, script_group
from remuda.specs.gang import NOWHERE
from remuda.specs.kubernetes import KubernetesFields
from remuda.specs.places import in_images, is_here
from remuda.specs.run import RunSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from remuda.plan.compile import Draft, PlanFacts
    from remuda.plan.context import Context
    from remuda.plan.model import Group, Pool
    from remuda.specs.gang import GangSpec

RANK: Final = "rank"
RENDEZVOUS, RUN_ID = "rendezvous", "run_id"
"""Labels of a gang: where its ranks meet, and the name of what they train there."""
_OF_RUN: Final = (
    "env", "max_retries", "heal_after", "quick_failure", "heartbeat_interval", "heartbeat_grace", "progress_stall",
    "backoff_base", "backoff_max", "kill_grace", "gpu_check", "profile", "partitions", "gpu_type", "cpus_per_task",
    "mem", "time_limit", "account", "qos", "constraint", "reservation", "exclude_nodes", "node_list", "sbatch_args",
    "modules", "preamble", "python", *KubernetesFields.model_fields,
)  # fmt: skip
"""Fields that mean for a rank what they mean for a run."""
_FIELDS: Final = {"gpus": "resources.gpus"}
"""Field of a run -> what a gang calls it."""
_SCRIPTS: Final = frozenset({".py", ".sh"})


def gang_name(spec: GangSpec) -> str:
    """The name that the user gave, or that of the script, or of the first script in the command."""
    if spec.name or spec.script:
        return spec.name or slug(PurePosixPath(spec.script or "").stem)
    words = [PurePosixPath(word) for word in spec.command]
    return slug(next((word.stem for word in words if word.suffix in _SCRIPTS), words[0].name))


def compile_gang(draft: Draft[GangSpec], context: Context, facts: PlanFacts) -> Plan:
    """Plan a gang: one group with a task for each rank, which is looked after as a run is.

    Raises:
        InputError: no partition has room for it, its nodes cannot be counted, it has no image; `where` is the field.
        BackendUnreachable: its partition is to be chosen, and the cluster does not answer.
    """
    spec = draft.spec
    copy = copy_of(context, draft.name, draft.script) if draft.script else ""
    is_apart = in_images(spec.backend)
    refuse_elsewhere(spec, spec.backend)
    has_pools = not (is_apart or is_here(spec.backend))
    pools, nodes, notes = _places(spec, facts) if has_pools else ((), 0, notes_of(draft.loaded, spec.backend))
    workload = plan_gang(
        spec, context, name=draft.name, copy=copy, spec_file=draft.loaded.file, pools=pools, nodes=nodes
    )
    workload = carried(workload, spec, draft.text) if is_apart else workload
    folder = own_rendezvous(workload)
    files = {**({copy: draft.text} if copy else {}), **({f"{folder}/": ""} if folder else {})}
    return Plan(workload.model_copy(update={"files": files}), spec, (*_notes(spec), *notes), draft)


def _places(spec: GangSpec, facts: PlanFacts) -> tuple[tuple[Pool, ...], int, tuple[str, ...]]:
    """Partitions that can give all ranks their nodes at once, the number of nodes, which is the fewest, and notes.

    Of an elastic gang those that can give one rank its node, and 0: each rank has an allocation of its own.
    """
    if spec.mode != "rigid":
        return _asked(spec, {}, 0, facts)
    failed = InputError("no partition fits", where="partitions")
    if spec.ranks_per_node is None:
        try:
            facts.cluster()
        except BackendUnreachable as error:
            hint = "say it: ranks_per_node and partitions"
            raise BackendUnreachable(
                f"the cluster does not say how many ranks a node has room for: {error}", hint=hint
            ) from error
    for nodes in node_counts(spec.ranks, spec.ranks_per_node or 0):
        each = most_on_one(spec.ranks, nodes)
        size = parse_size(spec.mem) if spec.mem else 0
        changes = {
            "gpus": spec.resources.gpus * each, "nodes": nodes,
            "cpus_per_task": (spec.cpus_per_task or 0) * each or None, "mem": f"{size * each}B" if size else None,
        }  # fmt: skip
        try:
            return _asked(spec, changes, nodes, facts)
        except InputError as error:
            failed = error
    raise failed


def _asked(
    spec: GangSpec, changes: Mapping[str, object], nodes: int, facts: PlanFacts
) -> tuple[tuple[Pool, ...], int, tuple[str, ...]]:
    try:
        pools, notes = asked_pools(_run(spec).model_copy(update=changes), spec.backend, facts)
    except InputError as error:
        raise InputError(error.message, hint=error.hint, where=_FIELDS.get(error.where, error.where)) from error
    return pools, nodes, notes


def _run(spec: GangSpec) -> RunSpec:
    """One rank as a run."""
    shared = {key: getattr(spec, key) for key in _OF_RUN}
    return RunSpec(script=spec.script or spec.command[0], gpus=spec.resources.gpus, **shared)


def own_rendezvous(workload: Workload) -> str:
    """The folder where the ranks meet, where it is in the run directory; else empty."""
    own = PurePosixPath(workload.run_dir, "rendezvous")
    return str(own) if workload.labels[RENDEZVOUS] == own.as_uri() else ""


def _notes(spec: GangSpec) -> Iterator[str]:
    """What the user should know."""
    is_far = spec.rendezvous not in (None, NOWHERE) and not str(spec.rendezvous).startswith("file://")
    if is_far and not spec.secret_env and not spec.env:
        where = "the pod and its service account" if in_images(spec.backend) else "their home directory"
        yield f"ranks look for the credentials of {spec.rendezvous} in {where}; others go by secret_env"


def plan_gang(
    spec: GangSpec, context: Context, *, name: str, copy: str = "", spec_file: str = "", pools: tuple[Pool, ...] = (),
    nodes: int = 0,
) -> Workload:  # fmt: skip
    """The workload of a gang.

    Args:
        spec: as loaded, with all overrides.
        context: where the command was typed.
        name: of the gang.
        copy: absolute path of the copy of the script that is run; empty: the spec's command is run.
        spec_file: where the user wrote the spec, for messages.
        pools: where it may run, best first.
        nodes: of its one allocation; 0: each rank has its own.
    """
    run_dir = context.run_dir(name)
    url = spec.rendezvous or PurePosixPath(run_dir, "rendezvous").as_uri()
    url = "" if url == NOWHERE else url
    run_id = spec.run_id or name
    command = Command(
        argv=(*((copy,) if copy else spec.command), *spec.args),
        env={
            "RANK": INDEX_MARK,  # these two may be said otherwise, where a rank is several processes
            "WORLD_SIZE": str(spec.ranks),
            **(_of_rigid(spec) if spec.mode == "rigid" and not nodes else {}),
            **spec.env,
            "REPLICA_RANK": INDEX_MARK,
            "REPLICA_COUNT": str(spec.ranks),
            "RUN_ID": run_id,
            **({"REMUDA_RENDEZVOUS": url} if url else {}),
            **({"REMUDA_QUORUM": str(spec.quorum)} if spec.quorum else {}),
        },
        secret_env={key: Secret(**dict(source)) for key, source in spec.secret_env.items()},
        cwd=str(PurePosixPath(context.cwd, spec.workdir or "")),
    )
    return Workload(
        name=name,
        kind=Kind.GANG,
        uid=UID,
        backend=spec.backend,
        place=place_of(_run(spec), spec.backend, context, command.cwd),
        groups=(_ranks(spec, command, pools),),
        pack=seated(RANK, spec.ranks, nodes, spec.resources.gpus) if nodes else None,
        run_dir=run_dir,
        spec_file=spec_file,
        labels={RENDEZVOUS: url, RUN_ID: run_id},
    )


def _of_rigid(spec: GangSpec) -> dict[str, str]:
    """Where the ranks of one attempt meet. One that sees its own GPUs only counts them from 0."""
    own = "0" if spec.resources.gpus else INDEX_MARK
    return {"LOCAL_RANK": own, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": MEETING_PORT_MARK}


def _ranks(spec: GangSpec, command: Command, pools: tuple[Pool, ...]) -> Group:
    group = script_group(_run(spec), command, pools)
    return group.model_copy(update={
        "name": RANK, "role": Role.RANK, "count": spec.ranks, "quorum": spec.quorum or 0,
        "together": spec.mode == "rigid",
        "assemble_s": 0.0 if spec.mode == "rigid" or is_here(spec.backend) else spec.assemble,
        "replace": group.replace.model_copy(update={"keep_s": spec.timeout}),
    })  # fmt: skip

"""From a gang's spec to the workload that backends and the supervisor see. Pure."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from remuda.base.ids import slug
from remuda.plan.compile import UID, Plan, copy_of
from remuda.plan.model import INDEX_MARK, MEETING_PORT_MARK, Command, Kind, Role, Secret, Workload
from remuda.plan.run import local_place, script_group
from remuda.specs.run import RunSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from remuda.plan.compile import Draft, PlanFacts
    from remuda.plan.context import Context
    from remuda.plan.model import Group
    from remuda.specs.gang import GangSpec

RANK: Final = "rank"
RENDEZVOUS, RUN_ID = "rendezvous", "run_id"
"""Labels of a gang: where its ranks meet, and the name of what they train there."""
_OF_RUN: Final = (
    "env", "max_retries", "heal_after", "quick_failure", "heartbeat_interval", "heartbeat_grace", "progress_stall",
    "backoff_base", "backoff_max", "kill_grace", "gpu_check", "profile",
)  # fmt: skip
"""Fields that mean for a rank what they mean for a run."""
_SCRIPTS: Final = frozenset({".py", ".sh"})


def gang_name(spec: GangSpec) -> str:
    """The name that the user gave, or that of the script, or of the first script in the command."""
    if spec.name or spec.script:
        return spec.name or slug(PurePosixPath(spec.script or "").stem)
    words = [PurePosixPath(word) for word in spec.command]
    return slug(next((word.stem for word in words if word.suffix in _SCRIPTS), words[0].name))


def compile_gang(draft: Draft[GangSpec], context: Context, _: PlanFacts) -> Plan:
    """Plan a gang: one group with a task for each rank, which is looked after as a run is."""
    spec = draft.spec
    copy = copy_of(context, draft.name, draft.script) if draft.script else ""
    workload = plan_gang(spec, context, name=draft.name, copy=copy, spec_file=draft.loaded.file)
    folder = own_rendezvous(workload)
    files = {**({copy: draft.text} if copy else {}), **({f"{folder}/": ""} if folder else {})}
    return Plan(workload.model_copy(update={"files": files}), spec, tuple(_notes(spec)), draft)


def own_rendezvous(workload: Workload) -> str:
    """The folder where the ranks meet, where it is in the run directory; else empty."""
    own = PurePosixPath(workload.run_dir, "rendezvous")
    return str(own) if workload.labels[RENDEZVOUS] == own.as_uri() else ""


def _notes(spec: GangSpec) -> Iterator[str]:
    """What the user should know."""
    if spec.rendezvous and not spec.rendezvous.startswith("file://") and not spec.secret_env and not spec.env:
        yield f"ranks look for the credentials of {spec.rendezvous} in their home directory; others go by secret_env"


def plan_gang(spec: GangSpec, context: Context, *, name: str, copy: str = "", spec_file: str = "") -> Workload:
    """The workload of a gang.

    Args:
        spec: as loaded, with all overrides.
        context: where the command was typed.
        name: of the gang.
        copy: absolute path of the copy of the script that is run; empty: the spec's command is run.
        spec_file: where the user wrote the spec, for messages.
    """
    run_dir = context.run_dir(name)
    url = spec.rendezvous or PurePosixPath(run_dir, "rendezvous").as_uri()
    run_id = spec.run_id or name
    command = Command(
        argv=(*((copy,) if copy else spec.command), *spec.args),
        env={
            "RANK": INDEX_MARK,  # these two may be said otherwise, where a rank is several processes
            "WORLD_SIZE": str(spec.ranks),
            **(_of_rigid(spec) if spec.mode == "rigid" else {}),
            **spec.env,
            "REPLICA_RANK": INDEX_MARK,
            "REPLICA_COUNT": str(spec.ranks),
            "RUN_ID": run_id,
            "REMUDA_RENDEZVOUS": url,
            **({"REMUDA_QUORUM": str(spec.quorum)} if spec.quorum else {}),
        },
        secret_env={key: Secret(file=source.file, env=source.env) for key, source in spec.secret_env.items()},
        cwd=str(PurePosixPath(context.cwd, spec.workdir or "")),
    )
    return Workload(
        name=name,
        kind=Kind.GANG,
        uid=UID,
        backend="local",
        place=local_place(context),
        groups=(_ranks(spec, command),),
        run_dir=run_dir,
        spec_file=spec_file,
        labels={RENDEZVOUS: url, RUN_ID: run_id},
    )


def _of_rigid(spec: GangSpec) -> dict[str, str]:
    """Where the ranks of one attempt meet. One that sees its own GPUs only counts them from 0."""
    own = "0" if spec.resources.gpus else INDEX_MARK
    return {"LOCAL_RANK": own, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": MEETING_PORT_MARK}


def _ranks(spec: GangSpec, command: Command) -> Group:
    shared = {key: getattr(spec, key) for key in _OF_RUN}
    run = RunSpec(script=spec.script or spec.command[0], gpus=spec.resources.gpus, **shared)
    group = script_group(run, command, ())
    return group.model_copy(update={
        "name": RANK, "role": Role.RANK, "count": spec.ranks, "quorum": spec.quorum or 0,
        "together": spec.mode == "rigid",
        "replace": group.replace.model_copy(update={"keep_s": spec.timeout}),
    })  # fmt: skip

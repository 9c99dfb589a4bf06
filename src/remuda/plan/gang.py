"""From a gang's spec to the workload that backends and the supervisor see. Pure."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from remuda.base.ids import slug
from remuda.plan.model import INDEX_MARK, Command, Kind, Role, Secret, Workload
from remuda.plan.run import local_place, script_group
from remuda.specs.run import RunSpec

if TYPE_CHECKING:
    from remuda.plan.model import Group
    from remuda.plan.run import RunSite
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


def plan_gang(
    spec: GangSpec, site: RunSite, *, name: str, uid: str, run_dir: str, now: float, spec_file: str = ""
) -> Workload:
    """Plan a gang: one group with a task for each rank, which is looked after as a run is.

    Args:
        spec: as loaded, with all overrides.
        site: where the command was typed; without a `copy`, the spec's command is run.
        name: of the gang.
        uid: random, new for every creation.
        run_dir: absolute directory for everything it writes.
        now: seconds since the epoch; `timeout` counts from here.
        spec_file: where the user wrote the spec, for messages.
    """
    url = spec.rendezvous or PurePosixPath(run_dir, "rendezvous").as_uri()
    run_id = spec.run_id or name
    command = Command(
        argv=(*((site.copy,) if site.copy else spec.command), *spec.args),
        env={
            "RANK": INDEX_MARK,  # these two may be said otherwise, where a rank is several processes
            "WORLD_SIZE": str(spec.ranks),
            **spec.env,
            "REPLICA_RANK": INDEX_MARK,
            "REPLICA_COUNT": str(spec.ranks),
            "RUN_ID": run_id,
            "REMUDA_RENDEZVOUS": url,
            **({"REMUDA_QUORUM": str(spec.quorum)} if spec.quorum else {}),
        },
        secret_env={key: Secret(file=source.file, env=source.env) for key, source in spec.secret_env.items()},
        cwd=str(PurePosixPath(site.cwd, spec.workdir or "")),
    )
    return Workload(
        name=name,
        kind=Kind.GANG,
        uid=uid,
        backend=site.backend,
        place=local_place(site),
        groups=(_ranks(spec, command, now),),
        run_dir=run_dir,
        spec_file=spec_file,
        labels={RENDEZVOUS: url, RUN_ID: run_id},
    )


def _ranks(spec: GangSpec, command: Command, now: float) -> Group:
    shared = {key: getattr(spec, key) for key in _OF_RUN}
    run = RunSpec(script=spec.script or spec.command[0], gpus=spec.resources.gpus, **shared)
    group = script_group(run, command, (), now)
    until = now + spec.timeout if spec.timeout else 0.0
    return group.model_copy(update={
        "name": RANK, "role": Role.RANK, "count": spec.ranks, "quorum": spec.quorum or 0,
        "replace": group.replace.model_copy(update={"until": until}),
    })  # fmt: skip

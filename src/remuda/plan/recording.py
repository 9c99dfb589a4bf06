"""A recording of this machine's GPUs as a workload: one task, whose child is the recorder. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from remuda import enter
from remuda.plan.compile import UID, Plan
from remuda.plan.model import Command, Group, Kind, Replace, RestartRule, Role, Workload

if TYPE_CHECKING:
    from remuda.plan.compile import PlanFacts
    from remuda.plan.context import Context

RECORDER: Final = "recorder"
FOLDER, INTERVAL = "folder", "interval"
"""Labels of a recording: where its spools lie, and seconds between two samples."""
#: It keeps nothing but files: begun again at once. Ending with code 0 means that there is nothing to record.
_RESTART: Final = RestartRule(policy="on-failure", max_restarts=20, backoff_initial_s=0.1, backoff_max_s=5.0)
_REPLACE: Final = Replace(policy="on-failure", max_failures=20, backoff_initial_s=0.2, backoff_max_s=30.0)


@dataclass(frozen=True)
class Recording:
    """A recording that is to begin.

    Attributes:
        name: of it.
        folder: absolute directory for its spools, which stay when the workload is removed.
        interval_s: between two samples.
        gpus: indexes or UUIDs; empty: all.
    """

    name: str
    folder: str
    interval_s: float
    gpus: tuple[str, ...] = ()


def compile_recording(asked: Recording, context: Context, _: PlanFacts) -> Plan:
    """Plan it."""
    argv = [context.python, "-P", *enter.words("recorder"), asked.folder]
    argv += ["--interval-s", f"{asked.interval_s:g}", "--name", asked.name]
    argv += ["--gpus", ",".join(asked.gpus)] if asked.gpus else []
    group = Group(
        name=RECORDER,
        role=Role.RECORDER,
        count=1,
        command=Command(argv=tuple(argv)),
        restart=_RESTART,
        replace=_REPLACE,
        kill_grace_s=10.0,
    )
    workload = Workload(
        name=asked.name, kind=Kind.RECORDING, uid=UID, backend="local", groups=(group,),
        place={"env": dict(context.env)}, run_dir=context.run_dir(asked.name),
        files={f"{asked.folder}/": ""}, labels={FOLDER: asked.folder, INTERVAL: f"{asked.interval_s:g}"},
    )  # fmt: skip
    return Plan(workload)

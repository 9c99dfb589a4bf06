"""A recording of GPUs as a workload: a task whose child is the recorder, here or on each node of a fleet. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from remuda import enter
from remuda.plan.compile import UID, Plan
from remuda.plan.model import NODE_MARK, Command, Group, Kind, Pool, Replace, RestartRule, Role, Workload
from remuda.specs.places import FLEET, planned_as
from remuda.wire.child import PROGRAM_MARK

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
        nodes: of the fleet; empty: this machine is recorded.
    """

    name: str
    folder: str
    interval_s: float
    gpus: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


def compile_recording(asked: Recording, context: Context, _: PlanFacts) -> Plan:
    """Plan it."""
    words = ["--interval-s", f"{asked.interval_s:g}", "--name", asked.name]
    if asked.nodes:  # what is not asked of Slurm, as a recorder asks for no GPU, is not to be seen by default
        words += ["--gpus", ",".join(asked.gpus) or "all", "--node", NODE_MARK]
        argv, place = [PROGRAM_MARK, "recorder", f"{asked.folder}/{NODE_MARK}", *words], context.place_elsewhere
        groups = tuple(_on_node(argv, number, node) for number, node in enumerate(asked.nodes))
    else:
        words += ["--gpus", ",".join(asked.gpus)] if asked.gpus else []
        argv, place = [context.python, "-P", *enter.words("recorder"), asked.folder, *words], {"env": dict(context.env)}
        groups = (_group(argv),)
    workload = Workload(
        name=asked.name, kind=Kind.RECORDING, uid=UID, backend=planned_as(FLEET) if asked.nodes else "local",
        groups=groups, place=place, run_dir=context.run_dir(asked.name), files={f"{asked.folder}/": ""},
        labels={FOLDER: asked.folder, INTERVAL: f"{asked.interval_s:g}"},
    )  # fmt: skip
    return Plan(workload)


def _group(argv: list[str]) -> Group:
    return Group(
        name=RECORDER,
        role=Role.RECORDER,
        count=1,
        command=Command(argv=tuple(argv)),
        restart=_RESTART,
        replace=_REPLACE,
        kill_grace_s=10.0,
    )


def _on_node(argv: list[str], number: int, node: str) -> Group:
    """The recorder of one node, and of no other; where that leaves the fleet, its recorder ends with it."""
    return _group(argv).model_copy(update={
        "name": f"{RECORDER}_{number}",
        "pools": (Pool(name=node, place={"partition": FLEET, "node_list": node}),),
        "replace": _REPLACE.model_copy(update={"user_cancel": "stop"}),
    })  # fmt: skip

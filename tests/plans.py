"""Plans of documents, as commands make them, for tests that need no command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remuda.look import deployment_records, planning, run_dirs
from remuda.look.kinds.deployment import read
from remuda.look.kinds.swarm import plan_loaded
from remuda.specs.reading.load import load_swarm

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from remuda.base.disk.paths import StatePaths
    from remuda.plan.compile import Plan
    from remuda.specs.reading.resolve import Override


def deployed(target: str, settings: Sequence[str] = (), **given: Any) -> Plan:
    """The plan of a recipe or deployment."""
    return planning.plan("deployment", read(target, settings, **given), planning.facts_of())


def swarm(file: str | Path | None, overrides: Sequence[Override], paths: StatePaths) -> Plan:
    """The plan of a swarm."""
    return plan_loaded(load_swarm(file, overrides), planning.facts_of(paths))


def check(plan: Plan, paths: StatePaths | None = None) -> None:
    """What is looked for before a plan is sent; raises what is found."""
    planning.refuse(plan, planning.facts_of(paths))


def write(plan: Plan, folder: Path) -> None:
    """What `apply --dry-run --write` leaves."""
    run_dirs.write_files(deployment_records.files(plan, planning.facts_of(), str(folder.absolute())), is_new=True)

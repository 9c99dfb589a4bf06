"""Which of several pools is asked next. Pure; Python 3.9, standard library only.

Two counts move a task on. *Refusals* are submissions that the scheduler did not take; a pool is left after every
`retry_per_pool` of them, and they are counted through all pools until one takes the task, so that it is known when
every pool has refused. *Failures* are allocations of the pool that ended badly for a reason that may lie in the pool:
a broken node, the scheduler, an unknown cause, a preemption. Faults of the program, a person and the time limit are
the same everywhere and never move a task.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Standing:
    """How one task stands with its pools."""

    pool: str = ""
    """The one that was asked last; empty: none yet."""
    refusals: int = 0
    failures: int = 0
    left_at: float = 0.0
    """When the preferred pool was left, 0 while it is the one."""


def next_pool(
    pools: Sequence[str], standing: Standing, now: float, *, retry_per_pool: int, reset_to_preferred_s: float
) -> tuple[Standing, str]:
    """Choose the pool of the next allocation.

    Args:
        pools: names, best first; empty: there is nothing to choose.
        standing: of the task.
        now: seconds, on the clock of `left_at`.
        retry_per_pool: refusals or failures after which a pool is left; below 1 counts as 1.
        reset_to_preferred_s: after so long away the preferred pool is asked again; 0: only when its turn comes.

    Returns:
        The new standing, and one clause that says why this pool.
    """
    if not pools:
        return replace(standing, pool="", left_at=0.0), ""
    if standing.pool not in pools:
        return Standing(pools[0], refusals=standing.refusals), f"{pools[0]} is the preferred pool"
    if len(pools) == 1:
        return replace(standing, left_at=0.0), f"{pools[0]} is the only pool"
    retry = max(1, retry_per_pool)
    why = _why_leave(standing, retry)
    if why:
        return _move_on(pools, standing, now, why)
    if standing.left_at and reset_to_preferred_s > 0 and now - standing.left_at >= reset_to_preferred_s:
        return Standing(pools[0]), f"back to the preferred pool {pools[0]} after {now - standing.left_at:.0f} s"
    if standing.pool == pools[0]:
        return replace(standing, left_at=0.0), f"{pools[0]} is the preferred pool"
    return standing, f"{standing.pool} is still to be tried"


def is_round_over(pools: Sequence[str], refusals: int, *, retry_per_pool: int, hedge: bool = False) -> bool:
    """Whether every pool has refused: only then a refusal counts as a failure of the task."""
    if len(pools) <= 1 or hedge:
        return True
    return refusals > 0 and refusals % (max(1, retry_per_pool) * len(pools)) == 0


def is_pool_done(refusals: int, *, retry_per_pool: int) -> bool:
    """Whether the refusals so far make the task leave the pool that refused last."""
    return refusals > 0 and refusals % max(1, retry_per_pool) == 0


def _why_leave(standing: Standing, retry: int) -> str:
    if standing.failures >= retry:
        return f"{standing.failures} failures" if standing.failures > 1 else "a failure"
    if is_pool_done(standing.refusals, retry_per_pool=retry):
        return f"{retry} refused submissions" if retry > 1 else "a refused submission"
    return ""


def _move_on(pools: Sequence[str], standing: Standing, now: float, why: str) -> tuple[Standing, str]:
    index = (list(pools).index(standing.pool) + 1) % len(pools)
    left_at = 0.0 if index == 0 else standing.left_at or now
    moved = Standing(pools[index], refusals=standing.refusals, failures=0, left_at=left_at)
    return moved, f"{pools[index]} comes after {standing.pool}, which was left after {why}"

"""What a rank does next in a round, from what objects are there. Pure: no store, no clock, no array.

A round goes: contribute → manifest (who takes part) → reduce the own shard → take all shards → COMMIT. Every step may
be repeated and done by anybody; the store keeps the first of each object, so all ranks end with the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Terms:
    """What stays the same for the whole run.

    Args:
        rank: of this worker.
        shards: that the vector is cut into.
        quorum: ranks that suffice for a manifest once `grace_s` has passed with them; None: everybody is waited for.
        grace_s: seconds for the others after the quorum is there.
        take_over_s: seconds without anything new in a round after which others do what its owner left undone.
    """

    rank: int
    shards: int
    quorum: int | None = None
    grace_s: float = 60.0
    take_over_s: float = 30.0


@dataclass(frozen=True)
class RoundView:
    """What a rank knows of a round.

    Args:
        here: ranks whose whole contribution is there.
        expected: ranks that are waited for.
        manifest: ranks that take part, in order; None while this rank has not read it.
        manifest_there: whether there is one.
        shards: reduced shards that are there.
        held: of those, the ones that this rank has taken.
        committed: whether the round is over.
        behind: whether a later round is over and this one is not there any more: it was cleared away.
        looked: whether this rank looked at the whole run since it learned of the manifest.
        quorum_s: seconds since a quorum was seen.
        quiet_s: seconds since anything new was seen in the round.
    """

    here: frozenset[int]
    expected: frozenset[int]
    manifest: tuple[int, ...] | None = None
    manifest_there: bool = False
    shards: frozenset[int] = frozenset()
    held: frozenset[int] = frozenset()
    committed: bool = False
    behind: bool = False
    looked: bool = False
    quorum_s: float = 0.0
    quiet_s: float = 0.0


@dataclass(frozen=True)
class Contribute:
    """Write the own contribution."""


@dataclass(frozen=True)
class Propose:
    """Write the manifest with these ranks; `why` they and no others."""

    ranks: tuple[int, ...]
    why: str


@dataclass(frozen=True)
class ReadManifest:
    """Read who takes part."""


@dataclass(frozen=True)
class Look:
    """List the whole run: may this round still be worked on?"""


@dataclass(frozen=True)
class Reduce:
    """Sum a shard in manifest order and write it."""

    shard: int


@dataclass(frozen=True)
class Take:
    """Read reduced shards."""

    shards: tuple[int, ...]


@dataclass(frozen=True)
class Commit:
    """Say that the round is over."""


@dataclass(frozen=True)
class Wait:
    """Look again later; `ranks` are those that something is missing from, `what` is missing."""

    ranks: tuple[int, ...]
    what: str


@dataclass(frozen=True)
class Done:
    """The mean is complete and the round is over. `took_part`: whether the own contribution is in it."""

    took_part: bool


@dataclass(frozen=True)
class Behind:
    """Later rounds are over and this one was cleared away: load a state and go on from there."""


Step = Contribute | Propose | ReadManifest | Look | Reduce | Take | Commit | Wait | Done | Behind


def decide(terms: Terms, view: RoundView) -> Step:
    """What to do next. Each step but `Wait` changes the view; `Done` and `Behind` end the round for this rank."""
    if view.behind:
        return Behind()
    if view.manifest is None:
        return _before_manifest(terms, view)
    if not view.looked:
        # A worker that slept for many rounds may have written into a round that was cleared away in between.
        return Look()
    return _after_manifest(terms, view, view.manifest)


def _before_manifest(terms: Terms, view: RoundView) -> Step:
    if view.manifest_there:
        return ReadManifest()
    if terms.rank not in view.here:
        return Contribute()
    missing = view.expected - view.here
    ranks = tuple(sorted(view.here))
    if ranks and not missing:
        return Propose(ranks, "all ranks are here")
    enough = terms.quorum is not None and len(ranks) >= terms.quorum
    if enough and view.quorum_s >= terms.grace_s:
        return Propose(ranks, f"a quorum of {terms.quorum} and {terms.grace_s:g} s of grace")
    return Wait(tuple(sorted(missing)), "contributions")


def _after_manifest(terms: Terms, view: RoundView, manifest: tuple[int, ...]) -> Step:
    absent = [shard for shard in range(terms.shards) if shard not in view.shards]
    own = [shard for shard in absent if owner(shard, manifest) == terms.rank]
    if own:
        return Reduce(own[0])
    new = tuple(sorted(view.shards - view.held))
    if new:
        return Take(new)
    if not absent:
        return Done(terms.rank in manifest) if view.committed else Commit()
    for shard in absent:
        if view.quiet_s >= terms.take_over_s * _patience(terms.rank, shard, manifest):
            return Reduce(shard)
    return Wait(tuple(sorted({owner(shard, manifest) for shard in absent})), "reduced shards")


def owner(shard: int, manifest: Sequence[int]) -> int:
    """Who reduces a shard: the rank of its number where that takes part, else one that does."""
    return shard if shard in manifest else manifest[shard % len(manifest)]


def _patience(rank: int, shard: int, manifest: Sequence[int]) -> float:
    """How many take-over times a rank leaves a shard to others: one for the next in the order, up to two."""
    if rank not in manifest:
        return 2.0
    distance = (manifest.index(rank) - manifest.index(owner(shard, manifest))) % len(manifest)
    return min(2.0, 1.0 + (distance - 1) / 8)

"""What became of the rounds of a run, read from its bucket alone; writes nothing."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from remuda.base.errors import NotFound
from remuda.gang.joining import iso
from remuda.gang.objects import document
from remuda.gang.objects.bucket import Bucket, open_store
from remuda.gang.objects.keys import check_run_id, read_listing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from remuda.gang.objects.bucket import Listed

OPEN: Final = "open"
COMMITTED: Final = "committed"


@dataclass(frozen=True)
class RoundSummary:
    """One round.

    `seconds` is from its first contribution to its COMMIT, by the store's clock; None while it is open or where the
    contributions were cleared away. `size_bytes` is what lies there of contributions and shards.
    """

    number: int
    state: str
    ranks: list[int]
    left_out: dict[int, str]
    size_bytes: int
    seconds: float | None
    committed_at: str | None


@dataclass(frozen=True)
class RunSummary:
    """A run: what it is, its rounds (the newest last), and whom the open one waits for.

    `waits_for` says by rank when the store last took something from it, None for never.
    """

    run_id: str
    world_size: int
    codec: str
    elements: int
    committed: int
    newest_state: int | None
    members: list[int]
    left: list[int]
    rounds: list[RoundSummary] = field(default_factory=list)
    waits_for: dict[int, str | None] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As data for programs."""
        return json.loads(json.dumps(asdict(self)))  # type: ignore[no-any-return]


def summary(url: str, run_id: str, *, last: int = 20) -> RunSummary:
    """Read a run.

    Args:
        url: of the store, as workers have it.
        run_id: of the run.
        last: newest rounds to tell about.

    Raises:
        NotFound: there is no such run.
        Unavailable: the store does not answer.
    """
    bucket = Bucket(open_store(url, make=False))
    check_run_id(run_id)
    raw = bucket.find(f"{run_id}/RUN.json")
    if raw is None:
        raise NotFound(f"there is no run {run_id!r} in {url}")
    about = document.read(raw, "RUN.json")
    listed = bucket.list(f"{run_id}/")
    numbers = sorted(read_listing(run_id, listed).rounds)[-last:]
    said = {number: _said(bucket, run_id, number) for number in numbers}
    return summarise(about, run_id, listed, said)


def _said(bucket: Bucket, run_id: str, number: int) -> dict[str, Any] | None:
    """The manifest of a round, or what of it is in the COMMIT."""
    for name in ("manifest", "COMMIT"):
        raw = bucket.find(f"{run_id}/r{number}/{name}")
        if raw is not None:
            return document.read(raw, name)
    return None


def summarise(
    about: dict[str, Any], run_id: str, listed: Sequence[Listed], said: dict[int, dict[str, Any] | None]
) -> RunSummary:
    """Put a run together. Pure.

    Args:
        about: what RUN.json says.
        run_id: of the run.
        listed: all its objects.
        said: manifests, by the rounds to tell about; None where there is none.
    """
    seen = read_listing(run_id, listed)
    expected = seen.expected(about["world_size"])
    rounds = [_round(run_id, number, listed, manifest, expected) for number, manifest in said.items()]
    open_round = seen.newest + 1
    waits: dict[int, str | None] = {}
    here = set(seen.of(open_round).contributions)
    if here and not seen.of(open_round).manifest:
        waits = {
            rank: iso(seen.touched[rank]) if rank in seen.touched else None for rank in sorted(expected - here)
        }  # fmt: skip
    state = seen.newest_state()
    return RunSummary(
        run_id, about["world_size"], about["codec"], about["elements"], open_round, state, sorted(seen.members),
        sorted(seen.left), rounds, waits,
    )  # fmt: skip


def _round(
    run_id: str, number: int, listed: Sequence[Listed], manifest: dict[str, Any] | None, expected: frozenset[int]
) -> RoundSummary:
    prefix = f"{run_id}/r{number}/"
    objects = {one.key.removeprefix(prefix): one for one in listed if one.key.startswith(prefix)}
    given = {int(name[2:]): one for name, one in objects.items() if name.startswith("c/")}
    ranks = sorted(manifest["ranks"]) if manifest else sorted(given)
    commit = objects.get("COMMIT")
    seconds = None
    if commit is not None and given:
        seconds = round(commit.modified - min(one.modified for one in given.values()), 3)
    left_out = {}
    if manifest:
        missing = manifest.get("missing", sorted(expected - set(ranks)))
        why = manifest.get("why", "")
        left_out = dict.fromkeys(missing, f"it had not come ({why})" if why else "it had not come")
        left_out |= dict.fromkeys(sorted(set(given) - set(ranks)), "it came after the manifest")
    size = sum(one.size for name, one in objects.items() if name[:2] in ("c/", "m/"))
    at = iso(commit.modified) if commit is not None else None
    return RoundSummary(number, COMMITTED if commit else OPEN, ranks, left_out, size, seconds, at)

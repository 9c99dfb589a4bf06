"""How a worker comes into a run: what the run is, who is there, and what this rank gave before it was started again."""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from remuda.base.errors import Unavailable
from remuda.gang.errors import AnotherRun
from remuda.gang.objects import document

if TYPE_CHECKING:
    from remuda.gang.objects.bucket import Bucket
    from remuda.gang.objects.codec import Floats, Octets
    from remuda.gang.objects.keys import RunSeen
    from remuda.gang.objects.layout import Layout
    from remuda.gang.run import Run

log = logging.getLogger(__name__)


def agree(bucket: Bucket, run_id: str, layout: Layout, codec: str, world_size: int) -> int:
    """Agree with the other workers on what the run is; the first one says. Gives its world size.

    Raises:
        AnotherRun: it is one of another layout or codec.
    """
    key = f"{run_id}/RUN.json"
    mine = {
        "run": run_id, "layout": layout.digest, "elements": layout.elements, "codec": codec,
        "world_size": world_size, "shards": world_size,
    }  # fmt: skip
    if bucket.create(key, document.write(mine)):
        return world_size
    raw = bucket.find(key)
    if raw is None:
        raise Unavailable(f"{key} was there and is gone")
    theirs = document.read(raw, key)
    for name in ("layout", "elements", "codec"):
        if theirs.get(name) != mine[name]:
            raise AnotherRun(
                f"run {run_id!r} has {name} {theirs.get(name)}, and this worker {mine[name]}",
                hint="give the new run another run_id",
            )
    if theirs["world_size"] != world_size:
        log.warning("run %s is of %s copies; %s was given", run_id, theirs["world_size"], world_size)
    return int(theirs["world_size"])


def check_size(run: Run, seen: RunSeen, rank: int, world_size: int, quorum: int | None) -> None:
    """Refuse to wait for copies of the run that were not started this time.

    Raises:
        AnotherRun: fewer copies were started than a round of the run waits for.
    """
    expected = len(seen.expected(run.world_size)) or run.world_size  # where all have left, it is begun again by all
    if rank < run.world_size and world_size < run.world_size and (quorum or expected) > world_size < expected:
        raise AnotherRun(
            f"run {run.run_id!r} has {expected} copies, and {world_size} were started: they would wait for the others",
            hint=f"start {expected}, set a quorum of {world_size} or fewer, or give the new run another run_id",
        )


def announce(run: Run, seen: RunSeen, rank: int) -> None:
    """Say that this rank is there."""
    # Where everybody has left, the run had ended and is now begun again: nobody counts as gone.
    back = seen.left & {rank} if seen.expected(run.world_size) else seen.left
    run.bucket.delete([run.key("left", one) for one in sorted(back)])
    about = {"rank": rank, "host": socket.gethostname(), "pid": os.getpid(), "at": iso(time.time())}
    run.bucket.replace(run.key("members", rank), json.dumps(about).encode())


def owed(run: Run, rank: int, number: int) -> tuple[Floats | None, Octets | None]:
    """What this rank gave before it was started again and that is in no sum yet.

    A contribution holds everything that its rank was owed before, so only the newest one matters.

    Args:
        run: the run.
        rank: of this worker.
        number: of the round that is open.

    Returns:
        Its values, (elements,) float32, and the object itself where it was given to the open round.
    """
    seen = run.look()
    newest = seen.newest_contribution(rank)
    if newest is None:
        return None, None
    key = run.in_round(newest, "c", rank)
    raw = run.bucket.find(key, run.contribution_bytes)
    if raw is None or not run.is_whole(raw, key):
        return None, None
    commit = run.document(run.in_round(newest, "COMMIT"))
    if commit is not None and rank in commit["ranks"]:
        return None, None
    values = np.empty(run.elements, np.float32)
    for place, piece in run.decoded(raw):
        values[place] = piece
    return values, raw if newest == number else None


def iso(at: float) -> str:
    """Seconds since the epoch as people and programs read them."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")

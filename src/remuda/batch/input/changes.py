"""What a changed input means for the answers of an earlier run, known before anything is asked again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remuda.base.errors import Conflict, Interrupted
from remuda.base.units import show_count
from remuda.batch.fingerprint import input_changes
from remuda.batch.input.digest import content_digests

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping

    from remuda.batch.input.source import Source
    from remuda.batch.output.checkpoint import Checkpoint


def see_changes(
    source: Source,
    checkpoint: Checkpoint,
    column: str,
    *,
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    stop: threading.Event | None = None,
) -> str:
    """Compare the rows of a changed input with those that were answered, by position and content.

    Args:
        source: the input as it is.
        checkpoint: what was answered.
        column: the input column.
        old: `Source.identity` of the run before.
        new: that of this run.
        stop: ends it early.

    Returns:
        A sentence about the rows that are asked again; empty when all that was answered stays.

    Raises:
        Conflict: no row is the one that was answered: this is another input.
        Interrupted: `stop` was set.
    """
    kept = changed = answers = 0
    for chunk in source.chunks([column]):
        if stop is not None and stop.is_set():
            raise Interrupted("the job was stopped; nothing was asked")
        for position, content in enumerate(content_digests(chunk, column), start=chunk.first):
            if checkpoint.same_input(position, content):
                kept += 1
            elif state := checkpoint.state(position):
                changed += 1
                answers += state == "done"
    if not changed:
        return ""
    what = "; ".join(input_changes(old, new))
    if answers and not kept:
        raise Conflict(
            f"the checkpoint {checkpoint.folder} belongs to another input: all of the {show_count(changed)} rows "
            f"that it knows have changed ({what})",
            hint="--no-resume starts over; another --checkpoint-tag keeps both; with --id-column rows may move",
        )
    counts = f"{show_count(kept)} rows keep their answers, {show_count(changed)} are asked again"
    return f"the input changed ({what}): {counts}"

"""How many there may be of what a document or a command asks for. Pure; one sentence for all who refuse."""

from __future__ import annotations

from typing import Final

MOST_HERE: Final = 200
"""Tasks of a group on this machine: each is two processes at least, and a machine without any left serves nobody."""
MOST: Final = 100_000
"""Tasks of a group anywhere: no scheduler takes more, and all of them are written down one by one."""


def too_many(who: str, group: str, count: int, backend: str) -> tuple[str, str] | None:
    """Sentence and hint that refuse so many tasks of a group; None where they are not too many."""
    if backend == "local" and count > MOST_HERE:
        sentence = f"{who} cannot have {count} tasks {group!r} on this machine: {MOST_HERE} at most"
        return sentence, "ask for fewer, or use a cluster (backend: {type: slurm})"
    if count > MOST:
        return f"{who} cannot have {count} tasks {group!r}: {MOST} at most", "ask for fewer"
    return None

"""What the host asks of the fences on the nodes of a job that may have several; a part of `ChildSpec`.

Python 3.9, standard library only: this file travels to nodes inside the zipapp.
"""

from __future__ import annotations

from dataclasses import dataclass

ENDS_WITHIN_S = 15.0
"""From the moment when a guard knows that it must, or from its silence limit, until nothing of the job is left."""


@dataclass(frozen=True)
class Guard:
    """The allocation is a scheduler's job of its own: what carries its id is its, wherever it was started.

    Durations in seconds.
    """

    launcher: list[str]
    """The node program without its arguments, as it is called on every node."""
    silence_s: float = 60.0
    """A guard that hears nothing from the first node for so long ends what runs on its node."""
    meet_s: float = 30.0
    """So long the start waits for the guards of all nodes, and later a node for one in the place of one that died."""

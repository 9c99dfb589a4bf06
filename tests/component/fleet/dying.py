"""A client or a host that is killed at one step: `python -m tests.component.fleet.dying client|host STEP`.

A step is `before NAME` or `after NAME` of a function, which ends this process with SIGKILL; all else is the product.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from remuda.backends.slurm.backend import SlurmBackend
from remuda.fleet import client, membership
from remuda.fleet.daemons import Node
from remuda.fleet.link import Link
from remuda.fleet.roll import Roll
from remuda.host.fleet.carrying import Carrying

PLACES: dict[str, tuple[Any, str]] = {
    "ask": (Link, "ask"),
    "record": (membership, "write"),
    "furnish": (Node, "start"),
    "end": (Node, "stop"),
    "drop": (client, "drop"),
    "join": (Roll, "join"),
    "forget": (Roll, "forget"),
    "leave": (Roll, "leave"),
    "heard": (Carrying, "heard"),
    "submit": (SlurmBackend, "submit"),
}


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def deadly(when: str, name: str, verb: str) -> None:
    """Let the function kill this process; `verb` names which request of `ask`."""
    owner, attribute = PLACES[name]
    real = getattr(owner, attribute)

    def plain(*words: Any, **more: Any) -> Any:
        if when == "before":
            die()
        done = real(*words, **more)
        return done if when == "before" else die()

    async def asking(*words: Any) -> Any:
        is_it = words[1] == verb and not (verb == "leave" and not words[3].gone)
        if is_it and when == "before":
            die()
        answer = await real(*words)
        if is_it:
            die()
        return answer

    setattr(owner, attribute, asking if name == "ask" else plain)


if __name__ == "__main__":
    who, when, name, *verb = sys.argv[1:]
    deadly(when, name, "".join(verb))
    if who == "client":
        sys.exit(client.main())
    from remuda.host.server import main

    sys.exit(main())

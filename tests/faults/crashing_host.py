"""A host that is killed (SIGKILL, by itself) just before or after its N-th step between deciding and recording.

`python crashing_host.py` reads lines of the form `N` from standard input; for each it runs one host in a forked child
and prints the step at which it died, or `none` when it was stopped before it came so far. Forking saves the imports.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import alembic.command
import uvicorn.protocols.http.h11_impl  # noqa: F401 - loaded here, once

import remuda.serving.smg
import remuda.store.migrate  # noqa: F401
from remuda.backends.local.backend import LocalBackend
from remuda.backends.local.client import LocalClient
from remuda.host import server
from remuda.store.database import Store

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = [(Store, "record"), (Store, "add_workloads"), (Store, "set_intent"), (Store, "remove_workload"),
         (LocalClient, "start"), (LocalClient, "end"), (LocalBackend, "find")]  # fmt: skip


class Bomb:
    """Counts steps and kills the process at one of them."""

    def __init__(self, at: int) -> None:
        self.left = at

    def arm(self, owner: type, name: str) -> None:
        plain: Callable[..., Any] = getattr(owner, name)

        def step(*args: Any, **kwargs: Any) -> Any:
            self.tick(f"before {name}")
            result = plain(*args, **kwargs)
            self.tick(f"after {name}")
            return result

        setattr(owner, name, step)

    def tick(self, what: str) -> None:
        self.left -= 1
        if self.left == 0:
            os.write(1, f"{what}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    assert alembic.command
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            bomb = Bomb(int(line))
            for owner, name in STEPS:
                bomb.arm(owner, name)
            os._exit(server.main())
        _, status = os.waitpid(pid, 0)
        if not os.WIFSIGNALED(status):
            os.write(1, b"none\n")


main()

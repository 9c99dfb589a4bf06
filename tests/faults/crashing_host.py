"""A host that is killed (SIGKILL, by itself) just before or after its N-th step between deciding and recording.

`python -m tests.faults.crashing_host [slurm]` reads lines of the form `N`, or `before NAME` and `after NAME` for the
first step of that name, from standard input; for each it runs one host in a forked child and prints the step at which
it died, or `none` when it was stopped before it came so far. It is a fork itself (`tests/warm`), which saves imports.
"""

from __future__ import annotations

import inspect
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

from remuda.backends.local.backend import LocalBackend
from remuda.backends.local.client import LocalClient
from remuda.backends.slurm.backend import SlurmBackend
from remuda.backends.slurm.client import SlurmClient
from remuda.host import server
from remuda.store.database import Store

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDS = [
    (Store, "record"), (Store, "add_workloads"), (Store, "set_intent"), (Store, "end_workloads"),
    (Store, "remove_workload"),
]  # fmt: skip
LOCAL = [(LocalClient, "start"), (LocalClient, "end"), (LocalBackend, "find")]
SLURM = [(SlurmClient, "submit"), (SlurmClient, "release"), (SlurmClient, "end"),
         (SlurmBackend, "find")]  # fmt: skip


class Bomb:
    """Counts steps and kills the process at one of them."""

    def __init__(self, at: str) -> None:
        self.left = int(at) if at.isdigit() else 1
        self.what = "" if at.isdigit() else at
        self._lock = threading.Lock()

    def arm(self, owner: type, name: str) -> None:
        plain: Callable[..., Any] = getattr(owner, name)

        def step(*args: Any, **kwargs: Any) -> Any:
            self.tick(f"before {name}")
            result = plain(*args, **kwargs)
            self.tick(f"after {name}")
            return result

        async def step_later(*args: Any, **kwargs: Any) -> Any:
            self.tick(f"before {name}")
            result = await plain(*args, **kwargs)
            self.tick(f"after {name}")
            return result

        setattr(owner, name, step_later if inspect.iscoroutinefunction(plain) else step)

    def tick(self, what: str) -> None:
        with self._lock:  # never let go by the step that dies: no other thread says a second one meanwhile
            self.left -= what == self.what or not self.what
            if not self.left:
                os.write(1, f"{what}\n".encode())
                os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    is_slurm = sys.argv[1:] == ["slurm"]
    steps = RECORDS + (SLURM if is_slurm else LOCAL)
    if is_slurm:
        # The bed's controller does not mind being asked often.
        SlurmClient.__init__.__kwdefaults__["gap_s"] = 0.05  # type: ignore[index]
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            bomb = Bomb(line.strip())
            for owner, name in steps:
                bomb.arm(owner, name)
            os._exit(server.main())
        _, status = os.waitpid(pid, 0)
        if not os.WIFSIGNALED(status):
            os.write(1, b"none\n")


if __name__ == "__main__":
    main()

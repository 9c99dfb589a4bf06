"""The endpoint's port: chosen once, when the workload is accepted, so that the address stays.

Beside the locks of ports in use there is a file for each port that a workload owns, in use or not: `PORT.owner` names
the state directory it belongs to. So two hosts of one user on one machine do not choose the same port, and a port
waits for its workload while nothing of it runs.
"""

from __future__ import annotations

import fcntl
import logging
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from remuda.base.disk.files import write_atomic
from remuda.base.disk.locks import is_held
from remuda.base.errors import Conflict
from remuda.node.child.ports import UnsafeDirectory, is_free, lock_folder, owner_file, promised_to
from remuda.supervise.groups import rules
from remuda.supervise.loop import all_ended
from remuda.supervise.reconciler import Due, Moment, Reconciler

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from remuda.backends.base import TaskKey
    from remuda.plan.model import Listen
    from remuda.supervise.model import Task, Want

_LOG = logging.getLogger("remuda.look.ports")

_TRIES = 500


class Reserved(Reconciler[str, tuple[int, bool]]):
    """The ports that workloads of one state directory own on this machine.

    Args:
        locks: directory of the machine's port locks.
        home: the state directory.
        own: see `lock_folder`; None: there is no other place.
    """

    def __init__(self, locks: Path, home: Path, own: Path | None = None) -> None:
        self.locks = locks
        self._shared, self._own = locks, own
        self._home = str(home)
        self._known: dict[str, int] = {}

    @contextmanager
    def choosing(self) -> Iterator[None]:
        """Let nobody else choose meanwhile.

        Raises:
            Conflict: the directory of locks is somebody else's.
        """
        try:
            self.locks = lock_folder(self._shared, self._own)
            lock = os.open(self.locks / "choosing.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except (UnsafeDirectory, OSError) as error:
            raise Conflict(f"ports cannot be reserved: {error}", hint=f"remove {self.locks}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def other(self, port: int) -> str:
        """State directory of another host that the port is reserved for; empty when there is none."""
        home = promised_to(self.locks, port)
        return home if home != self._home else ""

    def take(self, name: str, port: int) -> None:
        """Write down that the port is this workload's."""
        self._known[name] = port
        write_atomic(owner_file(self.locks, port), self._home, mode=0o600, sync=False)

    def give_back(self, name: str, port: int) -> None:
        """Let others have it."""
        self._known[name] = 0
        if port in self._known.values():
            return
        with suppress(OSError):
            if promised_to(self.locks, port) == self._home:
                owner_file(self.locks, port).unlink()

    def due(self, at: Moment) -> Due[str, tuple[int, bool]]:
        """The port of a workload, which has it as long as it is wanted or something of it is left."""
        endpoint, name = at.want.workload.endpoint, at.want.workload.name
        if endpoint is None or not endpoint.host or not endpoint.port:
            return Due()
        lives = keeps(at.want, at.tasks)
        is_so = self._known.get(name) == (endpoint.port if lives else 0)
        return Due({} if is_so else {name: (endpoint.port, lives)})

    def act(self, actions: Mapping[str, tuple[int, bool]]) -> None:
        """Take it, or give it back."""
        for name, (port, lives) in actions.items():
            (self._take_again if lives else self.give_back)(name, port)

    def _take_again(self, name: str, port: int) -> None:
        """After a restart of this host; the machine's temporary files may be gone since."""
        self._known[name] = port
        try:
            with self.choosing():
                other = self.other(port)
                if other:
                    _LOG.warning("port %d of %s is reserved for a workload of %s, too", port, name, other)
                else:
                    self.take(name, port)
        except (Conflict, OSError) as error:
            _LOG.warning("port %d of %s cannot be reserved: %s", port, name, error)


def keeps(want: Want, tasks: Mapping[TaskKey, Task]) -> bool:
    """Whether a workload has what is its own on this machine: it is wanted and not over, or something of it is left."""
    return (want.running and rules.ender(want, tasks) is None) or not all_ended(tasks.values())


def choose_port(listen: Listen, used: Mapping[int, str], host: str, reserved: Reserved) -> int:
    """The first free port from the preferred one on, or exactly that when it is fixed.

    Args:
        listen: what the front task asks for; port 0 means from 9000 on.
        used: endpoints of other workloads, which own their port even while their router is being restarted.
        host: address that it will be bound to.
        reserved: ports of other state directories, and the locks that node programs hold while they use one.

    Raises:
        Conflict: a fixed port is taken; or none of the next 500 is free.
    """
    first = listen.port or 9000
    if listen.fixed:
        holder = used.get(first)
        if holder is not None:
            raise Conflict(f"port {first} belongs to {holder!r}", hint="choose another endpoint.port, or leave it out")
        if other := reserved.other(first):
            raise Conflict(
                f"port {first} belongs to a workload of {other}", hint="choose another endpoint.port, or leave it out"
            )
        if not _is_free(first, host, reserved.locks):
            raise Conflict(
                f"port {first} on {host} is in use by another program",
                hint="choose another endpoint.port, or leave it out",
            )
        return first
    for port in range(first, min(first + _TRIES, 65536)):
        if port not in used and not reserved.other(port) and _is_free(port, host, reserved.locks):
            return port
    raise Conflict(f"none of the ports {first} to {first + _TRIES - 1} is free on {host}")


def _is_free(port: int, host: str, locks: Path) -> bool:
    return not is_held(locks / f"{port}.lock") and is_free(host, port, reuse=True)

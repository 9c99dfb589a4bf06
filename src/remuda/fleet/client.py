"""The client: keeps this machine in its fleet. What it looks after is detached from it, so its own end ends nothing.

`python -m remuda.fleet.client` is the client in the background; `remuda client connect` runs the same in a terminal.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from remuda import __version__
from remuda.base import log
from remuda.base.disk.locks import Lock
from remuda.base.disk.paths import StatePaths, state_paths
from remuda.base.errors import Conflict, HostUnreachable, NotFound, Rejected, RemudaError, TimedOut, Unavailable
from remuda.fleet import machine, membership, tree
from remuda.fleet.addresses import towards
from remuda.fleet.carried.carrier import Carrier
from remuda.fleet.conf import NodeConf
from remuda.fleet.daemons import Node
from remuda.fleet.link import Link, Stranger
from remuda.fleet.processes import Daemons
from remuda.policy.backoff import backoff_s
from remuda.wire.fleet import BEAT_S, Beat, Joined, Joining, Leaving, Levels

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.fleet.membership import Membership
    from remuda.fleet.tree import Tree

_LOG = logging.getLogger("remuda.fleet.client")
T = TypeVar("T")
PATIENCE_S = 60.0
"""A client that is not resilient ends after so long without the head."""
LOOK_S = 300.0
"""Between two looks whether all GPUs are there: each is a process."""
FIRST_S, LONGEST_S = 1.0, 30.0
"""Between two tries, at first and at most."""
TELL_S = 60.0
"""Between two words on what a node that leaves waits for."""


class NodeClient:
    """One node, while its client runs.

    Args:
        paths: of the state directory.
        tell: is told what happens, in sentences.
    """

    def __init__(self, paths: StatePaths, tell: Callable[[str], None]) -> None:
        self.folder = paths.fleet_node
        self._tell = tell
        it = membership.read(self.folder)
        if it is None:
            raise NotFound("this machine is not a node of a fleet", hint="remuda client connect HOST:8090")
        self.it: Membership = it
        self._tree: Tree = tree.find(unpacked=Path(it.unpacked) if it.unpacked else None)
        self._link, self._carrying = Link.of(it), Link.of(it)
        """Beats do not wait for files."""
        self._node: Node | None = None
        self._was: tuple[str, str] = ("", "")
        """Address and GPUs as the head knows them."""
        self._gpus = it.gpus
        """What it offers; None until the driver was asked."""
        self._answering, self._looked = "", time.monotonic()
        """GPUs that answered last, and when they were asked; empty: all of them."""
        self._carrier = Carrier(self.folder, self._ask, self._tell, lambda: towards(self.it.host))
        self._stop = asyncio.Event()
        self._failures = 0
        self._silent_since: float | None = None
        self._told = -TELL_S
        """When it was said last what this node waits for before it leaves."""

    async def run(self) -> None:
        """Be a node until this machine has left the fleet, or the client is told to end.

        Raises:
            Unavailable: it is not resilient, and the head is gone.
            RemudaError: the head refuses this machine.
        """
        taken = "a client of this fleet runs on this machine already"
        lock = Lock(self.folder / membership.LOCK, taken, "remuda client status")
        carrying = asyncio.create_task(self._carrier.run(), name="carrying")
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop.set)
        try:
            while not self._stop.is_set() and not await self._turn():
                pause_s = backoff_s(self._failures, FIRST_S, LONGEST_S, key=self.it.name, jitter=0.5) or BEAT_S
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), pause_s)
        finally:
            carrying.cancel()
            await asyncio.gather(carrying, return_exceptions=True)
            await self._link.close()
            await self._carrying.close()
            lock.close()

    async def _ask(self, verb: str, message: object, answer: Callable[[], T]) -> T:
        return await self._carrying.ask(verb, f"Key {self.it.key}", message, answer)

    async def _turn(self) -> bool:
        """One look at everything; whether this machine has left."""
        try:
            if self._node is not None:
                for sentence in await asyncio.to_thread(self._node.tend):
                    self._tell(sentence)
            elif self.it.joined is not None:  # its daemons need no head
                await self._furnish()
            if self._node is None or self._was != await asyncio.to_thread(self._is_now):
                await self._join()
            levels = await self._beat()
            if levels.conf and levels.conf != self.it.digest:
                await self._join()
            self._heard()
            return levels.leaving and await self._leave()
        except NotFound as error:
            drop(self.folder)
            raise NotFound(error.message, hint="join again, with a token: remuda client connect") from error
        except RemudaError as error:
            self._missed(error)
            return False

    def _heard(self) -> None:
        if self._silent_since is not None:
            self._tell(f"the head answers again after {time.monotonic() - self._silent_since:.0f} s")
        self._failures, self._silent_since = 0, None
        membership.hear(self.folder)

    def _missed(self, error: RemudaError) -> None:
        """The head did not answer, or a daemon did not start.

        Raises:
            RemudaError: it is nothing that passes, or took too long for this client.
        """
        now = time.monotonic()
        is_new, since = self._silent_since is None, self._silent_since or now
        if not passes(error, is_in=self.it.joined is not None, resilient=self.it.resilient, gone_s=now - since):
            raise error
        if is_new:
            self._tell(f"{error.message}; trying again")
        self._silent_since, self._failures = since, self._failures + 1

    # --- joining -----------------------------------------------------------------------------------------------------

    def _is_now(self) -> tuple[str, str]:
        """This machine's address towards the head, and its GPUs."""
        if self._gpus is None:
            self._gpus = machine.gpus()
        return towards(self.it.host) or self._was[0], self._gpus

    async def _join(self) -> None:
        address, gpus = await asyncio.to_thread(self._is_now)
        if not address:
            raise HostUnreachable(f"there is no way to {self.it.host} from here")
        said = Joining(
            name=self.it.name, key=self.it.key, uid=os.getuid(), at=time.time(), remuda=__version__, address=address,
            slurm=".".join(map(str, self._tree.version)), cpus=machine.cpus(), memory=machine.memory_mib(), gpus=gpus,
            stays=self.it.stays,
        )  # fmt: skip
        joined = await self._ask_to_join(said)
        self.it = replace(self.it, joined=asdict(joined), token="", stays=False)
        membership.write(self.folder, self.it)
        self._was, self._answering = (address, gpus), ""
        await self._furnish()
        self._tell(f"node {self.it.name} has joined the fleet at {self.it.host} with {gpus or 'no GPU'}")

    async def _ask_to_join(self, said: Joining) -> Joined:
        if self.it.token:
            try:
                return await self._link.ask("join", f"Token {self.it.token}", said, Joined)
            except Rejected:  # perhaps used up by this very node, whose answer was lost
                with suppress(NotFound):
                    return await self._link.ask("join", f"Key {self.it.key}", said, Joined)
                raise
        return await self._link.ask("join", f"Key {self.it.key}", said, Joined)

    async def _furnish(self) -> None:
        """See that slurmd and munged run, as the head and this machine are now."""
        address, gpus = self._was if self._was[0] else await asyncio.to_thread(self._is_now)
        self._node = self._made(address, gpus)
        await asyncio.to_thread(self._node.start)

    def _made(self, address: str, gpus: str) -> Node:
        assert self.it.joined is not None
        node = NodeConf(self.it.name, address or self.it.conf.address, machine.cpus(), machine.memory_mib(), gpus)
        return Node(
            self.folder / "slurm", self.it.conf, node, munge_key=self.it.munge_key,
            slurm_conf=self.it.joined["slurm_conf"], tree=self._tree,
        )  # fmt: skip

    def running(self) -> str:
        """What runs on this node, for a sentence."""
        return (self._node or self._made(*self._was)).running()

    # --- being there -------------------------------------------------------------------------------------------------

    async def _beat(self) -> Levels:
        assert self._node is not None
        problems = [] if self._node.alive() else ["slurmd or munged is down"]
        beat = Beat(
            at=time.time(), address=self._was[0], gpus=await self._gpus_now(), remuda=__version__,
            free_bytes=machine.free_bytes(self.folder), problems=problems, shares=self._shares(),
        )  # fmt: skip
        return await self._link.ask("beat", f"Key {self.it.key}", beat, Levels)

    def _shares(self) -> bool:
        """Whether this machine sees the head's state directory; heads that do not ask share it."""
        path, text = (self.it.joined or {}).get("proof") or ("", "")
        with suppress(OSError):
            return not path or Path(path).read_text() == text
        return False

    async def _gpus_now(self) -> str:
        """GPUs that answer, of those that the head knows. Without a driver what was said counts: devices are there."""
        joined = self._was[1]
        if joined and time.monotonic() > self._looked + LOOK_S:
            self._looked = time.monotonic()
            self._answering = await asyncio.to_thread(machine.gpus_left, joined)
        return self._answering or joined

    async def _leave(self) -> bool:
        """Go, as soon as nothing runs here; whether it has."""
        levels = await self._link.ask("leave", f"Key {self.it.key}", Leaving(), Levels)
        assert self._node is not None
        if not levels.is_empty or self._carrier.owes:
            if time.monotonic() > self._told + TELL_S:
                self._told = time.monotonic()
                what = "" if levels.is_empty else await asyncio.to_thread(self.running)
                self._tell(f"waiting for what runs here: {what or 'it has ended, and the head has not all of it yet'}")
            return False
        await asyncio.to_thread(self._node.stop)
        with suppress(NotFound):  # it was asked before, and the answer was lost
            await self._link.ask("leave", f"Key {self.it.key}", Leaving(gone=True), Levels)
        drop(self.folder)
        self._tell(f"node {self.it.name} has left the fleet")
        return True


def passes(error: RemudaError, *, is_in: bool, resilient: bool, gone_s: float) -> bool:
    """Whether a client tries again after an error. Pure.

    Args:
        error: what it met.
        is_in: it has joined.
        resilient: it waits for its head without end.
        gone_s: for how long nothing has worked.
    """
    if resilient and is_in:
        return not isinstance(error, Conflict)
    may = isinstance(error, (Unavailable, TimedOut)) or (is_in and isinstance(error, Stranger))
    return may and (resilient or gone_s <= PATIENCE_S)


def drop(folder: Path) -> None:
    """This machine is a node no more: its daemons end, what runs here is left; the log stays."""
    for name in ("slurmd", "munged"):
        Daemons(folder / "slurm").stop(name)
    (folder / membership.FILE).unlink(missing_ok=True)
    (folder / membership.HEARD).unlink(missing_ok=True)
    shutil.rmtree(folder / "slurm", ignore_errors=True)


def main() -> int:
    """Be the client in the background. Returns its exit code."""
    paths = state_paths()
    log.setup(path=paths.fleet_node / membership.LOG)
    try:
        asyncio.run(NodeClient(paths, _LOG.info).run())
    except RemudaError as error:
        _LOG.error("%s%s", error, f" ({error.hint})" if error.hint else "")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Who may write a checkpoint directory, and who an output: one process, on whatever machine.

The kernel's lock tells on one machine, and on network file systems that carry locks to all. Where they do not, what
the owner of another machine leaves in the file tells: it is touched every second for as long as its owner lives. Only
changes are looked at, never times, because clocks differ.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import re
import socket
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from remuda.base.disk.private import make_private
from remuda.base.errors import Conflict, RemudaError
from remuda.batch.output.checkpoint import full

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_log = logging.getLogger(__name__)
BEAT_S: Final = 1.0
#: An owner on another machine that did not touch its lock for so long is dead.
SILENT_S: Final = 5.0
#: How long an attempt waits for the one before it. A lost node's lock on a network file system may outlive it so long.
PREDECESSOR_S: Final = 300.0
_OWNER = re.compile(r"process \d+ on (?P<machine>\S+)(?: for (?P<owner>\S+))?")


class Busy(Conflict):
    """Another process writes the same.

    Args:
        what: the checkpoint or the output, with its path.
        said: what the lock file says of its owner.
        hint: how to stay out of its way.
    """

    def __init__(self, what: str, said: str, hint: str) -> None:
        super().__init__(f"{what} is being written by {said or 'another process'}", hint=hint)
        found = _OWNER.match(said)
        self.owner = (found["owner"] or "") if found else ""
        """`JobRequest.owner` of whoever has it, empty where it does not say."""


class FileLock:
    """A lock file that this process alone holds, until `release` or its death."""

    def __init__(self, path: Path, what: str, owner: str, hint: str) -> None:
        """Create and lock `path`.

        Raises:
            Busy: another process holds it.
            RemudaError: it cannot be created.
        """
        self._path, self._what, self._owner, self._hint = path, what, owner, hint
        self._fd = self._open()
        self.rival = self._elsewhere()
        """What an owner on another machine left, who did not let go; empty without one."""
        if not self.rival:
            self.take()

    def _open(self) -> int:
        while True:
            try:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            except OSError as error:
                raise RemudaError(f"{self._what} cannot be used: {self._path}: {error.strerror}") from error
            if not stat.S_ISREG(os.fstat(fd).st_mode):  # a pipe that somebody put there
                os.close(fd)
                raise RemudaError(
                    f"{self._what} cannot be used: {self._path} is not a file", hint=f"remove it, or {self._hint}"
                )
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                said = _said(fd)
                os.close(fd)
                raise self.busy(said) from error
            except OSError as error:
                _log.warning("%s cannot be locked (%s): see that only one driver writes", self._path, error.strerror)
            # Who let go meanwhile may have removed the file: a lock on a file that is gone keeps nobody out.
            if os.fstat(fd).st_nlink:
                return fd
            os.close(fd)

    def busy(self, said: str) -> Busy:
        """The error for a lock that somebody else has."""
        return Busy(self._what, said, self._hint)

    def take(self) -> None:
        """Write into it whose it is. Done at once, unless there is a rival.

        Raises:
            StorageFull: the disk refuses.
        """
        mine = f"process {os.getpid()} on {socket.gethostname()}" + (f" for {self._owner}" if self._owner else "")
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{mine}\n".encode(), 0)
        except OSError as error:
            os.close(self._fd)
            raise full(self._path.parent, error) from error

    def beat(self) -> None:
        """Show other machines that the owner lives."""
        with suppress(OSError):
            os.utime(self._fd)

    def touched(self) -> int:
        """When the file was last changed, in the file system's own time; asked anew, whatever is cached."""
        with suppress(OSError):
            fd = os.open(self._path, os.O_RDONLY)
            try:
                return os.fstat(fd).st_mtime_ns
            finally:
                os.close(fd)
        return 0

    def _elsewhere(self) -> str:
        said = _said(self._fd)
        found = _OWNER.match(said)
        return said if found and found["machine"] != socket.gethostname() else ""

    def release(self) -> None:
        """Let others in."""
        with suppress(OSError):
            if not self.rival:
                os.ftruncate(self._fd, 0)
        os.close(self._fd)


def _said(fd: int) -> str:
    return os.pread(fd, 500, 0).decode(errors="replace").strip()


class FolderLock(FileLock):
    """A checkpoint directory that this process alone may write."""

    def __init__(self, folder: Path, owner: str = "") -> None:
        """Create `folder` and lock it; see `FileLock`."""
        self.folder = folder
        hint = "wait for it, or give this job another --output or --checkpoint-tag"
        super().__init__(folder / "lock", f"the checkpoint {folder}", owner, hint)

    def take(self) -> None:
        """See `FileLock.take`."""
        super().take()
        # Half-written files of a killed driver; whoever holds the lock is alone here.
        for left in self.folder.glob(".*.json.*"):
            left.unlink(missing_ok=True)

    def is_alone(self) -> bool:
        """Whether the folder has nothing but this lock."""
        return all(path == self._path for path in self.folder.iterdir())


class OutputLock(FileLock):
    """An output that this process alone may write, whatever checkpoints others have; leaves no file behind."""

    def __init__(self, output: Path, owner: str = "") -> None:
        """Lock `output`, a file or a directory; see `FileLock`."""
        path = output / ".remuda.lock" if output.is_dir() else output.with_name(f".{output.name}.lock")
        super().__init__(path, f"the output {output}", owner, "wait for it, or give this job another --output")

    def release(self) -> None:
        """See `FileLock.release`."""
        with suppress(OSError):
            if not self.rival:
                self._path.unlink()
        super().release()


L = TypeVar("L", bound=FileLock)


async def take_lock(
    folder: Path, owner: str, *, wait_s: float = PREDECESSOR_S, silent_s: float = SILENT_S
) -> FolderLock:
    """Lock a checkpoint directory, whoever had it before.

    Args:
        folder: made if absent.
        owner: see `JobRequest.owner`.
        wait_s: how long an earlier attempt of the same job is waited for.
        silent_s: how long an owner on another machine is watched.

    Raises:
        Busy: another process has it, and lives.
        NotPrivate: it is somebody else's, or others can write it.
        RemudaError: it cannot be made.
    """
    with suppress(OSError):  # what cannot be made is told below
        make_private(folder, instead="give a folder of your own with --checkpoint-dir")
    return await _take(lambda: FolderLock(folder, owner), owner, wait_s, silent_s)


async def take_output(
    output: Path, owner: str, *, wait_s: float = PREDECESSOR_S, silent_s: float = SILENT_S
) -> OutputLock:
    """Lock an output, whoever had it before; see `take_lock`."""
    return await _take(lambda: OutputLock(output, owner), owner, wait_s, silent_s)


async def _take(make: Callable[[], L], owner: str, wait_s: float, silent_s: float) -> L:
    loop = asyncio.get_running_loop()
    until = loop.time() + wait_s
    while True:
        try:
            lock = make()
        except Busy as error:
            if not owner or error.owner != owner or loop.time() >= until:
                raise
        else:
            rival = lock.rival
            if not rival:
                return lock
            if await _is_silent(lock, silent_s):
                lock.rival = ""
                lock.take()
                return lock
            lock.release()
            busy = lock.busy(rival)
            if not owner or busy.owner != owner or loop.time() >= until:
                raise busy
        await asyncio.sleep(BEAT_S / 2)


async def _is_silent(lock: FileLock, silent_s: float) -> bool:
    """Watch whether the rival touches the file."""
    first = lock.touched()
    try:
        for _ in range(max(1, round(silent_s / BEAT_S))):
            await asyncio.sleep(min(BEAT_S, silent_s))
            if lock.touched() != first:
                return False
    except BaseException:
        lock.release()
        raise
    return True

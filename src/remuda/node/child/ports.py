"""A port for the child that no other allocation on this machine gets, and that nobody listens on."""

from __future__ import annotations

import binascii
import errno
import fcntl
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.node.child.owner import who_listens

if TYPE_CHECKING:
    from remuda.wire.child import ChildSpec

FIRST, LAST = 20000, 32767
"""Where ports are taken from when none is preferred: below the range that the kernel gives to outgoing connections."""
MAX_TRIES = 2000
_SERVED = ""
"""Where names stand: the port that a child serves on, which needs none."""


class PortTaken(Exception):
    """No port that was asked for is free; the message says which and who is known to hold it."""


class UnsafeDirectory(Exception):
    """The directory of lock files belongs to somebody else, or is writable by others."""


class PortClaim:
    """The port held by this program: its lock lives as long as this object, and no child inherits it.

    Args:
        locks: directory of lock files, local to the machine; None for none.
        host: address that the child will bind.
        own: see `lock_folder`; None: there is no other place.
        holder: who it is for, to be told to others that ask for it.
        name: that the child has for the port; empty: it is the one that it serves on.
    """

    def __init__(
        self, locks: Path | None, host: str, own: Path | None = None, *, holder: str = "", name: str = ""
    ) -> None:
        self.port = 0
        self._holder, self._name = holder, name
        self._fd = -1
        self._locks = locks
        self._own = own
        self._host = host

    def take_fixed(self, port: int) -> int:
        """Hold exactly `port`.

        Raises:
            PortTaken: another allocation holds it, or somebody listens on it.
            UnsafeDirectory: see there.
            OSError: the address is not one of this machine, or the lock directory cannot be used.
        """
        called = f"port {port} ({self._name})" if self._name else f"port {port}"
        if self._name and (home := self._promised(port)):
            raise PortTaken(f"{called} is kept for a workload of {home}")
        if port != self.port and not self._hold(port):
            raise PortTaken(f"{called} is held by another allocation{self._held_by(port)} on this machine")
        # The child's last connections may linger (TIME_WAIT), which does not hinder a server: hence the reuse.
        if not is_free(self._host, port, reuse=True):
            self.release()
            raise PortTaken(f"{called} on {self._host} is in use by {who_listens(self._host, port)}")
        return port

    def take_free(self, preferred: int, key: str, *, avoid: int = 0) -> int:
        """Hold the port held before if it is free and not `avoid`, else the first free one.

        The address of a workload is left alone, even while nobody uses it: what keeps it comes back to that very port.

        Args:
            preferred: search from here upward; 0 starts at a place derived from `key`, so that many rarely meet.
            key: name of the allocation.
            avoid: a port that turned out to be taken.

        Raises:
            PortTaken: none of the next `MAX_TRIES` is free.
            UnsafeDirectory: see there.
            OSError: the address is not one of this machine, or the lock directory cannot be used.
        """
        if self.port and self.port != avoid and is_free(self._host, self.port, reuse=True):
            return self.port
        for port in _candidates(preferred, key):
            if port in (avoid, self.port) or self._promised(port) or not self._hold(port):
                continue
            # Without reuse this also finds servers that are bound and do not listen yet, as big engines do for minutes.
            if is_free(self._host, port, reuse=False):
                return port
        self.release()
        raise PortTaken(f"none of {MAX_TRIES} ports from {preferred or FIRST} on is free on {self._host}")

    def release(self) -> None:
        """Give the port back."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self.port = -1, 0

    def _promised(self, port: int) -> str:
        return promised_to(lock_folder(self._locks, self._own), port) if self._locks is not None else ""

    def _held_by(self, port: int) -> str:
        """Token of the allocation that holds a port, as its lock file tells, in brackets; empty where it does not."""
        try:
            assert self._locks is not None
            told = (lock_folder(self._locks, self._own) / f"{port}.lock").read_text(encoding="ascii")
        except (OSError, ValueError):
            return ""
        return f" ({told[:200]})" if told else ""

    def _hold(self, port: int) -> bool:
        """Exchange the held port for `port`, unless another program holds that."""
        fd = -1
        if self._locks is not None:
            folder = lock_folder(self._locks, self._own)
            fd = os.open(folder / f"{port}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                return False
            except BaseException:
                os.close(fd)
                raise
            with suppress(OSError):  # a full disk keeps nobody from a port
                os.ftruncate(fd, 0)
                os.write(fd, self._holder.encode("ascii", "replace"))
        self.release()
        self._fd, self.port = fd, port
        return True


class ChildPorts:
    """All ports of one child: the one that it serves on, and those that it asks for by name."""

    def __init__(self, spec: ChildSpec) -> None:
        self._spec = spec
        self._wanted: dict[str, int] = {}
        self._claims: dict[str, PortClaim] = {}

    @property
    def port(self) -> int:
        """The one that it serves on; 0 if it has none."""
        return self._claims[_SERVED].port if _SERVED in self._claims else 0

    @property
    def named(self) -> dict[str, int]:
        """Those that it asks for by name."""
        return {name: claim.port for name, claim in self._claims.items() if name}

    def choose(self, *, move: bool) -> None:
        """Hold all of them; those that must have a number come first.

        Args:
            move: others than those before, as far as they may be others.

        Raises:
            PortTaken: one that must have a number is taken, or none is free.
            UnsafeDirectory: the directory of lock files is not the user's alone.
            OSError: the address is not one of this machine, or the lock directory cannot be used.
        """
        if not self._claims:
            self._ask()
        for name in sorted(self._claims, key=lambda name: not self._wanted[name]):
            claim, number = self._claims[name], self._wanted[name]
            if number:
                claim.take_fixed(number)
            else:
                preferred, key = (0, f"{self._spec.token} {name}") if name else (self._spec.port, self._spec.token)
                claim.take_free(preferred, key, avoid=claim.port if move else 0)

    def _ask(self) -> None:
        spec = self._spec
        everywhere = "::" if ":" in spec.bind_host else "0.0.0.0"  # noqa: S104 - nobody knows where it will bind these
        served = {_SERVED: spec.port if spec.port_fixed else 0} if spec.listens() else {}
        self._wanted = {**served, **spec.named_ports()}
        self._claims = {name: port_claim(spec, everywhere if name else spec.bind_host, name) for name in self._wanted}

    def release(self) -> None:
        """Give all of them back."""
        for claim in self._claims.values():
            claim.release()


def port_claim(spec: ChildSpec, host: str, name: str = "") -> PortClaim:
    """No port yet, of a child that will listen on `host`."""
    own = Path(spec.port_locks_own) if spec.port_locks_own else None
    return PortClaim(Path(spec.port_locks) if spec.port_locks else None, host, own, holder=spec.token, name=name)


def promised_to(folder: Path, port: int) -> str:
    """State directory with a workload whose address has this port, whether somebody listens or not; empty for none.

    Args:
        folder: see `lock_folder`.
        port: looked for.
    """
    try:
        descriptor = os.open(owner_file(folder, port), os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(descriptor) as file:
            home = file.read()
    except (OSError, ValueError):
        return ""
    # A state directory that was removed has no workloads.
    return home if home and Path(home).is_dir() else ""


def owner_file(folder: Path, port: int) -> Path:
    """Says for which state directory's workload a port is kept."""
    return folder / f"{port}.owner"


def _candidates(preferred: int, key: str) -> list[int]:
    if preferred:
        return list(range(preferred, min(preferred + MAX_TRIES, 65536)))
    span = LAST - FIRST + 1
    first = binascii.crc32(key.encode()) % span
    return [FIRST + (first + step) % span for step in range(MAX_TRIES)]


def lock_folder(locks: Path, own: Path | None) -> Path:
    """The directory of lock files that all programs of a user use on this machine, made if absent.

    Anybody can make a directory of that name in a temporary directory. Then it is one below `own`, where nobody else
    can: programs of one state directory still meet there.

    Args:
        locks: the one that all state directories share.
        own: parent of the others, one for each machine; None: there are none.

    Raises:
        UnsafeDirectory: neither is the user's alone.
        OSError: neither can be made.
    """
    try:
        make_safe(locks)
    except (UnsafeDirectory, OSError):
        if own is None:
            raise
        locks = own / os.uname().nodename
        make_safe(own)
        make_safe(locks)
    return locks


def make_safe(directory: Path) -> None:
    """Create a directory that only this user can write, or check that it is one.

    Raises:
        UnsafeDirectory: it is not, or is a link.
        OSError: it cannot be created.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = os.lstat(directory)
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise UnsafeDirectory(f"{directory} is not a directory that only this user can write: remove it")


def is_free(host: str, port: int, *, reuse: bool) -> bool:
    """Whether a server could bind `host:port` now; `reuse` as its SO_REUSEADDR.

    Raises:
        OSError: for another cause than somebody using it.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        if reuse:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True

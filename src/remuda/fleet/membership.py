"""That this machine is a node of a fleet, as it is recorded: one file, mode 0600, written before anything is asked."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from base64 import b64decode
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from remuda.base.disk.files import write_atomic
from remuda.base.errors import Conflict, RemudaError
from remuda.fleet.conf import FleetConf
from remuda.fleet.head import digest_of
from remuda.wire.fields import known

if TYPE_CHECKING:
    from pathlib import Path

FILE, LOCK, LOG, HEARD = "membership.json", "client.lock", "client.log", "heard"


@dataclass(frozen=True)
class Membership:
    """One node, as its own machine has it."""

    host: str
    http_port: int
    fingerprint: str
    """Of the head's certificate."""
    name: str
    key: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)
    """The node's own secret: with it the head knows it again."""
    token: str = field(default="", repr=False)
    """`ID.SECRET` until it has joined."""
    login: str = ""
    """`USER@HOST` where ssh fetched the token."""
    gpus: str | None = None
    """What its user said; None: what the driver says."""
    resilient: bool = False
    unpacked: str = ""
    """Folder of Slurm's programs where they were unpacked."""
    stays: bool = True
    """Its user has said so since the head was told last."""
    joined: dict[str, Any] | None = field(default=None, repr=False)
    """`wire.fleet.Joined`, once it was answered."""

    @property
    def url(self) -> str:
        """Where the head answers clients."""
        return f"https://{self.host}:{self.http_port}"

    @property
    def conf(self) -> FleetConf:
        """The fleet, as the head said."""
        assert self.joined is not None
        return FleetConf(**known(FleetConf, self.joined["fleet"]))

    @property
    def munge_key(self) -> bytes:
        """What the fleet signs with."""
        assert self.joined is not None
        return b64decode(self.joined["munge_key"])

    @property
    def digest(self) -> str:
        """Names what the head gave; empty before it did."""
        return digest_of(self.munge_key, self.joined["slurm_conf"]) if self.joined is not None else ""


def read(folder: Path) -> Membership | None:
    """What is recorded; None where this machine is no node.

    Raises:
        RemudaError: it cannot be read.
    """
    try:
        return Membership(**known(Membership, json.loads((folder / FILE).read_text())))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise RemudaError(
            f"{folder / FILE} cannot be read: {error}", hint=f"remove {folder}, and join again"
        ) from error


def write(folder: Path, it: Membership) -> None:
    """Record it."""
    write_atomic(folder / FILE, json.dumps(asdict(it)), mode=0o600)


class Lock:
    """At most one client of a state directory; its pid is in the file.

    Raises:
        Conflict: another one has it.
    """

    def __init__(self, folder: Path) -> None:
        self._descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            raise Conflict("a client of this fleet runs on this machine already", hint="remuda client status") from None
        os.ftruncate(self._descriptor, 0)
        os.write(self._descriptor, f"{os.getpid()}\n".encode())

    def close(self) -> None:
        """Let another one have it."""
        os.close(self._descriptor)


def running(folder: Path) -> int:
    """Pid of the client that runs; 0 where none does."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return int(os.read(descriptor, 32) or b"0")
    finally:
        os.close(descriptor)
    return 0

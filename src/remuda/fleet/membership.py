"""That this machine is a node of a fleet, as it is recorded: one file, mode 0600, written before anything is asked."""

from __future__ import annotations

import json
import os
import secrets
import time
from base64 import b64decode
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from remuda.base.disk.files import write_atomic
from remuda.base.disk.locks import is_held
from remuda.base.errors import RemudaError
from remuda.fleet.conf import FleetConf
from remuda.fleet.head import digest_of
from remuda.wire.fields import known
from remuda.wire.process import boot_id

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


def running(folder: Path) -> int:
    """Pid of the client that runs; 0 where none does."""
    return int((folder / LOCK).read_text() or 0) if is_held(folder / LOCK) else 0


def hear(folder: Path) -> None:
    """Note that the head has just answered this process. The file has one size: a full disk takes it, too."""
    with suppress(OSError):
        descriptor = os.open(folder / HEARD, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.pwrite(descriptor, f"{os.getpid():10} {boot_id():36} {_since_boot():20.3f}\n".encode(), 0)
        os.close(descriptor)


def heard(folder: Path) -> tuple[int, float | None]:
    """Whom the head answered last, and seconds since then by a clock that nobody sets; 0 and None in a new boot."""
    try:
        pid, *boot, at = (folder / HEARD).read_text().split()
        return (int(pid), _since_boot() - float(at)) if "".join(boot) == boot_id() else (0, None)
    except (OSError, ValueError):
        return 0, None


def _since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)

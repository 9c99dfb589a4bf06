"""What makes a machine the head of a fleet, as it is recorded: the next host reads it and goes on."""

from __future__ import annotations

import hashlib
import json
import os
import socket
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from remuda.base.disk.files import write_atomic
from remuda.base.disk.private import user_name
from remuda.base.errors import Conflict, InputError, NotFound, RemudaError
from remuda.fleet.addresses import resolved, towards
from remuda.fleet.conf import LEASE_S, PORT, FleetConf
from remuda.wire.fields import known
from remuda.wire.peer import listeners

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")
HTTP_PORT, MODEL_PORT = PORT + 1, 9010


@dataclass(frozen=True)
class Head:
    """One head."""

    conf: FleetConf
    http_port: int = HTTP_PORT
    """Where clients ask, over HTTPS."""
    model_port: int = MODEL_PORT
    """Where nodes give objects to each other."""
    unpacked: str = field(default="")
    """Folder of Slurm's programs where they were unpacked; empty: those of the machine."""

    @property
    def ports(self) -> dict[str, int]:
        """Its flag -> each port that it listens on, on this machine."""
        return {"--port": self.conf.port, "--http-port": self.http_port}


def read(path: Path) -> Head | None:
    """The head that is recorded; see `recorded`."""

    def made(kept: Any) -> Head:
        return Head(**{**known(Head, kept), "conf": FleetConf(**known(FleetConf, kept["conf"]))})

    return recorded(path, made, "bring a copy of it back, or remove it")


def recorded(path: Path, made: Callable[[Any], T], hint: str) -> T | None:
    """What is made of a record; None where there is none.

    Raises:
        RemudaError: it cannot be read.
    """
    try:
        return made(json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RemudaError(f"{path} cannot be read: {error}", hint=hint) from error


def no_head() -> NotFound:
    """The error where there is none."""
    return NotFound("this host is not the head of a fleet", hint="make it one: remuda host start --port 8090")


def write(path: Path, head: Head) -> None:
    """Record it."""
    write_atomic(path, json.dumps(asdict(head), indent=1), mode=0o600)


def planned(before: Head | None, asked: Mapping[str, Any]) -> Head:
    """The head that is asked for: what is not said stays as it was, or is the usual.

    Args:
        before: the one that is recorded.
        asked: `port`, `http_port`, `model_port`, `address`, `lease_s`, `unpacked`; None is not said.

    Raises:
        InputError: two ports are the same, or an address is none of this machine.
    """
    said = {name: value for name, value in asked.items() if value is not None}
    if before is None:
        address = own_address(str(said.pop("address", "")))
        name = os.uname().nodename.partition(".")[0]
        conf = FleetConf(name="fleet", host=name, address=address, user=os.getuid(), lease_s=LEASE_S)
        before = Head(conf)
    elif "address" in said:
        said["address"] = own_address(str(said["address"]))
    port = said.get("port")
    if port is not None and port != before.conf.port:
        said = {"http_port": port + 1, "slurmd_port": port + 2} | said
    conf = replace(before.conf, **known(FleetConf, {**vars(before.conf), **said}))
    head = replace(before, **known(Head, {**vars(before), **said, "conf": conf}))
    wanted = [conf.port, head.http_port, head.model_port, conf.slurmd_port]
    if len({*wanted}) < len(wanted):
        raise InputError(f"the fleet's ports must differ: {', '.join(map(str, wanted))}", where="--port")
    return head


def own_address(said: str) -> str:
    """An IPv4 address of this machine that others reach it at: what was said, or the one on the way to others.

    Raises:
        InputError: it is no address of this machine, or none is found.
    """
    if said in ("", "0.0.0.0"):  # noqa: S104 - what other tools call «all»
        found = towards("192.0.2.1") or resolved(socket.gethostname())
        if not found:
            raise InputError("no address of this machine is found", hint="say it: --host ADDRESS", where="--host")
        return found
    address = resolved(said)
    try:
        with socket.socket(socket.AF_INET) as probe:
            probe.bind((address, 0))
    except OSError:
        raise InputError(f"{said} is not an address of this machine", hint="see ip addr", where="--host") from None
    return address


def check_port(address: str, port: int, flag: str) -> None:
    """See that a port of this machine is free.

    Raises:
        Conflict: it is not; says who has it.
    """
    if why := in_use(address, port):
        raise Conflict(why, hint=f"end that, or choose another: {flag} PORT")


def in_use(address: str, port: int) -> str:
    """Why a port of this machine cannot be had, in a sentence that says who has it; empty where it is free."""
    try:
        with socket.socket(socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, port))
            return ""
    except OSError as error:
        found = listeners(address, port) or []
        why = f" by {_holder(found[0].uid, found[0].inode)}" if found else f": {error.strerror}"
    return f"port {port} of this machine is in use{why}"


def _holder(uid: int, inode: int) -> str:
    """Who has a socket, for a sentence: the process, where this user may see that."""
    mark = f"socket:[{inode}]"
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if any(os.readlink(entry) == mark for entry in (folder / "fd").iterdir()):  # noqa: PTH115 - no path
                program = (folder / "comm").read_text().strip()
                return f"{program} (pid {folder.name}) of {user_name(uid)}"
        except OSError:
            continue
    return f"a process of {user_name(uid)}"


def digest_of(munge_key: bytes, slurm_conf: str) -> str:
    """Names what a node is given: with another digest it asks again."""
    return hashlib.sha256(munge_key + slurm_conf.encode()).hexdigest()[:16]

"""What a user's commands do on a machine that joins, is in, or leaves a fleet. The rest is the client's (`client`)."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from remuda.base.disk.detached import Detached
from remuda.base.disk.files import read_whole
from remuda.base.disk.paths import state_paths
from remuda.base.errors import (
    Conflict,
    HostUnreachable,
    InputError,
    Interrupted,
    NotFound,
    RemudaError,
    TimedOut,
    Unavailable,
)
from remuda.base.waiting import until
from remuda.fleet import client, machine, membership, token, tree
from remuda.fleet.addresses import resolved
from remuda.fleet.admission import malformed
from remuda.fleet.client import NodeClient
from remuda.fleet.head import HTTP_PORT
from remuda.fleet.link import Link
from remuda.fleet.membership import LOG, Membership
from remuda.fleet.processes import Daemons, send
from remuda.wire.fleet import Joining, Leaving, Levels

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.base.disk.paths import StatePaths

_HOST = re.compile(r"([A-Za-z0-9][A-Za-z0-9.-]*):(\d{1,5})")
_LOGIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*@[A-Za-z0-9][A-Za-z0-9.-]*")
_TOKEN_BYTES = 4096
_SSH_S = 60.0
_START_S = 60.0
FRESH_S: Final = 10.0
"""A client that has heard the head within so long is connected."""


@dataclass(frozen=True)
class Asked:
    """What `client connect` says."""

    where: str
    """`HOST:PORT` or `USER@HOST`."""
    token: str = ""
    """Its text; empty for ssh to fetch it."""
    http_port: int = 0
    name: str = ""
    gpus: str | None = None
    resilient: bool = False
    unpack: bool = False


def read_token(path: str) -> str:
    """The token in a file; `-` is standard input.

    Raises:
        InputError: it cannot be read.
    """
    if path == "-":
        return sys.stdin.readline(_TOKEN_BYTES)
    try:
        return read_whole(Path(path).expanduser(), _TOKEN_BYTES).decode(errors="replace")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", where="--token-file") from error


def prepare(paths: StatePaths, asked: Asked) -> Membership:
    """Record what is asked for, so that a client can join; of a node that has joined this fleet it changes little.

    Raises:
        InputError: something of it is wrong.
        Conflict: this machine is a node of another fleet, or of this one under another name.
        Unavailable: ssh does not get a token, or Slurm's programs are missing.
    """
    folder = paths.folder(paths.fleet_node)
    before = membership.read(folder)
    if asked.gpus:
        machine.checked(asked.gpus)
    is_node = before is not None and before.joined is not None
    it = _rejoining(before, asked) if before is not None and is_node else _new(folder, asked)
    if before is not None and not is_node:  # the head may have heard the key, and the answer was lost
        it = replace(it, key=before.key)
    tree.find(unpacked=Path(it.unpacked) if it.unpacked else None)
    membership.write(folder, it)
    return it


def unpack_head() -> str:
    """Fetch the programs of a head into this state directory; the folder.

    Raises:
        Unavailable: that is not possible here; says what to install instead.
    """
    paths = state_paths()
    paths.prepare()
    folder = paths.folder(paths.fleet) / "tree"
    tree.unpack(folder, head=True)
    return str(folder)


def _rejoining(before: Membership, asked: Asked) -> Membership:
    host, _, port = asked.where.rpartition("@")[2].partition(":")
    http_port = asked.http_port or (int(port) + 1 if port.isdigit() else before.http_port)
    is_same = asked.where == before.login or resolved(host) == resolved(before.host)
    if not is_same or ("@" not in asked.where and http_port != before.http_port):
        raise Conflict(
            f"this machine is node {before.name} of the fleet at {before.host}",
            hint="leave that one first: remuda client disconnect",
        )
    if asked.name and asked.name != before.name:
        raise Conflict(f"this machine is node {before.name} of this fleet already", hint="remuda client disconnect")
    return replace(
        before, stays=True, resilient=asked.resilient, gpus=before.gpus if asked.gpus is None else asked.gpus
    )


def _new(folder: Path, asked: Asked) -> Membership:
    name = asked.name or machine.name()
    said = Joining(name=name, key="-" * 32, address="127.0.0.1", cpus=1, memory=1, gpus=asked.gpus or "")
    if why := malformed(said):
        raise InputError(why, where="--node-id")
    host, http_port, text = _head(asked)
    given = token.read(text, where="" if "@" in asked.where else "--token-file")
    unpacked = folder / "tree" if asked.unpack else None
    if unpacked is not None:
        tree.unpack(unpacked)
    return Membership(
        host=host, http_port=http_port, fingerprint=given.fingerprint, name=name, token=f"{given.id}.{given.secret}",
        login=asked.where if "@" in asked.where else "", gpus=asked.gpus, resilient=asked.resilient,
        unpacked=str(unpacked or ""),
    )  # fmt: skip


def _head(asked: Asked) -> tuple[str, int, str]:
    """Where the head answers clients, and the text of a token."""
    if _LOGIN.fullmatch(asked.where):
        said = _by_ssh(asked.where)
        return str(said["address"]), int(said["http_port"]), str(said["token"])
    found = _HOST.fullmatch(asked.where)
    if found is None or not 0 < int(found[2]) < 65535:
        raise InputError(
            f"{asked.where!r} is not the head of a fleet", hint="write HOST:PORT or USER@HOST", where="HOST:PORT"
        )
    if not asked.token:
        raise InputError(
            "a token is needed", hint="print one on the head: remuda host token; give it by --token-file F (- is stdin)"
        )
    port = int(found[2])
    return found[1], asked.http_port or (port + 1 if port else HTTP_PORT), asked.token


def _by_ssh(login: str) -> dict[str, Any]:
    """Ask the head for a token over ssh.

    Raises:
        Unavailable: ssh fails, or remuda does there.
    """
    try:
        done = subprocess.run(
            ["ssh", "--", login, "remuda host token --json"], stdout=subprocess.PIPE, text=True, timeout=_SSH_S,
            check=False,
        )  # fmt: skip
    except FileNotFoundError:
        raise Unavailable("there is no ssh on this machine", hint="connect HOST:PORT --token-file F") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"ssh {login} has not given a token within {_SSH_S:.0f} s") from None
    try:
        said: dict[str, Any] = json.loads(done.stdout)
        if "token" in said:
            return said
        why = str(said["error"]["message"])
    except (ValueError, KeyError, TypeError):
        why = f"ssh ended with code {done.returncode}"
    raise Unavailable(f"{login} gave no token: {why}", hint=f"try it: ssh {login} remuda host token")


# --- the client in the background ------------------------------------------------------------------------------------


def run(paths: StatePaths, tell: Callable[[str], None]) -> None:
    """Be the client, in this process; errors as `NodeClient.run`."""

    async def be() -> None:
        await NodeClient(paths, tell).run()

    asyncio.run(be())


def start(paths: StatePaths) -> None:
    """Start the client in the background, and wait until it has joined.

    Raises:
        RemudaError: it ended instead; the message is the last line of its log.
        TimedOut: it still tries.
    """
    process = Detached("remuda.fleet.client", paths.root, paths.fleet_node / LOG)

    def is_in() -> bool:
        if process.has_ended:
            raise RemudaError(f"the client has ended: {process.last_words()}", hint="remuda client logs")
        return membership.heard(paths.fleet_node)[0] == process.pid

    if not until(is_in, _START_S):
        raise TimedOut(f"this machine has not joined within {_START_S:.0f} s; the client keeps trying",
                       hint="remuda client status; remuda client logs")  # fmt: skip


# --- looking and leaving ---------------------------------------------------------------------------------------------


def status(paths: StatePaths) -> dict[str, Any]:
    """This machine as a node.

    Raises:
        NotFound: it is none.
    """
    folder = paths.fleet_node
    it = _member(folder)
    pid, (heard_by, silent_s) = membership.running(folder), membership.heard(folder)
    is_heard = silent_s is not None and heard_by == pid and silent_s < FRESH_S
    daemons = Daemons(folder / "slurm")
    link = "no client runs" if not pid else "connected" if is_heard else "silent"
    return {
        "name": it.name, "head": f"{it.host}:{it.http_port}", "state": link, "pid": pid, "heard_s": silent_s,
        "joined": it.joined is not None, "resilient": it.resilient,
        **{name: daemons.pid(name) or 0 for name in ("slurmd", "munged")},
    }  # fmt: skip


def _member(folder: Path) -> Membership:
    it = membership.read(folder)
    if it is None:
        raise NotFound("this machine is not a node of a fleet", hint="remuda client connect HOST:8090 --token-file F")
    return it


def disconnect(paths: StatePaths, tell: Callable[[str], None], *, force: bool = False) -> None:
    """Drain this node, wait until nothing runs on it, and leave; a client that runs does it, else this process.

    Args:
        paths: of the state directory.
        tell: is told what is waited for.
        force: wait for nobody: what runs here is given up, and so is a head that does not answer.

    Raises:
        NotFound: this machine is no node.
        HostUnreachable: the head does not answer.
    """
    folder = paths.fleet_node
    it = _member(folder)
    if it.joined is None and not membership.running(folder):
        client.drop(folder)
        return
    levels = _leaving(folder, it, force=force)
    if levels is None:
        return
    if not levels.is_empty:
        tell("the node gets nothing new; waiting for what runs on it (Ctrl-C: the client still leaves then)")
    while not until(lambda: not membership.running(folder), client.TELL_S, 0.2):
        with suppress(NotFound):  # it has just left
            tell(f"still waiting for what runs here: {NodeClient(paths, tell).running()}")
    # There was no client, or it was killed: perhaps when the head had forgotten the node.
    if membership.read(folder) is not None and _leaving(folder, it, force=force) is not None:
        run(paths, tell)
        if membership.read(folder) is not None:
            raise Interrupted(
                "this node still leaves: remuda client disconnect again, or remuda client connect to stay"
            )


def _leaving(folder: Path, it: Membership, *, force: bool) -> Levels | None:
    """Tell the head that this node leaves; None where that knows it no more, or is given up: then it has left."""
    try:
        return asyncio.run(_ask_to_leave(it, force=force))
    except NotFound:
        pass
    except HostUnreachable as error:
        if not force:
            hint = "try again when the head is back; where it is gone for good: --force"
            raise HostUnreachable(error.message, hint=hint) from error
        if pid := membership.running(folder):
            send([pid], signal.SIGTERM)
            until(lambda: not membership.running(folder), _START_S)
    client.drop(folder)
    return None


async def _ask_to_leave(it: Membership, *, force: bool) -> Levels:
    link = Link.of(it)
    try:
        return await link.ask("leave", f"Key {it.key}", Leaving(force=force), Levels)
    finally:
        await link.close()

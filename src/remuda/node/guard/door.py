"""Where the other nodes call the first one, and how: everybody who reaches the port may knock, few know the key."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import secrets
import select
import socket
import time
from typing import TYPE_CHECKING, Any

from remuda.node import private
from remuda.node.child.launch import node_name, own_address
from remuda.node.guard.member_line import MemberLine
from remuda.wire.gate import ACCEPTS, OUT_OF_DESCRIPTORS, PAUSE_S, Gate, Limits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIMITS = Limits()
MEET_S = 60.0
"""How long the first node is looked for."""


class Door:
    """A listening port; connections are strangers until they say the key.

    Args:
        host: address to listen on.
        limits: what strangers get.

    Raises:
        OSError: there is no port to be had.
    """

    def __init__(self, host: str, limits: Limits = LIMITS) -> None:
        self.key = secrets.token_hex(16)
        self._listener = socket.create_server((host, 0), backlog=128)
        self._listener.setblocking(False)
        self._gate: Gate[MemberLine] = Gate(limits)
        self._closed_until = 0.0
        """Nothing is accepted before: there were no descriptors."""

    @property
    def port(self) -> int:
        """That it listens on."""
        return int(self._listener.getsockname()[1])

    def announce(self, file: Path, host_file: str, **more: Any) -> None:
        """Write where to call and with which key into a file that its owner alone can read, see `call`.

        Raises:
            OSError: it cannot be written.
        """
        hosts = [own_address(host_file), os.uname().nodename]
        private.write_whole(file, json.dumps({"port": self.port, "key": self.key, "hosts": hosts, **more}))

    def waits_for(self, now: float) -> list[int]:
        """Descriptors that may have news."""
        own = [self._listener.fileno()] if now >= self._closed_until else []
        return own + [line.socket.fileno() for line in self._gate.everybody()]

    def newcomers(self, now: float) -> list[tuple[MemberLine, dict[str, Any]]]:
        """Those that have said the key since the last call, each with what it said with it. Never waits."""
        for line in self._gate.overdue(now):
            self._send_away(line)
        found = []
        for line in itertools.chain(self._gate.everybody(), self._comers(now)):
            said = self._greet(line) if line in self._gate else None
            if said is not None:
                self._gate.leave(line)
                found.append((line, said))
        return found

    def _comers(self, now: float) -> Iterator[MemberLine]:
        """New strangers, one by one: who has said the key already must not be the one who goes for the next."""
        for _ in range(ACCEPTS if now >= self._closed_until else 0):
            try:
                connection, peer = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in OUT_OF_DESCRIPTORS:
                    self._closed_until = now + PAUSE_S
                    return
                continue  # it hung up before it was accepted
            line = MemberLine(connection)
            victim = self._gate.admit(line, str(peer[0]), now)
            if victim is not None:
                self._send_away(victim)
            yield line

    def _greet(self, line: MemberLine) -> dict[str, Any] | None:
        """What a stranger says with the key; None as long as it has said nothing, and for good if it says else."""
        before = line.heard
        messages = line.hear()
        if messages:
            key = messages[0].get("key")
            if isinstance(key, str) and secrets.compare_digest(key.encode(errors="replace"), self.key.encode()):
                return messages[0]
        if messages or not line.is_open or not self._gate.hears(line, line.heard - before):
            self._send_away(line)
        return None

    def _send_away(self, line: MemberLine) -> None:
        self._gate.leave(line)
        line.close()

    def close(self) -> None:
        """Hang up on strangers, and take no more."""
        self._listener.close()
        for line in self._gate.everybody():
            self._send_away(line)


def call(file: Path, **more: Any) -> tuple[MemberLine, dict[str, Any]] | None:
    """The line to the first node that `announce` wrote of, and all that it wrote; None when it cannot be had.

    Args:
        file: may appear, and change, while this waits.
        more: is said with the key.
    """
    until = time.monotonic() + MEET_S
    while time.monotonic() < until:
        try:
            told: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            for host in dict.fromkeys([os.environ.get("SLURM_LAUNCH_NODE_IPADDR", ""), *told["hosts"]]):
                line = _dial(host, int(told["port"])) if host else None
                if line is not None:
                    line.say({"key": told["key"], "node": node_name(os.environ), **more})
                    if _is_taken_in(line, until):
                        return line, told
        except (OSError, ValueError, KeyError):
            pass  # the file system may be behind
        time.sleep(0.2)
    return None


def _dial(host: str, port: int) -> MemberLine | None:
    try:
        return MemberLine(socket.create_connection((host, port), timeout=5))
    except OSError:
        return None


def _is_taken_in(line: MemberLine, until: float) -> bool:
    """Whether the first node has said something; it may hang up instead, where strangers crowd its door."""
    poll = select.poll()
    poll.register(line.socket, select.POLLIN)
    if line.is_open and poll.poll(max(0.0, until - time.monotonic()) * 1000):
        with contextlib.suppress(OSError):
            if line.socket.recv(1, socket.MSG_PEEK):
                return True
    line.close()
    return False

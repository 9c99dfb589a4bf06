"""Where the members of a replica call its first node: everybody who reaches the port may knock, few know the key."""

from __future__ import annotations

import itertools
import secrets
import socket
from typing import TYPE_CHECKING, Any

from remuda.node.gang import Line
from remuda.wire.gate import ACCEPTS, OUT_OF_DESCRIPTORS, PAUSE_S, Gate, Limits

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMITS = Limits(number=64, seconds=10.0, bytes=4096)


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
        self._gate: Gate[Line] = Gate(limits)
        self._closed_until = 0.0
        """Nothing is accepted before: there were no descriptors."""

    @property
    def port(self) -> int:
        """That it listens on."""
        return int(self._listener.getsockname()[1])

    def waits_for(self, now: float) -> list[int]:
        """Descriptors that may have news."""
        own = [self._listener.fileno()] if now >= self._closed_until else []
        return own + [line.socket.fileno() for line in self._gate.everybody()]

    def newcomers(self, now: float) -> list[tuple[Line, dict[str, Any]]]:
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

    def _comers(self, now: float) -> Iterator[Line]:
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
            line = Line(connection)
            victim = self._gate.admit(line, str(peer[0]), now)
            if victim is not None:
                self._send_away(victim)
            yield line

    def _greet(self, line: Line) -> dict[str, Any] | None:
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

    def _send_away(self, line: Line) -> None:
        self._gate.leave(line)
        line.close()

    def close(self) -> None:
        """Hang up on strangers, and take no more."""
        self._listener.close()
        for line in self._gate.everybody():
            self._send_away(line)

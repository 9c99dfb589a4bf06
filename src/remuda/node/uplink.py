"""The line to the host: newest report over TCP when the host answers, never waiting for it.

The host's address is read again at every attempt, because a host that comes back has another port. Reports are levels:
while the line is down or full only the newest is kept.
"""

from __future__ import annotations

import errno
import json
import select
import socket
from pathlib import Path
from typing import Callable

from remuda.policy.backoff import backoff_s
from remuda.wire import peer
from remuda.wire.report import Key

RETRY_FIRST_S = 0.25
RETRY_MAX_S = 5.0
DEAD_PEER_MS = 20_000
"""Sent data that is not acknowledged for so long means that the line is dead."""
NEVER = float("inf")


class Uplink:
    """Keeps trying to tell the host the newest report.

    Args:
        host_file: JSON `{"report_host", "report_port"}`, the host as an address. Empty: no host.
        key_file: what shows the host that this is the allocation.
        token: of the allocation; it spreads retries of many nodes, too.
    """

    def __init__(self, host_file: str, key_file: Path, token: str) -> None:
        self.socket: socket.socket | None = None
        self._host_file = host_file
        self._key_file = key_file
        self._token = token
        self._retry_at = 0.0 if host_file else NEVER
        self._failures = 0
        self._opened_at = NEVER
        self._connecting = False
        self._pending = b""
        self._out = b""
        self._newest = b""

    @property
    def due(self) -> float:
        """When `advance` is needed even if the socket says nothing."""
        return NEVER if self.socket is not None else self._retry_at

    @property
    def events(self) -> int:
        """What to wait for on `socket`, as `select.poll` names it."""
        wants_write = self._connecting or self._out or self._pending
        return select.POLLIN | (select.POLLOUT if wants_write else 0)

    @property
    def idle(self) -> bool:
        """Whether nothing can or need be sent now."""
        return self.socket is None or not (self._connecting or self._out or self._pending)

    def tell(self, line: str, now: float) -> None:
        """Make `line` (JSON, one line) the newest report, and send it if that is possible at once."""
        self._newest = self._pending = line.encode() + b"\n"
        self.advance(now)

    def advance(self, now: float) -> None:
        """Connect when that is due, send what can be sent, notice a dead line. Never blocks, never raises."""
        try:
            if self.socket is None:
                if now < self._retry_at:
                    return
                self._connect(now)
            self._exchange()
        except BlockingIOError:
            pass
        except (OSError, ValueError, KeyError, TypeError, OverflowError):
            self._drop(now)

    def finish(self, within_s: float, now: Callable[[], float]) -> None:
        """Wait until the newest report is sent, or cannot be, and end the line for good."""
        end = now() + within_s
        while not self.idle and now() < end and self.socket is not None:
            poll = select.poll()
            poll.register(self.socket, self.events)
            poll.poll((end - now()) * 1000)
            self.advance(now())
        self.close()

    def close(self) -> None:
        """End the line for good."""
        if self.socket is not None:
            self.socket.close()
        self.socket = None
        self._retry_at = NEVER

    def _connect(self, now: float) -> None:
        where = json.loads(Path(self._host_file).read_text(encoding="utf-8"))
        key = self._key_file.read_text(encoding="utf-8").strip()
        host = "127.0.0.1" if where["report_host"] == "localhost" else str(where["report_host"])
        address = (host, int(where["report_port"]))
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        socket.inet_pton(family, host)  # refuses names: looking them up could block
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.setblocking(False)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_PEER_MS)
        self._out = Key(key, self._token).to_json().encode() + b"\n"
        self._pending = self._newest
        self._connecting = True
        self._opened_at = now
        result = self.socket.connect_ex(address)
        if result not in (0, errno.EINPROGRESS):
            raise OSError(result, "cannot connect")

    def _exchange(self) -> None:
        line = self.socket
        if line is None:
            return
        problem = line.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if problem:
            raise OSError(problem, "connection lost")
        if self._connecting:
            _refuse_strangers(line)
            self._connecting = False
        while self._out or self._pending:
            if not self._out:
                self._out, self._pending = self._pending, b""
            self._out = self._out[line.send(self._out) :]
        if not line.recv(4096):  # the host says nothing; an end is all that can come
            raise ConnectionResetError

    def _drop(self, now: float) -> None:
        if self.socket is not None:
            self.socket.close()
        self.socket = None
        self._connecting = False
        self._out = b""
        # A line that held for a while was a good one; one that is closed at once (wrong key) is tried less and less.
        held = now - self._opened_at >= RETRY_MAX_S
        self._failures = 1 if held else self._failures + 1
        self._opened_at = NEVER
        self._retry_at = now + backoff_s(self._failures, RETRY_FIRST_S, RETRY_MAX_S, key=self._token)


def _refuse_strangers(line: socket.socket) -> None:
    """The port of a host that is gone may have become somebody else's.

    Raises:
        BlockingIOError: it is not open yet.
        OSError: it has.
    """
    try:
        line.getpeername()
    except OSError:
        raise BlockingIOError from None
    if why_not := peer.refusal(line):
        raise OSError(why_not)

"""One HTTP GET that never blocks: the loop calls `advance` when the socket is ready or the time is over."""

from __future__ import annotations

import errno
import os
import select
import socket

from remuda.wire import peer
from remuda.wire.peer import Whose

_CONNECTING = (0, errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EALREADY)
MAX_HEAD_BYTES = 65536


class Fetch:
    """A request under way.

    Args:
        host: address, not a name: names could block.
        port: TCP port.
        path: begins with `/`; empty: nothing is asked, the connection alone is the answer, and its status 0.
        deadline: when it is given up, on the caller's clock.
        max_bytes: body bytes that are taken; the rest is left.
        bearer: token to send, empty for none.
        asks_who: whether nothing is sent to a process of another user.
    """

    def __init__(
        self,
        host: str,
        port: int,
        path: str,
        deadline: float,
        *,
        max_bytes: int,
        bearer: str = "",
        asks_who: bool = True,
    ) -> None:
        self.deadline = deadline
        self.status = 0
        self.error = ""
        """Why there is no complete answer, empty when there is one."""
        self.done = False
        self._max = max_bytes
        self._in = b""
        self._port = port
        self._asks_who = asks_who
        self._asks = bool(path)
        shown = f"[{host}]" if ":" in host else host
        token = f"Authorization: Bearer {bearer}\r\n" if bearer else ""
        self._out = (
            f"GET {path if path.startswith('/') else '/' + path} HTTP/1.1\r\nHost: {shown}:{port}\r\n"
            f"User-Agent: remuda-node\r\nAccept: */*\r\n{token}Connection: close\r\n\r\n"
        ).encode("utf-8", "surrogateescape")
        self.socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        self.socket.setblocking(False)
        result = self.socket.connect_ex((host, port))
        if result not in _CONNECTING:
            self._finish(_connect_error(result))

    @property
    def events(self) -> int:
        """What to wait for, as `select.poll` names it."""
        return select.POLLOUT if self._out else select.POLLIN

    @property
    def body(self) -> bytes:
        """The answer's content, at most about `max_bytes`."""
        head, _, rest = self._in.partition(b"\r\n\r\n")
        return _unchunk(rest) if b"transfer-encoding: chunked" in head.lower() else rest

    def advance(self, now: float) -> bool:
        """Do what can be done without waiting; True when there is an answer or an error."""
        if self.done:
            return True
        try:
            if self._out:
                self._send()
            if not self._out:
                self._receive()
        except BlockingIOError:
            pass
        except OSError as error:
            self._finish(_connect_error(error.errno or 0))
        if not self.done and now >= self.deadline:
            self._finish("no answer in time" if not self._in else "the answer did not end in time")
        return self.done

    def close(self) -> None:
        """Give the socket back."""
        self.socket.close()

    def _send(self) -> None:
        result = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if result:
            self._finish(_connect_error(result))
            return
        if (self._asks_who or not self._asks) and not self._is_safe():
            return
        if not self._asks:
            self._finish("")
            return
        self._out = self._out[self.socket.send(self._out) :]

    def _is_safe(self) -> bool:
        """Whether the connection is there, and a key may be sent, as far as is seen."""
        try:
            self.socket.getpeername()
        except OSError:
            return False  # it is not open yet
        if not self._asks_who:
            return True
        self._asks_who = False
        whose = peer.of(self.socket)
        if whose is Whose.FOREIGN:
            self._finish(f"another process answers on port {self._port}")
        elif whose is Whose.NOBODY:
            self._finish("the connection was closed without an answer")
        return not self.done

    def _receive(self) -> None:
        while not self.done:
            data = self.socket.recv(65536)
            self._in += data
            self._look(ended=not data)

    def _look(self, *, ended: bool) -> None:
        head, found, body = self._in.partition(b"\r\n\r\n")
        if not found:
            if ended or len(head) > MAX_HEAD_BYTES:
                self._finish("the connection was closed without an answer" if not head else "the answer is not HTTP")
            return
        words = head.split(None, 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
            self._finish("the answer is not HTTP")
            return
        length = _length(head)
        if ended or len(body) >= self._max or (length is not None and len(body) >= length) or _last_chunk(head, body):
            self.status = int(words[1][:3])
            self._finish("")

    def _finish(self, error: str) -> None:
        if not self.done:
            self.done = True
            self.error = error


def _connect_error(number: int) -> str:
    if number == errno.ECONNREFUSED:
        return "nothing listens on the port"
    return f"cannot ask it: {os.strerror(number)}"


def _length(head: bytes) -> int | None:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            return int(value)
    return None


def _last_chunk(head: bytes, body: bytes) -> bool:
    return b"transfer-encoding: chunked" in head.lower() and body.endswith(b"0\r\n\r\n")


def _unchunk(data: bytes) -> bytes:
    """Content of a chunked body, as far as it is complete (RFC 9112, section 7.1)."""
    parts = []
    while data:
        size, found, rest = data.partition(b"\r\n")
        try:
            length = int(size.split(b";")[0], 16)
        except ValueError:
            break
        if not found or length <= 0:
            break
        parts.append(rest[:length])
        data = rest[length + 2 :]
    return b"".join(parts)

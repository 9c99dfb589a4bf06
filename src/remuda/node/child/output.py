"""What the child prints: taken from its pipe into `child.log`, with secrets blotted out and the last lines kept."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.node.capped import CappedFile

CHUNK = 1 << 16
TAIL_BYTES = 16384
BLOT = b"[secret]"
MIN_SECRET = 6
"""Shorter secrets are not blotted out: they would be found everywhere."""

_PORT_TAKEN = (b"address already in use", b"address in use", b"errno 98", b"eaddrinuse", b"couldn't bind")


class Blotter:
    """Replaces secrets in a stream of bytes, also when one is cut in two between reads."""

    def __init__(self, secrets: tuple[str, ...]) -> None:
        wanted = {secret.encode() for secret in secrets if len(secret) >= MIN_SECRET}
        self._secrets = sorted(wanted, key=len, reverse=True)  # one may contain another
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What may be written now; a tail that might begin a secret is held back."""
        data = self._held + data
        for secret in self._secrets:
            data = data.replace(secret, BLOT)
        keep = max((_begun(data, secret) for secret in self._secrets), default=0)
        self._held = data[len(data) - keep :]
        return data[: len(data) - keep]

    def flush(self) -> bytes:
        """What was held back, at the end of the stream."""
        data, self._held = self._held, b""
        return data


def _begun(data: bytes, secret: bytes) -> int:
    """Length of the longest end of `data` that is a beginning of `secret`."""
    for length in range(min(len(secret) - 1, len(data)), 0, -1):
        if data.endswith(secret[:length]):
            return length
    return 0


class Output:
    """The reading end of a pipe that the child's stdout, stderr or both go to.

    A pipe, and not the file itself, because only so the file's size is bounded at every moment: a child that floods
    waits for us. Non-blocking; the end of the file is no event, since descendants may hold the other end.

    Args:
        fd: reading end.
        log: where it goes.
        secrets: not to be written.
        taken: gets all that was written, as it comes.
    """

    def __init__(
        self, fd: int, log: CappedFile, secrets: tuple[str, ...], taken: Callable[[bytes], None] | None = None
    ) -> None:
        self.fd = fd
        self._taken = taken
        self.total_bytes = 0
        self.at_end = False
        """Nothing more can come: all writers have closed it."""
        self._log = log
        self._blotter = Blotter(secrets)
        self._tail = b""
        os.set_blocking(fd, False)

    def pump(self, max_bytes: int = 16 * CHUNK) -> int:
        """Move what is there, at most about `max_bytes`; how much that was."""
        moved = 0
        while moved < max_bytes and not self.at_end:
            try:
                data = os.read(self.fd, CHUNK)
            except BlockingIOError:
                break
            self.at_end = not data
            moved += len(data)
            self._take(data)
        return moved

    def finish(self) -> None:
        """Move the rest and close the pipe; call it when all writers are dead."""
        self.pump(64 * CHUNK)
        self._write(self._blotter.flush())
        os.close(self.fd)

    def tail(self, max_chars: int) -> str:
        """The last whole lines that fit into `max_chars`."""
        text = self._tail.decode("utf-8", "replace")
        if len(text) <= max_chars:
            return text
        text = text[-max_chars:]
        return text[text.find("\n") + 1 :]

    def says_port_taken(self) -> bool:
        """Whether the child complained about its address."""
        text = self._tail.lower()
        return any(word in text for word in _PORT_TAKEN)

    def _take(self, data: bytes) -> None:
        self.total_bytes += len(data)
        self._write(self._blotter.feed(data))

    def _write(self, data: bytes) -> None:
        if data:
            self._log.append(data)
            self._tail = (self._tail + data)[-TAIL_BYTES:]
            if self._taken is not None:
                self._taken(data)

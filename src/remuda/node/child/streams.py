"""All pipes of one child: where each goes, who looks at what comes, and what of it is kept for the last word."""

from __future__ import annotations

import os
import select
import stat
from typing import TYPE_CHECKING, Callable

from remuda.node.child.output import Output

if TYPE_CHECKING:
    from remuda.node.capped import CappedFile

GATHER_S = 0.02
FLOOD_BYTES = 32768
"""More at once than this is taken on without a pause, so that a child that prints much is not held up."""
ATOMIC_BYTES = 4096
"""A pipe that can take anything can take so much (PIPE_BUF)."""


class Streams:
    """The pipes of one child: one for both streams, or stdout and stderr apart.

    Args:
        logs: file of stdout, and of stderr if that shall be apart.
        secrets: not to be written.
        taken: gets the number of the stream (0, 1) and what came.
    """

    def __init__(
        self, logs: tuple[CappedFile, ...], secrets: tuple[str, ...], taken: Callable[[int, bytes], None] | None
    ) -> None:
        self._writers: list[int] = []
        self._outputs: list[Output] = []
        self._read_at = 0.0
        for number, log in enumerate(logs):
            read, write = os.pipe()
            self._writers.append(write)
            self._outputs.append(Output(read, log, secrets, _bound(taken, number)))

    @property
    def stdout(self) -> int:
        """What the child writes to."""
        return self._writers[0]

    @property
    def stderr(self) -> int:
        """What the child writes errors to."""
        return self._writers[-1]

    @property
    def total_bytes(self) -> int:
        """Printed so far."""
        return sum(output.total_bytes for output in self._outputs)

    def close_writers(self) -> None:
        """Call it when the child has its ends."""
        for write in self._writers:
            os.close(write)
        self._writers = []

    def wait_for(self, poll: select.poll, now: float) -> float:
        """Register what can be waited for; when to read if that must wait, else infinity."""
        open_ones = [output for output in self._outputs if not output.at_end]
        if open_ones and now < self._read_at:
            return self._read_at
        for output in open_ones:
            poll.register(output.fd, select.POLLIN)
        return float("inf")

    def pump(self, now: float) -> None:
        """Move what is there; many short lines are moved together."""
        if now < self._read_at:
            return
        moved = sum([output.pump() for output in self._outputs])
        self._read_at = now + GATHER_S if 0 < moved < FLOOD_BYTES else 0.0

    def finish(self) -> None:
        """Move the rest and close the pipes; call it when all writers are dead, or none ever was."""
        self.close_writers()
        for output in self._outputs:
            output.finish()

    def tail(self, max_chars: int) -> str:
        """The last lines: those of stderr where there are any, else those of stdout."""
        for output in reversed(self._outputs):
            text = output.tail(max_chars)
            if text.strip():
                return text
        return ""

    def says_port_taken(self) -> bool:
        """Whether the child complained about its address."""
        return any(output.says_port_taken() for output in self._outputs)


def _bound(taken: Callable[[int, bytes], None] | None, number: int) -> Callable[[bytes], None] | None:
    if taken is None:
        return None
    whole = taken
    return lambda data: whole(number, data)


def to_all(*takers: Callable[[int, bytes], None] | None) -> Callable[[int, bytes], None] | None:
    """One taker for all that are there; None without any."""
    present = [taker for taker in takers if taker is not None]
    if len(present) < 2:
        return present[0] if present else None

    def take(stream: int, data: bytes) -> None:
        for taker in present:
            taker(stream, data)

    return take


class Onward:
    """What the scheduler keeps of the output: this program's own. There is no other copy, so it is waited for."""

    def take(self, _stream: int, data: bytes) -> None:
        """Hand `data` on whole."""
        try:
            while data:
                data = data[os.write(1, data) :]
        except OSError:
            return

    def close(self) -> None:
        """Nothing: it ends with this program."""


class Tee:
    """Copies to a descriptor of this program, and never waits for it: what it cannot take at once is dropped."""

    def __init__(self, fd: int) -> None:
        self.dropped_bytes = 0
        self._fd = fd
        self._poll = select.poll()
        try:
            self._is_file = stat.S_ISREG(os.fstat(fd).st_mode)
            self._poll.register(fd, select.POLLOUT)
        except OSError:
            self._fd = -1

    def write(self, data: bytes) -> None:
        """Copy `data` as far as that goes."""
        try:
            while data and self._fd >= 0:
                if not self._is_file and not any(events & select.POLLOUT for _, events in self._poll.poll(0)):
                    break
                data = data[os.write(self._fd, data if self._is_file else data[:ATOMIC_BYTES]) :]
        except BlockingIOError:
            pass
        except OSError:  # closed, or the disk is full
            self._fd = -1
        self.dropped_bytes += len(data)

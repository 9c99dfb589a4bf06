"""Signals as something to wait for: they wake the loop and are then taken one by one, in order."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

FORWARDED = (signal.SIGUSR1, signal.SIGUSR2)
ENDING = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """Collects signals from its creation on; of the main thread, once per process.

    SIGHUP is taken and dropped: a terminal that closes is no reason to end work. It is not ignored in the kernel's
    sense, because the child would inherit that.
    """

    def __init__(self) -> None:
        self._seen: list[int] = []
        self.fd, wake = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (*FORWARDED, *ENDING, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, self._note)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)  # they waited since the program began, see `zipapp`

    def wait(self, longest_ms: float, *descriptors: int) -> None:
        """Wait for a signal, or until one of the descriptors can be read."""
        poll = select.poll()
        for descriptor in (self.fd, *descriptors):
            poll.register(descriptor, select.POLLIN)
        poll.poll(longest_ms)

    def take(self) -> list[int]:
        """Signals since the last call, without SIGCHLD and SIGHUP."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.fd, 4096)
        seen, self._seen = self._seen, []
        return seen

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if number in FORWARDED or number in ENDING:
            self._seen.append(number)

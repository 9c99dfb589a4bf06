"""Starts the sampler, watches it, and starts it again without the GPU that it hangs on."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import remuda
from remuda.node.recorder.sampler import HELLO, NOBODY, PROGRESS, Heartbeat, Order
from remuda.wire.spool import records

if TYPE_CHECKING:
    from collections.abc import Mapping

EXTRA_S = 2.0
"""A sampler that gives no sign of life for this and three periods hangs."""
BEGIN_S = 60.0
"""The same before it has found the GPUs: a driver that is loaded anew takes its time."""
BEGIN_GPU_S = 10.0
"""The same while it opens one of them: the driver is there by then, and the other GPUs wait for this one."""
STARVED_TIMES = 10
"""For one that waits for a CPU, or was stopped, the limit is so many times as long: it does not hang in the driver."""
LATE_US = 1_000_000
"""Between two looks; after a longer pause this process was held up itself, and the other has a new limit."""
MAX_STUCK, MAX_DEATHS = 2, 10
_WORKER = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from remuda.node.recorder.sampler import main; sys.exit(main(sys.argv[2]))"
)


class Hello(NamedTuple):
    """What a sampler says first: see `sampler.HELLO`."""

    told: dict[str, object]


class Frame(NamedTuple):
    """The payload of a second."""

    payload: bytes


class SamplerSilent(NamedTuple):
    """It hung on the GPU of this index, and was killed; -1: on none."""

    gpu: int
    is_stuck: bool
    """It could not be killed."""


class Died(NamedTuple):
    """It ended by itself or was killed by somebody."""

    code: int


class Sampling:
    """One sampler after the other.

    Args:
        interval_us: between rounds.
        visible: variables that say which GPUs.
        begin_s: how long it may take to find the GPUs.
    """

    def __init__(self, interval_us: int, visible: Mapping[str, str], begin_s: float = BEGIN_S) -> None:
        self._interval_us, self._visible, self._begin_s = interval_us, dict(visible), begin_s
        self.only: list[int] = []
        """Indices of the recording's GPUs, once they are known."""
        self.names: dict[str, str] = {}
        """See `Order.names`."""
        self.skipped: list[int] = []
        self._shared = os.memfd_create("remuda-progress") if hasattr(os, "memfd_create") else _unlinked()
        os.ftruncate(self._shared, PROGRESS.size)
        self._progress = Heartbeat(self._shared)
        self._process: subprocess.Popen[bytes] | None = None
        self._stuck: list[subprocess.Popen[bytes]] = []
        """Kept: they may end some day."""
        self._buffer = b""
        self._is_begun = False
        self._looked = self._held_up = 0
        """µs on the monotonic clock: of the last look, and of the last that came late."""

    @property
    def pipe(self) -> int:
        """What is polled for its words; -1 without one."""
        process = self._process
        return -1 if process is None or process.stdout is None else process.stdout.fileno()

    @property
    def stuck(self) -> int:
        """How many could not be killed."""
        return len(self._stuck)

    def start(self) -> None:
        """Begin.

        Raises:
            OSError: there are no processes left.
        """
        order = Order(
            self._interval_us, self._visible, self.only, self.skipped, self._shared, os.getpid(), self.names
        )  # fmt: skip
        home = str(Path(remuda.__file__).parent.parent)  # a directory, or the zipapp
        self._progress.tell(NOBODY)
        self._buffer, self._is_begun = b"", False
        self._process = subprocess.Popen(
            # With `site`: run from an installed package, not as one file, it finds the driver's binding there.
            [sys.executable, "-I", "-c", _WORKER, home, json.dumps(order._asdict())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            pass_fds=[self._shared],
            start_new_session=True,
        )
        os.set_blocking(self.pipe, False)

    def events(self) -> list[Hello | Frame | SamplerSilent | Died]:
        """What has happened since the last time; after the last two, nothing runs until `start`."""
        process = self._process
        if process is None:
            return []
        found = self._take()
        code = process.poll()
        if code is not None:
            found += self._take()  # what it wrote before it ended
            self._close()
            return [*found, Died(code)]
        now = time.monotonic_ns() // 1000
        self._held_up = now if now - self._looked > LATE_US else self._held_up
        self._looked = now
        at, index = self._progress.read()
        before_s = self._begin_s if index == NOBODY else min(self._begin_s, BEGIN_GPU_S)
        limit_s = EXTRA_S + 3 * self._interval_us / 1e6 if self._is_begun else before_s
        silent_s = (now - max(at, self._held_up)) / 1e6
        if silent_s <= limit_s or (silent_s <= limit_s * STARVED_TIMES and is_starved(process.pid)):
            return found
        return [*found, SamplerSilent(index, is_stuck=not self._kill())]

    def end(self, within_s: float = 2.0) -> list[Hello | Frame | SamplerSilent | Died]:
        """Tell it to end, and wait for its last second."""
        process = self._process
        if process is None:
            return []
        process.send_signal(signal.SIGTERM)
        until = time.monotonic() + within_s
        found: list[Hello | Frame | SamplerSilent | Died] = []
        while time.monotonic() < until and process.poll() is None:
            poll = select.poll()
            poll.register(self.pipe, select.POLLIN)
            poll.poll(20)
            found += self._take()
        found += self._take()
        self._kill()
        return found

    def _take(self) -> list[Hello | Frame | SamplerSilent | Died]:
        with suppress(BlockingIOError):
            while True:
                piece = os.read(self.pipe, 1 << 20)
                if not piece:
                    break
                self._buffer += piece
        whole, used = records(self._buffer)
        self._buffer = self._buffer[used:]
        found: list[Hello | Frame | SamplerSilent | Died] = []
        for kind, payload in whole:
            self._is_begun = True
            found.append(Hello(json.loads(payload)) if kind == HELLO else Frame(payload))
        return found

    def _kill(self) -> bool:
        """Kill it; False when the kernel keeps it, as it does in a call of the driver that does not come back."""
        process = self._process
        if process is None:
            return True
        process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
        if process.returncode is None:
            self._stuck.append(process)
        self._close()
        return process.returncode is not None

    def _close(self) -> None:
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None


def is_starved(pid: int) -> bool:
    """Whether a process would run if it were let: it is ready to, or was stopped."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1]
    except OSError:
        return False
    return state in (b"R", b"T", b"t")


def _unlinked() -> int:
    import tempfile

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())

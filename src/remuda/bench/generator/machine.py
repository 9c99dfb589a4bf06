"""What kept the client itself from being on time: its CPU, a limit of its control group, other work on the machine."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from remuda.bench.judging.measures import rank

if TYPE_CHECKING:
    from collections.abc import Sequence

_ABSOLUTE: Final = 1  # TFD_TIMER_ABSTIME
_GROUPS: Final = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Pressure:
    """Counters of the machine at one moment; -1 where it does not say.

    Attributes:
        throttled_us: how long the own control group was held back by its limit, microseconds.
        waited_us: how long some process waited for a CPU, microseconds (PSI).
    """

    throttled_us: float = -1.0
    waited_us: float = -1.0

    def since(self, before: Pressure) -> Pressure:
        """What was added."""
        return Pressure(
            *(
                now - then if now >= 0 and then >= 0 else -1.0
                for now, then in ((self.throttled_us, before.throttled_us), (self.waited_us, before.waited_us))
            )
        )


def pressure() -> Pressure:
    """The counters now."""
    return Pressure(_throttled(), _waited())


def timer(first_ns: int, each_ns: int) -> int:
    """A descriptor to be read at a moment of CLOCK_MONOTONIC and each `each_ns` from then on.

    It comes as exactly as data of a socket does; a timer of an event loop has whole milliseconds. `os` has it from
    Python 3.13 on.

    Raises:
        OSError: there is no descriptor left.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    fd = int(libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC))
    times = struct.pack("@4l", *divmod(each_ns, 1_000_000_000), *divmod(first_ns, 1_000_000_000))
    if fd < 0 or libc.timerfd_settime(fd, _ABSOLUTE, times, None):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return fd


def lags_of(lags: Sequence[float]) -> dict[str, float]:
    """Percentiles of how late an event loop was, seconds; the largest also stands for one long stop among many."""
    ordered = sorted(lags) or [0.0]
    return {"p50": rank(ordered, 0.5), "p99": rank(ordered, 0.99), "max": ordered[-1]}


def cores() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def _throttled() -> float:
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = _GROUPS / controllers if controllers else _GROUPS
        for folder in (root / path.lstrip("/"), root):
            for item in _read(folder / "cpu.stat").splitlines():
                name, _, value = item.partition(" ")
                if name in ("throttled_usec", "throttled_time"):
                    with contextlib.suppress(ValueError):
                        return float(value) / (1000.0 if name == "throttled_time" else 1.0)
    return -1.0


def _waited() -> float:
    for line in _read(Path("/proc/pressure/cpu")).splitlines():
        if line.startswith("some "):
            with contextlib.suppress(ValueError):
                return float(line.rpartition("total=")[2])
    return -1.0


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""

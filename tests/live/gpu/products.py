"""The load: matrix products of one size, as many as take some milliseconds."""

from __future__ import annotations

import importlib
import time
from typing import Any

SIZE, SIZE_ON_CPU = 8192, 256
BURST_S = 0.02


class Products:
    """Products on a device of torch; without torch, where a test pretends, of numpy.

    Args:
        device: `cuda` or `cpu`.
    """

    def __init__(self, device: str) -> None:
        self._wait: Any = None
        self._times = 1
        size = SIZE if device == "cuda" else SIZE_ON_CPU
        try:
            torch: Any = importlib.import_module("torch")
        except ImportError:
            if device == "cuda":
                raise
            numpy: Any = importlib.import_module("numpy")
            self._a = self._b = numpy.ones((size, size), "float32")
            self._multiply: Any = numpy.matmul
        else:
            kind = torch.bfloat16 if device == "cuda" else torch.float32
            self._a, self._b = (torch.randn(size, size, device=device, dtype=kind) for _ in range(2))
            self._multiply = torch.matmul
            if device == "cuda":
                self._wait = torch.cuda.synchronize
        self.run(3)
        self._times = max(1, round(BURST_S / (self.run(10) / 10)))

    def run(self, count: int) -> float:
        """So many products; seconds until they are there."""
        begin = time.perf_counter()
        for _ in range(count):
            self._multiply(self._a, self._b)
        if self._wait is not None:
            self._wait()
        return time.perf_counter() - begin

    def until(self, when: float) -> int:
        """Products until this time of the monotonic clock; how many."""
        done = 0
        while time.monotonic() < when:
            self.run(self._times)
            done += self._times
        return done

    def count_for(self, seconds: float) -> int:
        """How many products take about so long."""
        self.until(time.monotonic() + seconds)
        done, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < seconds / 2:
            self.run(self._times)
            done += self._times
        return max(1, round(done * seconds / (time.perf_counter() - begin)))

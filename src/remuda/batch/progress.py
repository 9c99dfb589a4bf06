"""How far a job is: counted as it goes, written beside its checkpoint, read by whoever asks."""

from __future__ import annotations

import dataclasses
import os
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from remuda.base.disk.files import write_atomic
from remuda.wire.fields import known

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_WINDOW_S = 15.0


@dataclass(frozen=True)
class Progress:
    """A moment of a running job."""

    name: str
    state: str
    """reading, running, waiting (the endpoint is away), writing, done, stopped, failed."""
    done: int
    """Rows finished, those of earlier runs and rows with errors included."""
    total: int | None
    """Rows of the input, None while unknown."""
    skipped: int
    """Rows that earlier runs had finished."""
    failed: int
    """Rows that ended with an error."""
    rows_per_s: float
    """Over the last 15 seconds."""
    tokens_per_s: float
    """Generated, over the last 15 seconds."""
    prompt_tokens: int
    completion_tokens: int
    in_flight: int
    concurrency: int
    """The limit in force."""
    retries: int
    """Tries that failed and were repeated."""
    eta_s: float | None
    elapsed_s: float
    note: str = ""
    """Why it waits or failed, empty when all is well."""
    updated: float = 0.0
    """Seconds since the epoch."""
    pid: int = 0

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Progress:
        """What was written; fields of other versions are passed over."""
        return cls(**known(cls, data))


@dataclass
class RowCounters:
    """What a run has done so far; changed in place by the pipeline."""

    answered: int = 0
    rejected: int = 0
    retries: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0

    @property
    def finished(self) -> int:
        """Rows of this run that are done with."""
        return self.answered + self.rejected


class Rates:
    """Rows and tokens per second over a sliding window."""

    def __init__(self, now: float) -> None:
        self._samples: deque[tuple[float, int, int]] = deque([(now, 0, 0)])

    def add(self, now: float, rows: int, tokens: int) -> tuple[float, float]:
        """Take totals at `now`; returns rows/s and tokens/s over the window."""
        self._samples.append((now, rows, tokens))
        while len(self._samples) > 2 and self._samples[0][0] < now - _WINDOW_S:
            self._samples.popleft()
        start, first_rows, first_tokens = self._samples[0]
        elapsed = max(now - start, 1e-6)
        return (rows - first_rows) / elapsed, (tokens - first_tokens) / elapsed


def write_progress(folder: Path, progress: Progress) -> None:
    """Write `progress.json`, whole or not at all; a full disk is not this file's to report."""
    stamped = dataclasses.replace(progress, updated=time.time(), pid=os.getpid())
    try:
        write_atomic(folder / "progress.json", orjson.dumps(stamped), sync=False)
    except OSError:
        return

"""What Ray says of its nodes and GPUs, read from the program that asks it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

    from remuda.wire.spread import Spread

NEVER = float("inf")
LATE_S = 4.0
"""The answers are read much more often, unless this program stands still."""
FIRST_WITH_TOKEN = (2, 52)


def guard() -> dict[str, str]:
    """Environment with which all of one Ray ask each other for a token that nobody else has, in images, too."""
    words = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    return {
        prefix + name: value for prefix in ("", "APPTAINERENV_", "SINGULARITYENV_") for name, value in words.items()
    }


def _asks_for_a_token(version: str) -> bool:
    found = re.match(r"(\d+)\.(\d+)", version)
    return found is not None and (int(found[1]), int(found[2])) >= FIRST_WITH_TOKEN


class RayView:
    """The newest answer, and since when Ray is well or not.

    Args:
        asker: prints one JSON line `{"nodes": n, "gpus": n}` for each answer.
        spread: what is expected.
        now: seconds, on the clock of all other calls.
    """

    def __init__(self, asker: subprocess.Popen[bytes], spread: Spread, now: float) -> None:
        self.fd = asker.stdout.fileno() if asker.stdout is not None else -1
        os.set_blocking(self.fd, False)
        self.sentence = "Ray has not answered yet"
        self.unguarded = ""
        """The version of a Ray that cannot ask for a token; empty for one that can, and while nothing is known."""
        self._spread = spread
        self._heard_at = self._read_at = now
        self._well_since = NEVER
        self._ill_since = now
        self._buffer = b""

    def read(self, now: float) -> None:
        """Take in what has come."""
        gap_s, self._read_at = now - self._read_at, now
        if gap_s > LATE_S:  # nobody asked in that time, so nothing is known of it
            self._heard_at += gap_s
            self._ill_since += gap_s
        with contextlib.suppress(BlockingIOError):
            self._buffer += os.read(self.fd, 65536)
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            self.hear(line, now)
        limit = self._spread.probe_timeout_s + self._spread.probe_interval_s
        if now - self._heard_at > limit and self._well_since < NEVER:
            self._ill(f"Ray gave no answer for {now - self._heard_at:.0f} s", self._heard_at)

    def hear(self, line: bytes, now: float) -> None:
        """Take in one line; anything that is no answer is passed over."""
        try:
            answer = json.loads(line)
            nodes, gpus = int(answer["nodes"]), float(answer["gpus"])
            version = str(answer.get("version", "?"))
        except (ValueError, KeyError, TypeError):
            return
        self._heard_at = now
        self.unguarded = "" if _asks_for_a_token(version) else version or "unknown"
        self.sentence = f"Ray has {nodes} of {self._spread.nodes} nodes and {gpus:g} of {self._spread.gpus} GPUs"
        if nodes >= self._spread.nodes and gpus >= self._spread.gpus:
            self._well_since = min(self._well_since, now)
            self._ill_since = NEVER
        else:
            self._ill(self.sentence, now)

    def _ill(self, why: str, since: float) -> None:
        self.sentence = why
        self._well_since = NEVER
        self._ill_since = min(self._ill_since, since)

    def is_well_for(self, seconds: float, now: float) -> bool:
        """Whether all nodes and GPUs have been there for so long."""
        return self._well_since < NEVER and now - self._well_since >= seconds

    def ill_for(self, now: float) -> float:
        """Seconds since they are not all there; 0 when they are."""
        return max(0.0, now - self._ill_since) if self._ill_since < NEVER else 0.0

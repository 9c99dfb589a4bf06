"""What a server that starts is said to do: its last line of output beside what its probe says."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from remuda.wire.report import LOG_SAID

if TYPE_CHECKING:
    from remuda.node.child.streams import Streams

EVERY_S = 3.0
"""A new line is told at most so often, so that an engine that prints much makes no flood of reports."""
MAX_CHARS = 120
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


def last_line(text: str) -> str:
    """The last line with something in it, as a person would see it: of a progress bar its last state. Pure."""
    for line in reversed(text.splitlines()):  # it also cuts at carriage returns
        plain = "".join(char for char in _ESCAPES.sub("", line) if char.isprintable()).strip()
        if plain:
            return plain if len(plain) <= MAX_CHARS else plain[: MAX_CHARS - 1] + "…"
    return ""


def words(reason: str, line: str, used: int, limit: int) -> str:
    """One sentence about a child that is not ready yet. Pure.

    Args:
        reason: what its last probe said, or why it was started again.
        line: its last line of output.
        used: restarts that are used up.
        limit: how many there are.
    """
    again = f"restart {used} of {limit}" if used and "restart " not in reason else ""
    return "; ".join(part for part in (again, reason or "loading") if part) + (f"{LOG_SAID}{line}" if line else "")


class LastLine:
    """The last line of output, taken anew only now and then."""

    def __init__(self) -> None:
        self._line = ""
        self._at = float("-inf")

    def of(self, output: Streams | None, now: float) -> str:
        """The line to tell now; empty while there is no output."""
        if output is None:
            self._line, self._at = "", float("-inf")
        elif now >= self._at + EVERY_S:
            self._line, self._at = last_line(output.tail(1000)), now
        return self._line

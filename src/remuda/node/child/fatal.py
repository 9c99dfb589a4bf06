"""A document's own regular expressions over what a server prints: each alone, and none for longer than its budget.

One that backtracks without end (`(a+)+$`) would keep its program from everything else. Python's engine looks at signals
while it searches: a timer of CPU time, which a busy machine makes no shorter, ends it. For the main thread only.
"""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

from remuda.node.script.scan import BURST_S, MAX_SCANNED

if TYPE_CHECKING:
    from collections.abc import Sequence


class _TooLong(Exception):
    """The budget of a search is spent."""


def first(pattern: re.Pattern[bytes], lines: Sequence[bytes]) -> int | None:
    """The number of the first line with it, `len(lines)` without one; None where `BURST_S` of CPU time was too short.

    Only the beginning of a long line counts.
    """

    def end(*_: object) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGVTALRM, end)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, BURST_S)
        try:
            found = (at for at, line in enumerate(lines) if pattern.search(line[:MAX_SCANNED]))
            return next(found, len(lines))
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except _TooLong:
        return None
    finally:
        signal.signal(signal.SIGVTALRM, before)


def is_slow(pattern: str) -> bool:
    """Whether a line made of its own letters and words, again and again, takes it longer than `BURST_S` of CPU time.

    Raises:
        re.error: it is not a regular expression over bytes.
    """
    parts = {*re.findall(r"\w+", pattern), *(one for one in pattern if one not in "()[]{}|*+?^$\\"), "a", "0", " "}
    lines = [(part.encode() * MAX_SCANNED)[: MAX_SCANNED - 1] + b"\0" for part in sorted(parts)]
    return any(first(re.compile(pattern.encode()), [line]) is None for line in lines)

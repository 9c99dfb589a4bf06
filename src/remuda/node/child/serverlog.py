"""Looks at what a server prints: lines that tell of broken hardware make its restart in place futile.

What a healthy server prints proves nothing (it may print what it was asked), so a fault counts only if the server ends
or falls ill soon after it.
"""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING, Callable

from remuda.node.child.fatal import first
from remuda.node.gpu import gpus
from remuda.node.script.scan import BURST_S, MAX_SCANNED, Faults, Scanner
from remuda.wire.fault import MAX_LINE, NODE, Fault

if TYPE_CHECKING:
    from remuda.node.journal import NodeLog
    from remuda.wire.child import ChildSpec

GRACE_S = 60.0
"""So long an ill server may take to end by itself, and a healthy one to prove that it was nothing."""


class ServerLog:
    """The faults that one server has told of since it was started.

    Args:
        spec: the document.
        journal: the node program's log.
        now: the clock of all calls.
    """

    def __init__(self, spec: ChildSpec, journal: NodeLog, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._has_gpus = gpus.are_given({**os.environ, **spec.env})
        self._journal = journal
        self.faults = Faults()
        self._at = 0.0
        """When the newest came, seconds."""
        self._scanner = Scanner({})
        self._fatal = [re.compile(one.encode()) for one in spec.fatal_lines]
        self._rest = b""
        self.fatal = ""
        """The line of which its document says that the server never comes up after it."""

    def starts(self, _now: float) -> None:
        """The server is about to be started (again)."""
        self.faults, self._scanner = Faults(), Scanner({})
        self._rest, self.fatal = b"", ""

    def took(self, _stream: int, data: bytes) -> None:
        """It printed `data`."""
        self._note(self._scanner.feed(data))
        if self._fatal and not self.fatal:
            self._seek(data)

    def _seek(self, data: bytes) -> None:
        """Look for a fatal line. A pattern that takes long is given up."""
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[:MAX_SCANNED]
        hits = {pattern: first(pattern, lines) for pattern in self._fatal}
        for pattern in [pattern for pattern, at in hits.items() if at is None]:
            self._fatal.remove(pattern)
            told = pattern.pattern.decode()
            self._journal.say("warning", f"{told!r} is looked for no longer: a search took {BURST_S:g} s")
        at = min((at for at in hits.values() if at is not None), default=len(lines))
        self.fatal = b"".join(lines[at : at + 1])[:MAX_LINE].decode("utf-8", "replace").strip()

    def answered(self, now: float) -> None:
        """It answered its probe well."""
        if self.faults.all and now - self._at > GRACE_S:
            self.faults = Faults()

    def broken(self, now: float, *, ill: bool) -> str:
        """The line that tells of broken hardware, of a server that has ended or, if `ill`, had time enough to do so."""
        if not ill:
            self._note(self._scanner.finish())  # its last line may have no end
        elif now - self._at <= GRACE_S:
            return ""
        return next((fault.line or fault.name for fault in self.faults.all if fault.kind == NODE), "")

    def _note(self, found: list[Fault]) -> None:
        if self.faults.note(found, self._journal, has_gpus=self._has_gpus):
            self._at = self._now()

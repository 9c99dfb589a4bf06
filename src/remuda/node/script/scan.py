"""Finds lines that tell of faults in what a script prints: cheap while it runs, a last look when it has ended.

`faults_in` is pure. `Scanner` cuts a stream into lines, looks only at pieces in which a telling word stands, and spends
at most a share of the time, so that a script that prints without end is not held up.
"""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Callable

from remuda.node.script.patterns import ANCHORS, IGNORED, LINK_XIDS, PATTERNS, RECOVERY, XID_LINE, XIDS
from remuda.wire.fault import AMBIGUOUS, APPLICATION, INFO, MAX_LINE, NODE, NODE_BUSY, RESOURCE, TRANSIENT, Fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from remuda.node.journal import NodeLog

MAX_FAULTS = 20
NEEDS_GPUS = ("cuda-100", "driver-mismatch")
"""Said on every machine without a GPU."""
MAX_SCANNED = 2000
"""Bytes of a line that are looked at."""
SHARE = 0.2
"""Of the time that may be spent on looking."""
BURST_S = 0.5
"""Of looking that may be saved up while little is printed."""
PIECE = 1 << 16

_PCI = re.compile(
    rb"\b(?:PCI:)?([0-9a-f]{4}(?:[0-9a-f]{4})?):([0-9a-f]{2}):([0-9a-f]{2})(?:\.[0-9a-f])?\b", re.IGNORECASE
)
_UUID = re.compile(rb"\b(?:GPU|MIG)-[0-9a-f]{8}-[0-9a-f-]{27}\b", re.IGNORECASE)
_INDEX = re.compile(rb"\bcuda:(\d{1,2})\b|\bGPU[ #](\d{1,2})\b|\bdevice[ =:](\d{1,2})\b", re.IGNORECASE)
_SEVERITY = (NODE, NODE_BUSY, RESOURCE, AMBIGUOUS, APPLICATION, TRANSIENT, INFO)
_CASCADES = frozenset(pattern.name for pattern in PATTERNS if pattern.is_cascade)
_WORTH_A_LOOK = re.compile(rb"|".join(re.escape(anchor) for anchor in ANCHORS))


def faults_in(lines: Iterable[bytes], at: float = 0.0, addresses: Mapping[str, str] | None = None) -> list[Fault]:
    """The faults that lines tell of, one for each name and GPU, in the order of the lines. Pure.

    Args:
        lines: without their newlines.
        at: time to note, seconds since the epoch.
        addresses: PCI address of each GPU by the index that the script sees it under, where known.
    """
    found: dict[tuple[str, str], Fault] = {}
    for line in lines:
        fault = fault_in(line[:MAX_SCANNED], at, addresses or {})
        if fault is not None:
            found.setdefault((fault.name, fault.device), fault)
    return list(found.values())


def fault_in(line: bytes, at: float, addresses: Mapping[str, str]) -> Fault | None:
    """The fault that one line tells of, or None. Pure."""
    if IGNORED.search(line):
        return None
    named = _xid(line) or next(((item.name, item.kind) for item in PATTERNS if item.regex.search(line)), None)
    if named is None:
        return None
    device = device_in(line)
    text = line.decode("utf-8", "replace").strip()[:MAX_LINE]
    return Fault(kind=named[1], name=named[0], line=text, device=addresses.get(device, device), at=at)


def device_in(line: bytes) -> str:
    """The GPU that a line names: PCI address `0000:3b:00`, else UUID, else index, else empty."""
    address = _PCI.search(line)
    if address is not None:
        domain, bus, slot = (int(part, 16) for part in address.groups())
        return f"{domain:04x}:{bus:02x}:{slot:02x}"
    uuid = _UUID.search(line)
    if uuid is not None:
        return uuid.group().decode()
    index = _INDEX.search(line)
    return next(part for part in index.groups() if part is not None).decode() if index is not None else ""


def root_cause(faults: Sequence[Fault]) -> Fault | None:
    """The fault to name when one shall stand for all: echoes of other ranks last, the gravest kind, then the oldest."""
    return min(faults, key=lambda fault: (fault.name in _CASCADES, _SEVERITY.index(fault.kind)), default=None)


def _xid(line: bytes) -> tuple[str, str] | None:
    match = XID_LINE.search(line)
    if match is None:
        return None
    number, rest = int(match.group(2)), match.group(3)
    kind = XIDS[number].kind if number in XIDS else INFO
    if number == 154:  # «recovery action changed»: the text is what counts
        kind = next((kind for words, kind in RECOVERY if words.search(rest)), INFO)
    if number in LINK_XIDS and re.search(rb"non-?fatal", rest, re.IGNORECASE):
        kind = INFO
    return f"xid-{number}", kind


class Faults:
    """Faults so far: each name and GPU once, oldest first, echoes given up first when there are too many."""

    def __init__(self) -> None:
        self.all: list[Fault] = []

    def add(self, new: Iterable[Fault]) -> list[Fault]:
        """Take in what is new; that is returned."""
        added = []
        for fault in new:
            if any((fault.name, fault.device) == (known.name, known.device) for known in self.all):
                continue
            if len(self.all) >= MAX_FAULTS and not self._make_room(fault):
                continue
            self.all.append(fault)
            added.append(fault)
        return added

    def note(self, found: list[Fault], journal: NodeLog, *, has_gpus: bool) -> list[Fault]:
        """The same, and tell of what is new. Where no GPU was given, that there is none is no fault."""
        if not has_gpus:
            found = [replace(item, kind=INFO) if item.name in NEEDS_GPUS else item for item in found]
        added = self.add(found)
        for fault in added:
            journal.say("warning", f"{fault.kind} fault {fault.name} {fault.device}: {fault.line}")
        return added

    def _make_room(self, fault: Fault) -> bool:
        rank = _SEVERITY.index(fault.kind)
        lesser = [known for known in self.all if _SEVERITY.index(known.kind) > rank]
        if lesser:
            self.all.remove(max(lesser, key=lambda known: (known.name in _CASCADES, _SEVERITY.index(known.kind))))
        return bool(lesser)


class Scanner:
    """Looks at one stream as it comes.

    Args:
        addresses: see `faults_in`.
        clock: seconds, for the budget.
    """

    def __init__(self, addresses: Mapping[str, str], clock: Callable[[], float] = time.perf_counter) -> None:
        self.skipped_bytes = 0
        """Not looked at, because the script printed more than there was time for."""
        self._addresses = addresses
        self._clock = clock
        self._rest = b""
        self._allowed = BURST_S
        self._at = clock()

    def feed(self, data: bytes) -> list[Fault]:
        """Faults in the lines that `data` completes."""
        begin = self._clock()
        self._allowed = min(BURST_S, self._allowed + (begin - self._at) * SHARE)
        self._at = begin
        if self._allowed <= 0:
            self.skipped_bytes += len(data)
            self._rest = b""
            return []
        end = data.rfind(b"\n") + 1
        piece = self._rest + data[:end]
        self._rest = data[end:] if end else (self._rest + data)[-MAX_SCANNED:]
        found = _look(piece, self._addresses) if end else []
        self._allowed -= self._clock() - begin
        return found

    def finish(self) -> list[Fault]:
        """Faults in the last line, if it had no end."""
        rest, self._rest = self._rest, b""
        return _look(rest, self._addresses)


def _look(piece: bytes, addresses: Mapping[str, str]) -> list[Fault]:
    low = piece.lower()
    if not any(anchor in low for anchor in ANCHORS):
        return []
    lines = []
    at = 0
    while True:
        hit = _WORTH_A_LOOK.search(low, at)
        if hit is None:
            break
        begin = low.rfind(b"\n", 0, hit.start()) + 1
        end = low.find(b"\n", hit.start())
        end = len(low) if end < 0 else end
        lines.append(piece[begin:end])
        at = end
    return faults_in(lines, time.time(), addresses)

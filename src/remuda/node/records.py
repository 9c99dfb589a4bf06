"""What is left in the run directory: `report.json`, `events.jsonl`, `exit.json`. A full disk disturbs nobody."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from remuda.node.capped import CappedFile
from remuda.node.claim import sync_directory

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.wire.exit import ExitRecord
    from remuda.wire.report import Report

REPORT, EVENTS, EXIT, LOG = "report.json", "events.jsonl", "exit.json", "child.log"
EVENTS_MAX_BYTES = 4 << 20


class Records:
    """Writer of one allocation's files; the claim makes it the only one."""

    def __init__(self, run_dir: Path) -> None:
        self._dir = run_dir
        self._events = CappedFile(run_dir / EVENTS, EVENTS_MAX_BYTES)

    def report(self, report: Report, *, changed: bool) -> None:
        """Replace `report.json`; a change of state is an event too, and survives a crash of the machine."""
        line = report.to_json()
        self._replace(REPORT, line + "\n", sync=False)
        if changed:
            self._events.append(line.encode() + b"\n", sync=True)

    def exit(self, record: ExitRecord) -> bool:
        """Write the last word so that it survives a crash of the machine; False when it could not be written."""
        return self._replace(EXIT, record.to_json() + "\n", sync=True)

    def _replace(self, name: str, text: str, *, sync: bool) -> bool:
        draft = self._dir / f".{name}.draft"
        try:
            with draft.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                if sync:
                    os.fsync(file.fileno())
            draft.replace(self._dir / name)
            if sync:
                sync_directory(self._dir)
        except OSError:
            return False
        return True

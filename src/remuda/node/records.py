"""What is left in the run directory: `report.json`, `events.jsonl`, `exit.json`. A full disk disturbs nobody."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.node import private
from remuda.node.capped import CappedFile
from remuda.node.claim import exit_name, sync_directory
from remuda.wire.exit import seal
from remuda.wire.report import KEY_FILE, Report

if TYPE_CHECKING:
    from remuda.wire.child import Away
    from remuda.wire.exit import ExitRecord

REPORT, EVENTS, LOG, ERRORS, HEARTBEAT = "report.json", "events.jsonl", "child.log", "child.err", "heartbeat"
EVENTS_MAX_BYTES = 4 << 20
WHY = "spread.why"
"""Why a replica over several nodes has ended, if not by its server."""

WARNING = "spread.warning"
"""What its user should know of a replica over several nodes although it serves."""


def warning(run_dir: Path) -> str:
    """What `WARNING` says; empty without it."""
    try:
        return (run_dir / WARNING).read_text(encoding="utf-8")
    except OSError:
        return ""


def take_why(run_dir: Path) -> str:
    """What `WHY` says, once; empty without it."""
    try:
        text = (run_dir / WHY).read_text(encoding="utf-8")
        (run_dir / WHY).unlink()
    except OSError:
        return ""
    return text


class Records:
    """Writer of one allocation's files; the claim makes it the only one."""

    def __init__(self, run_dir: Path, start: int = 0, away: Away | None = None) -> None:
        self._dir = run_dir
        self._away = away
        self.key_file = Path(away.key_file) if away is not None else run_dir / KEY_FILE
        """With what it reports."""
        self._start = start
        self._is_mute = False
        self._events = CappedFile(run_dir / EVENTS, EVENTS_MAX_BYTES)

    def report(self, report: Report, *, changed: bool) -> None:
        """Replace `report.json`; a change of state is an event too, and survives a crash of the machine."""
        if self._is_mute:
            return
        line = report.to_json()
        self._replace(REPORT, line + "\n", sync=False)
        if changed:
            self._events.append(line.encode() + b"\n", sync=True)

    def exit(self, record: ExitRecord) -> bool:
        """Write the last word so that it survives a crash of the machine; False when it could not be written."""
        if self._away is not None:
            with suppress(OSError):  # the exit code says it, too
                key = self.key_file.read_text(encoding="utf-8").strip()
                Path(self._away.last_word).write_bytes(seal(record, key))
        return self._replace(exit_name(self._dir, self._start), record.to_json() + "\n", sync=True)

    def heartbeat(self, at: float) -> None:
        """Replace `heartbeat`: seconds since the epoch, a plain number."""
        if not self._is_mute:
            self._replace(HEARTBEAT, f"{at:.3f}\n", sync=False)

    def mute(self) -> None:
        """Write no more but the last word: the files are another's now."""
        self._is_mute = True

    def last_seq(self) -> int:
        """Number of the newest report that an earlier start left here, 0 without one."""
        try:
            return Report.from_json((self._dir / REPORT).read_text(encoding="utf-8")).seq
        except (OSError, ValueError):
            return 0

    def _replace(self, name: str, text: str, *, sync: bool) -> bool:
        try:
            private.write_whole(self._dir / name, text, sync=sync)
            if sync:
                sync_directory(self._dir)
        except OSError:
            return False
        return True

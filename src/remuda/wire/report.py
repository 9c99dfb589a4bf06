"""What the program on a node says: the latest report wins, so a lost one does no harm.

Over TCP it is one JSON object a line, the first line being `{"key": ...}`; in the run directory it is `report.json`,
replaced whole. Python 3.9, standard library only.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any

STATES = ("starting", "ready", "unhealthy", "backoff", "stopping", "exited")
MAX_LINE_BYTES = 65536


@dataclass(frozen=True)
class Report:
    """State of one supervised child at one moment."""

    token: str
    attempt: int
    seq: int
    """Rises by one with every report of this allocation; a lower one than seen is stale."""
    at: float
    """Seconds since the epoch on the node's clock."""
    state: str
    """One of `STATES`. `backoff`: ended, will be started again in place."""
    node: str = ""
    url: str = ""
    """`http://host:port` of the child, empty while unknown."""
    pid: int = 0
    http_status: int = 0
    """Of the last probe; 0 when there was no answer."""
    restarts: int = 0
    """In place, within this allocation."""
    exit_code: int | None = None
    """Of the child when it last ended by itself; None while it never did."""
    signal: int = 0
    """That ended the child, 0 for none."""
    reason: str = ""
    """One sentence: why it is in this state."""
    metrics: dict[str, float] = field(default_factory=dict)
    """`running`, `waiting` (requests), `prompt_tokens`, `generated_tokens` (totals), where the child tells."""

    def to_json(self) -> str:
        """One line, without the newline."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Report:
        """Read one report; fields of newer versions are ignored.

        Raises:
            ValueError: not a report.
        """
        data: Any = json.loads(text)
        if not isinstance(data, dict):
            raise ValueError("a report is a JSON object")  # noqa: TRY004 - callers catch ValueError
        known = {item.name for item in fields(cls)}
        try:
            report = cls(**{name: value for name, value in data.items() if name in known})
        except TypeError as error:
            raise ValueError(str(error)) from error
        checks = (
            isinstance(report.token, str) and report.token,
            isinstance(report.seq, int) and isinstance(report.attempt, int),
            isinstance(report.at, (int, float)) and report.state in STATES,
            isinstance(report.url, str) and isinstance(report.reason, str) and isinstance(report.metrics, dict),
        )
        if not all(checks):
            raise ValueError("a field of the report has a wrong type or value")
        return report

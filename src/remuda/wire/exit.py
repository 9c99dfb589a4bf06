"""How an allocation ended: `exit.json`, and the exit codes of the node program.

Python 3.9, standard library only.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

#: Exit codes of the node program itself. A child's own code (1 to 125) is passed on when the child is not restarted.
GAVE_UP = 80
"""The child failed more often than `max_restarts` allows."""
FENCED = 81
"""Another copy of this allocation holds the claim; this one did nothing."""
CANNOT_START = 82
"""The program could not be started at all (not found, not executable, secret missing)."""
BAD_SPEC = 83
"""The child document could not be read."""
HUNG = 84
"""The child never became healthy, or stopped being so, and restarts are off or used up."""
STOPPED = 85
"""Ended because it was asked to (SIGTERM or SIGINT)."""
PORT_TAKEN = 86
"""The fixed port is in use by somebody else."""

MEANINGS = {
    0: "the child ended by itself, successfully",
    GAVE_UP: "the child failed more often than its restarts allow",
    FENCED: "another copy of this allocation was already running",
    CANNOT_START: "the program could not be started",
    BAD_SPEC: "the child document could not be read",
    HUNG: "the child did not become or stay healthy",
    STOPPED: "stopped on request",
    PORT_TAKEN: "the port asked for is in use",
}


@dataclass(frozen=True)
class ExitRecord:
    """Last word of the node program about its allocation."""

    token: str
    attempt: int
    code: int
    """Exit code of the node program: one of `MEANINGS`, or the child's own."""
    at: float
    child_exit_code: int | None = None
    child_signal: int = 0
    reason: str = ""
    log_tail: str = ""
    """Last lines of the child's log, at most 4,000 characters: the evidence."""

    def to_json(self) -> str:
        """The file's text."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> ExitRecord:
        """Read the file.

        Raises:
            ValueError: not an exit record.
        """
        data: Any = json.loads(text)
        try:
            return cls(**data)
        except TypeError as error:
            raise ValueError(str(error)) from error

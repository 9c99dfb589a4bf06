"""How an allocation ended: `exit.json`, and the exit codes of the node program.

Python 3.9, standard library only.
"""

from __future__ import annotations

import errno
import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from remuda.wire.fields import floats, read

#: Exit codes of the node program itself. When the child's rule does not restart it, the child's own code is passed on
#: unchanged, and 128 + n when signal n ended it; `ExitRecord` tells the two apart.
GAVE_UP = 80
"""The child failed more often than `max_restarts` allows."""
FENCED = 81
"""Another copy of this allocation holds the claim, or a newer attempt counts; what this one ran was killed."""
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
BROKEN = 87
"""An error in the node program itself: a bug. The traceback is in `node.log` and in the record's reason."""
NO_GPU = 88
"""Fewer GPUs are visible than were asked for; the script was not started."""
GPU_BROKEN = 89
"""A GPU is visible and does not work; the script was not started."""
NODE_FAULT = 90
"""The script's output told of broken hardware, and it did not end by itself; it was ended."""
STALLED = 91
"""The script made no progress for as long as it may; it was ended."""
TIME_UP = 92
"""The script ended after it was told that its time limit is near."""
NO_ROOM = 93
"""The disk was full, so that the node program could not work."""
UNGUARDED = 94
"""A node of a script over several lost its guard, and no other could be started; the script was ended."""
UNLEASED = 95
"""Nothing was heard of the scheduler for as long as the job's lease; the script was killed."""

MEANINGS = {
    0: "the child ended by itself, successfully",
    GAVE_UP: "the child failed more often than its restarts allow",
    FENCED: "another copy of this allocation, or a newer attempt, runs instead",
    CANNOT_START: "the program could not be started",
    BAD_SPEC: "the child document could not be read",
    HUNG: "the child did not become or stay healthy",
    STOPPED: "stopped on request",
    PORT_TAKEN: "the port asked for is in use",
    BROKEN: "the node program itself failed; please report it",
    NO_GPU: "fewer GPUs are visible than were asked for",
    GPU_BROKEN: "a GPU is visible and does not work",
    NODE_FAULT: "the output told of broken hardware",
    STALLED: "no progress for as long as allowed",
    TIME_UP: "ended because its time limit was near",
    NO_ROOM: "the disk is full",
    UNGUARDED: "a node of several could not be guarded any more",
    UNLEASED: "nothing was heard of the scheduler for as long as the lease",
}


def is_full(error: BaseException) -> bool:
    """Whether it says that a disk, or a user's share of one, is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def meaning(code: int) -> str:
    """What an exit code of the node program says, in words."""
    if code in MEANINGS:
        return MEANINGS[code]
    if code > 128:
        return f"the child was ended by signal {code - 128}"
    return f"the child ended by itself with code {code}"


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
    faults: list[dict[str, Any]] = field(default_factory=list)
    """`wire.fault.Fault`s that were seen, oldest first, at most 20."""
    ran_s: float = 0.0
    """From the start of the child to its end, 0 if it was never started."""
    metrics: dict[str, float] = field(default_factory=dict)
    """The last numbers that a script told of its progress."""

    def to_json(self) -> str:
        """The file's text."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> ExitRecord:
        """Read the file.

        Raises:
            ValueError: not an exit record.
        """
        record = read(cls, text, "an exit record")
        return replace(record, metrics=floats(record.metrics))


def seal(record: ExitRecord, key: str, most: int = 3500) -> bytes:
    """A record as it passes through other hands, in `most` bytes. Its tail is cut first, its reason last."""
    cuts: list[dict[str, Any]] = [
        {"log_tail": record.log_tail[-most:] if most else ""} for most in (4000, 2500, 1500, 700, 0)
    ]
    bare: dict[str, Any] = {"log_tail": "", "faults": record.faults[-2:], "metrics": {}}
    for cut in (*cuts, bare, {**bare, "faults": [], "reason": record.reason[:400]}):
        text = json.dumps(asdict(replace(record, **cut)), separators=(",", ":"), ensure_ascii=False).encode(
            errors="replace"
        )
        if len(text) <= most - 65:
            break
    return _seal_of(text, key).encode() + b" " + text


def unseal(text: str, key: str, token: str) -> ExitRecord | None:
    """The record that `seal` made with this key; None for what somebody else wrote."""
    import hmac

    found, _, rest = text.partition(" ")
    if not hmac.compare_digest(found.encode(), _seal_of(rest.encode(), key).encode()):
        return None
    try:
        record = ExitRecord.from_json(rest)
    except ValueError:
        return None
    return record if record.token == token else None


def _seal_of(text: bytes, key: str) -> str:
    import hmac  # here, because it loads the crypto library, which most nodes never need

    return hmac.new(key.encode(), b"exit " + text, "sha256").hexdigest()

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
FENCED = 81
CANNOT_START = 82
BAD_SPEC = 83
HUNG = 84
STOPPED = 85
PORT_TAKEN = 86
BROKEN = 87
NO_GPU = 88
GPU_BROKEN = 89
NODE_FAULT = 90
STALLED = 91
TIME_UP = 92
NO_ROOM = 93
UNGUARDED = 94
UNLEASED = 95

MEANINGS = {
    0: "the child ended by itself, successfully",
    GAVE_UP: "the child failed more often than its restarts allow",
    # Another copy holds the claim, or a newer attempt counts: what this one ran was killed.
    FENCED: "another copy of this allocation, or a newer attempt, runs instead",
    CANNOT_START: "the program could not be started",
    BAD_SPEC: "the child document could not be read",
    # And restarts are off or used up.
    HUNG: "the child did not become or stay healthy",
    STOPPED: "stopped on request",
    PORT_TAKEN: "the port asked for is in use",
    # A bug: the traceback is in `node.log` and in the record's reason.
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

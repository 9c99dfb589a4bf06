"""What squeue, sacct and scontrol print about jobs, as typed records. Pure.

Records of squeue begin with a character that nobody types and fields are parted by another, so a job's name may hold
anything. An answer that cannot be read says nothing about any job: it is `BackendUnreachable`.
"""

from __future__ import annotations

import calendar
import re
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from remuda.base.errors import BackendUnreachable

RECORD, FIELD = "\x1e", "\x1f"
SQUEUE_FORMAT: Final = RECORD + FIELD.join(
    ("%i", "%F", "%K", "%u", "%T", "%r", "%P", "%N", "%S", "%e", "%l", "%V", "%j")
)
"""For `squeue -o`. The name is last: it alone is free text."""
SACCT_FIELDS: Final = (
    "JobID",
    "User",
    "State",
    "ExitCode",
    "Partition",
    "NodeList",
    "Start",
    "End",
    "Reason",
    "JobName",
)
_JOB_ID = re.compile(r"^\d+(_(\d+|\[.*\]))?(\+\d+)?$")


@dataclass(frozen=True)
class QueueLine:
    """One job, or array task, as squeue lists it. Times in seconds since the epoch, 0 where there is none."""

    job_id: str
    """`123`, or `123_4` for a task of an array."""
    array_id: str
    """Of the array; for other jobs their own."""
    index: int | None
    """In its array."""
    name: str
    user: str
    state: str
    """Raw."""
    reason: str
    """Raw."""
    partition: str
    nodes: str
    started_at: float
    ends_at: float
    """Ended jobs: when; others: when the time limit ends it."""
    submitted_at: float
    has_limit: bool
    """Without a time limit Slurm writes an end a year ahead, and in a partition without one a limit of a year."""


_YEAR_S = 365 * 86400.0


@dataclass(frozen=True)
class AccountLine:
    """One job, or array task, as sacct knows it."""

    job_id: str
    name: str
    user: str
    state: str
    """Raw, e.g. `CANCELLED by 1000`."""
    exit_code: int
    signal: int
    partition: str
    nodes: str
    started_at: float
    ended_at: float
    reason: str


@dataclass(frozen=True)
class JobDetail:
    """What only `scontrol show job` tells."""

    job_id: str
    """As squeue prints it."""
    name: str
    state: str
    exit_code: int
    signal: int
    restarts: int
    reason: str
    preempted_at: float = 0.0
    """When it was told to give way, 0 where it never was."""


def parse_squeue(text: str) -> list[QueueLine]:
    """Read what squeue prints with `SQUEUE_FORMAT`.

    Raises:
        BackendUnreachable: it is not that.
    """
    head, *records = text.split(RECORD)
    if head.strip():
        raise _unreadable("squeue", head)
    return [_queue_line(record.removesuffix("\n")) for record in records]


def _queue_line(record: str) -> QueueLine:
    fields = record.split(FIELD, 12)
    if len(fields) != 13 or not _JOB_ID.match(fields[0]):
        raise _unreadable("squeue", record)
    job_id, array_id, index, user, state, reason, partition, nodes, started, ends, limit, submitted, name = fields
    return QueueLine(
        job_id=job_id,
        array_id=array_id,
        index=int(index) if index.isdigit() else None,
        name=name,
        user=user,
        state=state,
        reason=reason,
        partition=partition,
        nodes=nodes,
        started_at=read_time(started),
        ends_at=read_time(ends),
        has_limit=0 < read_duration(limit) < _YEAR_S,
        submitted_at=read_time(submitted),
    )


def parse_sacct(text: str) -> dict[str, AccountLine]:
    """Read what `sacct -X -D -P -n` prints with `SACCT_FIELDS`: the last record of each job.

    Raises:
        BackendUnreachable: it is not that.
    """
    found: dict[str, AccountLine] = {}
    for line in text.splitlines():
        fields = line.split(FIELD, len(SACCT_FIELDS) - 1)
        if len(fields) != len(SACCT_FIELDS) or not _JOB_ID.match(fields[0]):
            if found and FIELD not in line:
                continue  # a job's name went on in a second line; it is none of ours
            raise _unreadable("sacct", line)
        job_id, user, state, codes, partition, nodes, started, ended, reason, name = fields
        exit_code, signal = read_exit(codes)
        found[job_id] = AccountLine(
            job_id, name, user, state, exit_code, signal, partition, nodes, read_time(started), read_time(ended), reason
        )
    return found


def parse_job(text: str) -> list[JobDetail]:
    """Read what `scontrol show job -o` prints.

    Raises:
        BackendUnreachable: it is not that.
    """
    return [_detail(line) for line in text.splitlines() if line.strip()]


def _detail(line: str) -> JobDetail:
    # A name may hold spaces and look like fields; what follows the fixed field UserId is Slurm's own.
    match = re.match(r"^JobId=(\d+) (.*?)JobName=(.*?) UserId=(.*)$", line)
    if match is None:
        raise _unreadable("scontrol", line)
    job_id, array, name, rest = match.groups()
    fields = dict(re.findall(r"(?:^| )([A-Za-z/:]+)=(\S*)", " " + rest))
    in_array = re.match(r"ArrayJobId=(\d+) ArrayTaskId=(\d+) ", array)
    if in_array:
        job_id = f"{in_array[1]}_{in_array[2]}"
    exit_code, signal = read_exit(fields.get("ExitCode", ""))
    restarts = fields.get("Restarts", "0")
    return JobDetail(
        job_id,
        name,
        fields.get("JobState", ""),
        exit_code,
        signal,
        int(restarts) if restarts.isdigit() else 0,
        fields.get("Reason", ""),
        read_time(fields.get("PreemptTime", "")),
    )


def parse_submitted(text: str) -> str:
    """The id that `sbatch --parsable` printed (`123` or `123;cluster`); empty if it printed none."""
    for line in reversed(text.splitlines()):
        match = re.match(r"^(\d+)(;\S+)?$", line.strip())
        if match:
            return match[1]
    return ""


def read_exit(text: str) -> tuple[int, int]:
    """`3:0` -> exit code and signal. Slurm has some codes beyond 255 in old records; they are cut as a shell does."""
    match = re.match(r"^(\d+):(\d+)$", text.strip())
    return (int(match[1]) & 0xFF, int(match[2])) if match else (0, 0)


@lru_cache(maxsize=1024)  # what was submitted together has the same ones
def read_time(text: str) -> float:
    """A moment as Slurm prints it in UTC, in seconds since the epoch; 0 for `N/A`, `Unknown`, `NONE`, … ."""
    try:
        return float(calendar.timegm(time.strptime(text.strip(), "%Y-%m-%dT%H:%M:%S")))
    except ValueError:
        return 0.0


_DURATION = re.compile(r"^(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?$")


def read_duration(text: str) -> float:
    """`1-02:03:04`, `02:03:04`, `03:04`, `30` (minutes), `1-02` (days-hours) in seconds; 0 for `UNLIMITED`."""
    match = _DURATION.match(text.strip())
    if match is None:
        return 0.0
    days, *rest = match.groups()
    parts = [int(part) for part in rest if part is not None]
    if days is not None:  # D-H, D-H:M, D-H:M:S
        hours, minutes, seconds = (*parts, 0, 0)[:3]
    elif len(parts) == 3:
        hours, minutes, seconds = parts
    else:  # M, M:S
        hours, (minutes, seconds) = 0, (*parts, 0)[:2]
    return float(((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds)


def _unreadable(command: str, text: str) -> BackendUnreachable:
    shown = " ".join(text.split())[:120]
    return BackendUnreachable(f"the answer of {command} could not be read: {shown!r}")

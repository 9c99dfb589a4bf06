"""What each state word of a Slurm job means. One table; a word that is not in it is an error with its raw text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from remuda.backends.base import Ending, Life
from remuda.base.errors import Rejected

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class JobState:
    """One state word, translated."""

    life: Life
    ending: Ending = Ending.NONE
    reason: str = ""
    """How it ended, or what is special about it, in words."""


_PENDING = JobState(Life.PENDING)
_RUNNING = JobState(Life.RUNNING)

STATES: Final[Mapping[str, JobState]] = {
    "PENDING": _PENDING,
    # A node is being prepared (booted, its prolog runs): nothing of the job is there to give signs of life.
    "CONFIGURING": JobState(Life.PENDING, reason="its node is being prepared"),
    "POWER_UP_NODE": JobState(Life.PENDING, reason="its node is being powered up"),
    "REQUEUED": JobState(Life.PENDING, reason="Slurm put it back into the queue"),
    "REQUEUE_FED": JobState(Life.PENDING, reason="Slurm put it back into the queue"),
    "REQUEUE_HOLD": JobState(Life.PENDING, reason="Slurm put it back into the queue and holds it"),
    "SPECIAL_EXIT": JobState(Life.PENDING, reason="it was put back into the queue, held, in the special exit state"),
    "RESV_DEL_HOLD": JobState(Life.PENDING, reason="its reservation was deleted, and it is held"),
    "EXPEDITING": JobState(Life.PENDING, reason="Slurm starts it again before all others"),
    "RUNNING": _RUNNING,
    # Its processes, epilogue or files are still being dealt with: the node is not free, no successor may start.
    "COMPLETING": JobState(Life.RUNNING, reason="Slurm is cleaning up after it"),
    "STAGE_OUT": JobState(Life.RUNNING, reason="its files are being staged out"),
    "SIGNALING": JobState(Life.RUNNING, reason="it is being sent a signal"),
    "RESIZING": JobState(Life.RUNNING, reason="its size is being changed"),
    "SUSPENDED": JobState(Life.RUNNING, reason="it is suspended"),
    "STOPPED": JobState(Life.RUNNING, reason="its processes are stopped, its nodes are kept"),
    "UPDATE_DB": JobState(Life.RUNNING, reason="the accounting database is being told of it"),
    "COMPLETED": JobState(Life.ENDED, reason="ended successfully"),
    "FAILED": JobState(Life.ENDED, reason="ended with an error"),
    "CANCELLED": JobState(Life.ENDED, Ending.CANCELLED, "cancelled"),
    "REVOKED": JobState(Life.ENDED, Ending.CANCELLED, "revoked: another cluster of the federation runs it"),
    "DEADLINE": JobState(Life.ENDED, Ending.CANCELLED, "ended by Slurm at the deadline that was asked for"),
    "TIMEOUT": JobState(Life.ENDED, Ending.TIME_LIMIT, "ended by Slurm at its time limit"),
    "PREEMPTED": JobState(Life.ENDED, Ending.PREEMPTED, "preempted by work of higher priority"),
    "NODE_FAIL": JobState(Life.ENDED, Ending.NODE_FAILED, "its node failed"),
    "BOOT_FAIL": JobState(Life.ENDED, Ending.NOT_STARTED, "its node could not be booted"),
    "LAUNCH_FAILED": JobState(Life.ENDED, Ending.NOT_STARTED, "it could not be launched on its node"),
    "RECONFIG_FAIL": JobState(Life.ENDED, Ending.NOT_STARTED, "its node could not be configured"),
    "OUT_OF_MEMORY": JobState(Life.ENDED, Ending.OUT_OF_MEMORY, "it used more memory than it was given"),
}

_BY = re.compile(r"^CANCELLED by (\d+)$")


def read_state(raw: str) -> tuple[str, str]:
    """A state as squeue, sacct or scontrol print it -> the state word, and the uid that cancelled it or nothing.

    `CANCELLED by 1000`, `CANCELLED+` (sacct cuts it where its column is narrow), `RUNNING,COMPLETING` (24.11's list:
    what comes after the first word qualifies it and wins).

    Raises:
        Rejected: a word that this version does not know.
    """
    text = raw.strip()
    match = _BY.match(text)
    if match:
        return "CANCELLED", match[1]
    words = [word for word in re.split(r"[,+ ]", text) if word]
    if not words or any(word not in STATES for word in words):
        raise Rejected(f"Slurm says that a job's state is {raw!r}, which this version does not know")
    return words[-1], ""

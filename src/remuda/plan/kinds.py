"""What is so of each kind of workload, asked by everything that would otherwise compare the kind."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """What a user asked to keep running."""

    SWARM = "swarm"
    RUN = "run"
    DEPLOYMENT = "deployment"
    GANG = "gang"
    JOB = "job"
    RECORDING = "recording"

    @property
    def traits(self) -> KindTraits:
        """What is so of it."""
        return _KINDS[self]


@dataclass(frozen=True, kw_only=True)
class KindTraits:
    """One kind."""

    name_flag: str = "--name"
    """Option by which its command takes a name."""
    without_gpus: str = "--gpus 0"
    """How a user asks for one without GPUs."""
    resized_by: str = ""
    """Words after `remuda` that change its size, with `{}` for its name, where it has no settings."""
    is_always_new: bool = False
    """Asked for again it is another one, though nothing else was said; of others that is the one that is up."""
    is_restarted_whole: bool = False
    """`restart` begins again what runs of it, too."""
    is_followed: bool = False
    """The outputs of a task's attempts are one text for whoever follows it."""
    has_one_task: bool = False
    """Where its task has failed, nothing is left that would go on holding nodes, GPUs and ports."""
    is_its_task: bool = False
    """It is shown to be what its only task is, in a view and in files of its own."""
    has_parts: bool = False
    """What runs of it goes on though other tasks of it have ended, well or not."""
    has_settings: bool = False
    """Some values of its document can be changed while it is up."""
    has_outcome: bool = False
    """What became of it is written into the folder of a job."""
    needs_all: bool = False
    """One task that has failed for good is its end, and one that is done is not missed."""
    after_time: str = "DONE"
    """Phase in which the end of its time leaves it: FAILED where it has a goal besides the time."""


_KINDS: Final = {
    Kind.SWARM: KindTraits(without_gpus="gpus_per_replica: 0", resized_by="scale {} REPLICAS"),
    Kind.RUN: KindTraits(
        is_always_new=True, is_restarted_whole=True, is_followed=True, has_one_task=True, is_its_task=True,
        has_settings=True,
    ),
    Kind.DEPLOYMENT: KindTraits(without_gpus="roles.ROLE.gpus: 0"),
    Kind.GANG: KindTraits(
        is_always_new=True, is_restarted_whole=True, is_followed=True, needs_all=True, after_time="FAILED"
    ),
    Kind.JOB: KindTraits(name_flag="--job-id", is_followed=True, has_one_task=True, has_outcome=True),
    Kind.RECORDING: KindTraits(has_one_task=True, has_parts=True),
}  # fmt: skip

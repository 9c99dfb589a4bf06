"""Why a job is pending, and why sbatch refused one: Slurm's words in plain sentences. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Reason:
    """One reason of squeue's, in plain words."""

    text: str
    never: bool = False
    """The job can never start as it was asked for."""


HELD_BY_USER = "JobHeldUser"

_EXACT: Final[Mapping[str, Reason]] = {
    "None": Reason(""),
    "Priority": Reason("jobs of higher priority are before it in the partition"),
    "Resources": Reason("it is next, and waits for resources to become free"),
    "BeginTime": Reason("the time at which it may begin has not come"),
    "Dependency": Reason("it waits for a job that it depends on"),
    "DependencyNeverSatisfied": Reason("a job that it depends on ended in a way that never lets it start", never=True),
    HELD_BY_USER: Reason("it is held by its owner"),
    "JobHeldAdmin": Reason("it is held by an administrator"),
    "JobHoldMaxRequeue": Reason("it was put back into the queue too often, and Slurm holds it", never=True),
    "Licenses": Reason("it waits for a license"),
    "Prolog": Reason("the prolog runs on its node"),
    "Cleaning": Reason("Slurm is cleaning up after its last run"),
    "NodeDown": Reason("a node that it needs is down"),
    "ReqNodeNotAvail": Reason("a node that it needs is down, drained or reserved"),
    "FrontEndDown": Reason("no front end of the cluster is up"),
    "BadConstraints": Reason("no node has what it asks for", never=True),
    "Constraints": Reason("no node has what it asks for", never=True),
    "PartitionDown": Reason("the partition is down"),
    "PartitionInactive": Reason("the partition is inactive"),
    "PartitionConfig": Reason("what it asks for does not fit the partition", never=True),
    "PartitionNodeLimit": Reason("it asks for more nodes than the partition allows", never=True),
    "PartitionTimeLimit": Reason("its time limit is longer than the partition allows", never=True),
    "AccountNotAllowed": Reason("its account may not use the partition", never=True),
    "QOSNotAllowed": Reason("its QOS may not be used in the partition", never=True),
    "QosNotAllowed": Reason("its QOS may not be used in the partition", never=True),
    "InvalidAccount": Reason("its account does not exist (any more)", never=True),
    "InvalidQOS": Reason("its QOS does not exist (any more)", never=True),
    "AssociationJobLimit": Reason("its account runs as many jobs as it may"),
    "AssociationResourceLimit": Reason("its account uses as much as it may"),
    "AssociationTimeLimit": Reason("its account's time is used up"),
    "QOSJobLimit": Reason("its QOS runs as many jobs as it may"),
    "QOSResourceLimit": Reason("its QOS uses as much as it may"),
    "QOSTimeLimit": Reason("its QOS's time is used up"),
    "QOSUsageThreshold": Reason("its account's usage is over the threshold of its QOS"),
    "Reservation": Reason("its reservation has not begun"),
    "ReservationDeleted": Reason("its reservation was deleted", never=True),
    "InvalidReservation": Reason("its reservation does not exist (any more)", never=True),
    "JobArrayTaskLimit": Reason("as many tasks of its array run as may run at once"),
    "ArrayTaskLimit": Reason("as many tasks of its array run as may run at once"),
    "DeadLine": Reason("it cannot end before its deadline", never=True),
    "Deadline": Reason("it cannot end before its deadline", never=True),
    "MaxMemPerLimit": Reason("it asks for more memory than a job may have", never=True),
    "MaxRequeue": Reason("it was put back into the queue too often, and Slurm holds it", never=True),
    "InactiveLimit": Reason("it was inactive for too long"),
    "SystemFailure": Reason("Slurm, its file system or its network failed"),
    "JobLaunchFailure": Reason("it could not be launched: an invalid program, or a broken node"),
    "launch_failed_requeued_held": Reason("its launch failed on a node, and Slurm holds it", never=True),
    "job_requeued_in_held_state": Reason("it was put back into the queue and is held", never=True),
    "NodeFailure": Reason("its node failed"),
    "SchedDefer": Reason("the scheduler defers it"),
    "SchedNodesDown": Reason("nodes that it needs are down"),
    "TooManyJobs": Reason("too many jobs are in the queue"),
    "OutOfMemory": Reason("it ran out of memory"),
    "BurstBufferOperation": Reason("an operation of the burst buffer failed"),
    "BurstBufferResources": Reason("the burst buffer has no room"),
    "BurstBufferStageIn": Reason("its files are being staged in"),
    "WaitingForScheduling": Reason("the scheduler has not looked at it"),
    "FedJobLock": Reason("the federation decides where it runs"),
    "MaxPowerPerAccount": Reason("the power that its account may use is used"),
    "PowerNotAvail": Reason("there is not enough power"),
    "PowerReserved": Reason("the power is reserved"),
    "AccountingPolicy": Reason("a limit of the accounting keeps it waiting"),
}

_LIMITED: Final[Mapping[str, str]] = {
    "Cpu": "CPUs", "CPU": "CPUs", "Node": "nodes", "Nodes": "nodes", "GRES": "GPUs or the like",
    "Gres": "GPUs or the like", "Memory": "memory", "Mem": "memory", "License": "licenses", "Energy": "energy",
    "BB": "burst buffer", "Billing": "billing units", "Jobs": "jobs", "Job": "jobs", "SubmitJobs": "submitted jobs",
    "Submit": "submitted jobs", "Wall": "run time", "WallDuration": "run time", "JobWall": "run time", "Time": "time",
    "Unknown": "some resource",
}  # fmt: skip
_WHOSE: Final[Mapping[str, str]] = {
    "QOS": "its QOS",
    "Assoc": "its account",
    "Association": "its account",
    "Partition": "the partition",
}
_LIMIT = re.compile(r"^(QOS|Assoc|Association|Partition)(Grp|Max|Min)?(\w*?)(Limit|PerUser|PerUserLimit|PerAccount)?$")
_RESOURCE = re.compile(
    r"(SubmitJobs|Submit|WallDuration|JobWall|Wall|Billing|GRES|Gres|Cpu|CPU|Nodes|Node|Memory|Mem|License|Energy|BB|Jobs|"
    r"Job|Unknown|Time)"
)
_GRP_OLD = re.compile(r"^Grp(\w+)Limit$")


def explain(raw: str) -> Reason:
    """Squeue's reason in plain words. A reason that is in no table is passed on as it is."""
    text = raw.strip().strip("()")
    word = re.split(r"[,:(]", text, maxsplit=1)[0].strip().replace(" ", "_")
    if word in _EXACT:
        return _EXACT[word]
    if word.lower().startswith("resv_del") or word.startswith("ReservationDel"):
        return _EXACT["ReservationDeleted"]
    return _limit(word) or Reason(f"Slurm's reason is {text!r}" if text else "")


def _limit(word: str) -> Reason | None:
    """`QOSMaxGRESPerUser`, `AssocGrpCpuLimit`, … are built of parts."""
    if _GRP_OLD.match(word):
        word = f"Assoc{word}"
    match = _LIMIT.match(word)
    if match is None:
        return None
    whose = _WHOSE[match[1]]
    found = _RESOURCE.search(word[len(match[1]) :])
    what = _LIMITED[found[1]] if found else "something"
    rest = word[len(match[1]) :]
    if rest.startswith("Min") and not rest.startswith("Minutes"):
        return Reason(f"it asks for less {what} than {whose} demands ({word})", never=True)
    if "PerJob" in rest or "PerNode" in rest or rest.startswith(("MaxWall", "MaxJobWall")):
        return Reason(f"it asks for more {what} than {whose} allows for one job ({word})", never=True)
    by = " by one user" if "PerUser" in rest or rest.endswith("PU") else ""
    return Reason(f"as much as {whose} allows is in use{by}: {what} ({word})")


_REFUSALS: Final[tuple[tuple[str, str], ...]] = (
    ("invalid partition", "the partition does not exist, or may not be used"),
    ("required partition not available", "the partition is drained or inactive"),
    ("invalid qos", "the QOS does not exist, or the account may not use it"),
    ("invalid account", "the account does not exist, or may not use this partition"),
    ("invalid feature", "no node has the features (constraint) that were asked for"),
    ("invalid node name", "a node that was named does not exist"),
    ("node count specification invalid", "more nodes were asked for than the partition has"),
    ("node configuration is not available", "no node of the partition has what was asked for"),
    ("partition configuration not available", "the partition is down, drained, or does not have what was asked for"),
    ("time limit is invalid", "the time limit is longer than the partition allows, or is missing"),
    ("invalid generic resource", "the cluster has no such GPUs (gres)"),
    ("memory specification", "no node has so much memory"),
    ("invalid reservation", "the reservation does not exist"),
    ("reservation", "the reservation may not be used"),
    (
        "job submit limit",
        "a limit of the account or QOS is reached",
    ),
    ("accounting/qos policy", "a limit of the account or QOS is reached"),
    ("cpu count", "more CPUs were asked for than there are"),
    ("cpu specification", "more CPUs were asked for than there are"),
    ("more processors requested than permitted", "more CPUs were asked for than there are"),
    ("license", "the cluster has no such license"),
    ("dependency", "a job that it shall depend on is not known"),
    ("permission denied", "this user may not do that"),
)


def refusal(stderr: str) -> str:
    """What sbatch said, as one sentence: in plain words where they are known, and always Slurm's own."""
    said = said_by(stderr)
    for part, plain in _REFUSALS:
        if part in said.lower():
            return f"Slurm refused the job: {plain} (“{said}”)"
    return f"Slurm refused the job: “{said}”" if said else "Slurm refused the job and did not say why"


_PASSING: Final = (
    "job submit limit", "accounting/qos policy", "required partition not available", "license", "reservation",
    "partition configuration not available",
)  # fmt: skip
"""Refusals of what may be taken at another time."""


def is_permanent(stderr: str) -> bool:
    """Whether a refusal is one for as long as the job is asked for like this; unknown ones may pass."""
    said = said_by(stderr).lower()
    known = any(part in said for part, _ in _REFUSALS)
    return known and not any(part in said for part in _PASSING)


_COMMAND = re.compile(r"^(\w+: (error: |fatal: )?|allocation failure: )")


def said_by(stderr: str) -> str:
    """The message of a Slurm command: its last error line, without the command's name."""
    lines = [_COMMAND.sub("", line).strip() for line in stderr.splitlines() if line.strip()]
    lines = [line for line in lines if not line.lower().startswith(("see ", "try ", "use "))]
    told = [line for line in lines if "submission failed" in line.lower()] or lines
    return re.sub(r"^Batch job submission failed: ", "", told[-1]) if told else ""


_NO_ANSWER = (
    "unable to contact", "socket timed out", "zero bytes were transmitted", "connection refused", "connect failure",
    "connection failure", "communication", "transport endpoint", "no route to host", "standby mode",
    "temporarily unable", "resource temporarily unavailable", "message receive failure", "message send failure",
    "authentication credential", "authentication error", "munge", "unable to establish", "unexpected msg",
    "unexpected message", "connection reset", "network is unreachable", "error code 111", "in standby",
    "could not establish a configuration source", "configuration pending", "dbd connection", "still in progress",
    "problem talking to the database", "failed to open persistent connection", "slurmdbd", "timed out",
    "sleeping and retrying", "unspecified error", "insane message length",
)  # fmt: skip


def is_silence(stderr: str) -> bool:
    """Whether a command's complaint only says that nobody answered it: then nothing is known."""
    text = stderr.lower()
    return any(part in text for part in _NO_ANSWER)

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.backends.slurm.parsing.reasons import explain, is_silence, refusal

NEVER = """
PartitionTimeLimit PartitionNodeLimit PartitionConfig BadConstraints AccountNotAllowed QOSNotAllowed
InvalidAccount InvalidQOS DependencyNeverSatisfied ReservationDeleted DeadLine MaxMemPerLimit
JobHoldMaxRequeue InvalidReservation Deadline
QOSMinGRES QOSMinCpuNotSatisfied QOSMaxCpuPerJobLimit QOSMaxNodePerJobLimit
QOSMaxWallDurationPerJobLimit QOSMaxGRESPerJob AssocMaxWallDurationPerJobLimit AssocMaxNodePerJobLimit
QOSMaxCpuPerNode
"""
LATER = """
None Priority Resources BeginTime Dependency JobHeldUser JobHeldAdmin Licenses ReqNodeNotAvail NodeDown
Reservation PartitionDown PartitionInactive JobArrayTaskLimit Prolog Cleaning QOSMaxJobsPerUserLimit
QOSMaxGRESPerUser QOSMaxCpuPerUserLimit QOSMaxSubmitJobPerUserLimit QOSGrpCpuLimit QOSGrpGRES QOSGrpNodeLimit
QOSGrpJobsLimit AssocGrpCpuLimit AssocGrpGRES AssocGrpCPUMinutesLimit AssocGrpCPURunMinutesLimit
AssocMaxJobsLimit QOSJobLimit QOSResourceLimit QOSUsageThreshold AssociationJobLimit GrpCpuLimit
"""


@pytest.mark.parametrize("raw", NEVER.split())
def test_what_can_never_start(raw: str) -> None:
    reason = explain(raw)
    assert reason.never, reason
    assert reason.text


@pytest.mark.parametrize("raw", LATER.split())
def test_what_may_start_later(raw: str) -> None:
    assert not explain(raw).never


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("(Priority)", "jobs of higher priority are before it in the partition"),
        ("Resources", "it is next, and waits for resources to become free"),
        (
            "ReqNodeNotAvail, UnavailableNodes:a100-[1-2]",
            "a node that it needs is down, drained or reserved",
        ),
        ("ReqNodeNotAvail(Unavailable:a1)", "a node that it needs is down, drained or reserved"),
        ("launch failed requeued held", "its launch failed on a node, and Slurm holds it"),
        ("job requeued in held state", "it was put back into the queue and is held"),
        (
            "QOSMaxGRESPerUser",
            "as much as its QOS allows is in use by one user: GPUs or the like (QOSMaxGRESPerUser)",
        ),
        ("AssocGrpCpuLimit", "as much as its account allows is in use: CPUs (AssocGrpCpuLimit)"),
        (
            "QOSMaxWallDurationPerJobLimit",
            "it asks for more run time than its QOS allows for one job (QOSMaxWallDurationPerJobLimit)",
        ),
        ("QOSMinGRES", "it asks for less GPUs or the like than its QOS demands (QOSMinGRES)"),
        ("SomethingNew", "Slurm's reason is 'SomethingNew'"),
        ("None", ""),
        ("", ""),
    ],
)
def test_plain_words(raw: str, text: str) -> None:
    assert explain(raw).text == text


@given(st.text(max_size=60))
@settings(deadline=None)
def test_any_reason_is_explained(raw: str) -> None:
    assert isinstance(explain(raw).text, str)


CASES = Path(__file__).parents[3] / "cases" / "slurm" / "refusals"


@pytest.mark.parametrize("case", sorted(CASES.glob("*.txt")), ids=lambda path: path.stem)
def test_refusals(case: Path) -> None:
    stderr, _, sentence = case.read_text().partition("---\n")
    assert refusal(stderr) == sentence.strip()
    assert not is_silence(stderr)


@pytest.mark.parametrize(
    "stderr",
    [
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
        "slurm_load_jobs error: Zero Bytes were transmitted or received",
        "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying",
        "squeue: error: slurm_receive_msg: Connection refused",
        "sbatch: error: Batch job submission failed: Slurm backup controller in standby mode",
        "sbatch: error: Batch job submission failed: Invalid authentication credential",
        "sbatch: error: Batch job submission failed: Insane message length",  # another program has the port just now
        "sbatch: error: Batch job submission failed: Protocol authentication error",
    ],
)
def test_silence(stderr: str) -> None:
    assert is_silence(stderr)

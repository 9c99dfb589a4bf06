"""From lines of Slurm's commands to one answer."""

from __future__ import annotations

import os
import pwd
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from remuda.backends.base import CHILD_ENDED, Cluster, Ending, Life, Node, Observed
from remuda.backends.slurm import observing
from remuda.backends.slurm.files import RunDirectories
from remuda.backends.slurm.parsing.parse import AccountLine, JobDetail, QueueLine
from remuda.backends.slurm.parsing.reasons import is_permanent
from remuda.supervise.failures.causes import classify
from remuda.supervise.model import Cause
from remuda.wire.exit import STOPPED, ExitRecord

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ACCOUNT = AccountLine("7", "w.script.0.1.u", "me", "COMPLETED", 0, 0, "cpu", "n1", 10.0, 20.0, "None")
LINE = QueueLine(
    "7", "7", None, "w.script.0.1.u", "me", "NODE_FAIL", "None", "cpu", "n[1-3]", 10.0, 20.0, 5.0, has_limit=False
)
ME = pwd.getpwuid(os.getuid()).pw_name


def ended(account: AccountLine, record: ExitRecord | None = None) -> Observed:
    seen = observing.ended_account(account, record)
    assert seen is not None
    return seen


@pytest.mark.parametrize(
    ("state", "ending", "by"),
    [
        (f"CANCELLED by {os.getuid()}", Ending.CANCELLED, ME),
        ("CANCELLED by 4294967294", Ending.CANCELLED, "user 4294967294"),
        ("CANCELLED", Ending.LOST, ""),
        ("PREEMPTED", Ending.PREEMPTED, ""),
        ("TIMEOUT", Ending.TIME_LIMIT, ""),
        ("NODE_FAIL", Ending.NODE_FAILED, ""),
        ("FAILED", Ending.NONE, ""),
    ],
)
def test_who_ended_it_by_the_accounting(state: str, ending: Ending, by: str) -> None:
    seen = ended(replace(ACCOUNT, state=state))
    assert (seen.life, seen.ending, seen.by) == (Life.ENDED, ending, by)


@pytest.mark.parametrize(
    ("state", "started", "over", "claimed", "is_lost"),
    [
        pytest.param("CANCELLED by 0", 1000.0, 1000.0, 900.0, True, id="started twice"),
        pytest.param("CANCELLED by 0", 1000.0, 1001.0, 900.0, True, id="within a second"),
        pytest.param("CANCELLED by 0", 899.0, 1000.0, 900.0, False, id="cancelled by root while it ran"),
        pytest.param("CANCELLED by 0", 1000.0, 1000.0, 0.0, False, id="it never began"),
        pytest.param("CANCELLED by 0", 1000.0, 1000.0, 1000.5, False, id="cancelled by root as it began"),
        pytest.param("CANCELLED by 1000", 1000.0, 1000.0, 900.0, False, id="cancelled by a person"),
        pytest.param("FAILED", 1000.0, 1000.0, 900.0, True, id="failed to start a second time"),
        pytest.param("FAILED", 899.0, 1000.0, 900.0, False, id="failed"),
        pytest.param("FAILED", 1000.0, 1000.0, 0.0, False, id="failed before it began"),
        pytest.param("NODE_FAIL", 1000.0, 1000.0, 900.0, False, id="its node failed"),
    ],
)
@pytest.mark.parametrize("is_listed", [True, False])
def test_a_job_that_the_controller_started_twice(
    state: str, started: float, over: float, claimed: float, is_lost: bool, is_listed: bool
) -> None:
    account = replace(ACCOUNT, state=state, started_at=started, ended_at=over, exit_code=int(state == "FAILED"))
    line = replace(LINE, state=state.partition(" ")[0], started_at=started, ends_at=over)

    def look(record: ExitRecord | None) -> Observed | None:
        if is_listed:
            return observing.ended(line, record, account, None, claimed_at=claimed)
        return observing.ended_account(account, record, claimed_at=claimed)

    seen = look(None)
    assert seen is not None
    assert (seen.ending is Ending.LOST) is is_lost
    assert ("started it a second time" in seen.reason) is is_lost
    assert not (is_lost and seen.by)
    known = look(ExitRecord(token=ACCOUNT.name, attempt=1, at=over, code=1, child_exit_code=1, reason="exit code 1"))
    assert known is not None
    assert "started it a second time" not in known.reason, "who told how it ended is believed"


@pytest.mark.parametrize(
    ("said", "is_memory"),
    [
        ("slurmstepd-n1: error: StepId=7.batch exceeded memory limit (200 > 100), being killed\n", True),
        ("slurmstepd: error: Exceeded job memory limit", True),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=7.batch.", True),
        ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.batch cgroup.", True),
        ("echo: it was out of memory", False),
        ("slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-22T02:01:01 ***", False),
    ],
)
def test_a_kill_for_memory_that_slurm_records_as_a_signal(said: str, is_memory: bool) -> None:
    killed = ended(replace(ACCOUNT, state="FAILED", signal=9))
    by_child = replace(killed, exit_code=137, signal=0)
    for seen in (killed, by_child):
        told = observing.out_of_memory(seen, f"begun\n{said}\nmore\n")
        assert (told.ending is Ending.OUT_OF_MEMORY) is is_memory
        assert told.reason == (said.partition("error: ")[2].strip() if is_memory else seen.reason)
    for other in (replace(killed, signal=15), replace(killed, ending=Ending.PREEMPTED), replace(by_child, exit_code=1)):
        assert observing.out_of_memory(other, said) == other


SAVED = ExitRecord("w.script.0.1.u", 1, 0, 19.0, child_exit_code=0, reason="exit code 0")
TERMINATED = replace(SAVED, code=143, child_exit_code=143, reason="exit code 143")
HALF, WHOLE = {"progress_step": 5.0, "progress_total": 9.0}, {"progress_step": 9.0, "progress_total": 9.0}


@pytest.mark.parametrize(
    ("state", "record", "is_asked", "preempted_at", "ending"),
    [
        pytest.param("FAILED", TERMINATED, True, 15.0, Ending.PREEMPTED, id="its ranks were terminated"),
        pytest.param("FAILED", TERMINATED, True, 0.0, Ending.NONE, id="terminated by somebody else"),
        pytest.param("FAILED", TERMINATED, True, 9.0, Ending.NONE, id="it gave way before it was requeued"),
        pytest.param("FAILED", None, True, 15.0, Ending.PREEMPTED, id="without a last word"),
        pytest.param("COMPLETED", replace(SAVED, metrics=HALF), True, 15.0, Ending.PREEMPTED, id="saved its work"),
        pytest.param("COMPLETED", replace(SAVED, metrics=HALF), True, 0.0, Ending.NONE, id="ended early by itself"),
        pytest.param("COMPLETED", replace(SAVED, metrics=WHOLE), False, 15.0, Ending.NONE, id="was done"),
        pytest.param("COMPLETED", SAVED, False, 15.0, Ending.NONE, id="tells of no steps"),
        pytest.param("FAILED", replace(TERMINATED, code=STOPPED), False, 0.0, Ending.NONE, id="we stopped it"),
        pytest.param("NODE_FAIL", TERMINATED, False, 15.0, Ending.NODE_FAILED, id="Slurm says why"),
    ],
)
def test_a_job_that_gave_way_within_its_grace(
    state: str, record: ExitRecord | None, is_asked: bool, preempted_at: float, ending: Ending
) -> None:
    line = replace(LINE, state=state)
    assert observing.is_unclear(line, record) is is_asked
    detail = JobDetail("7", line.name, state, 143, 0, 0, "None", preempted_at)
    seen = observing.ended(line, record, None, detail)
    assert seen.ending is ending
    assert (classify(seen).cause is Cause.PREEMPTION) is (ending is Ending.PREEMPTED)
    if ending is Ending.PREEMPTED:
        assert seen.reason.startswith("preempted by work of higher priority")


def test_the_accounting_may_lag() -> None:
    assert observing.ended_account(replace(ACCOUNT, state="RUNNING"), None) is None


def test_the_node_programs_word_is_better() -> None:
    record = ExitRecord("w.script.0.1.u", 1, 3, 19.0, child_exit_code=3, reason="ended with code 3", log_tail="oops")
    seen = ended(replace(ACCOUNT, state="FAILED", exit_code=1), record)
    assert (seen.exit_code, seen.native_state, seen.reason, seen.evidence) == (
        3,
        CHILD_ENDED,
        "ended with code 3",
        "oops",
    )
    # A script that reached its end did so, whatever happened to its node then.
    done = replace(record, code=0, child_exit_code=0)
    assert ended(replace(ACCOUNT, state="NODE_FAIL"), done).ending is Ending.NONE


@pytest.mark.parametrize(
    ("state", "lingers"), [("RUNNING", False), ("COMPLETING", True), ("RUNNING,COMPLETING", True), ("PENDING", False)]
)
def test_what_slurm_has_ended_and_cleans_up_after_lingers(tmp_path: Path, state: str, *, lingers: bool) -> None:
    seen = observing.live(replace(LINE, state=state), LINE.name, RunDirectories(tmp_path), 1000.0)
    assert seen is not None
    assert seen.lingers is lingers


@pytest.mark.parametrize(
    ("unusable", "node", "nodes"),
    [
        ({"n2"}, "n2", ()),
        ({"n2", "x9"}, "n2", ()),
        ({"n2", "n3"}, "n1", ("n1", "n2", "n3")),
        (set(), "n1", ("n1", "n2", "n3")),
    ],
)
def test_of_several_nodes_the_one_that_is_down_is_blamed(unusable: set[str], node: str, nodes: tuple[str, ...]) -> None:
    seen = observing.ended(LINE, None, None, None)
    assert (seen.node, seen.nodes) == ("n1", ("n1", "n2", "n3"))
    cluster = Cluster(tuple(Node(name, "idle", name not in unusable) for name in ("n1", "n2", "n3", "x9")), ())
    after = observing.blamed(seen, cluster)
    assert (after.node, after.nodes) == (node, nodes)


@pytest.mark.parametrize(
    ("said", "permanent"),
    [
        ("Invalid qos specification", True),
        ("Invalid partition name specified", True),
        ("Requested node configuration is not available", True),
        ("Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", False),
        ("Required partition not available (inactive or drain)", False),
        ("Something new", False),
    ],
)
def test_which_refusals_last(said: str, permanent: bool) -> None:
    assert is_permanent(f"sbatch: error: Batch job submission failed: {said}\n") is permanent


@pytest.fixture
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("start_at", "expected"),
    [
        (0.0, ""),
        (1_000_000.0, ""),
        (999_000.0, ""),
        (1_003_600.0, "expected to start at about 14:45"),
        (1_003_700.0, "expected to start at about 14:50"),
        (1_500_000.0, "expected to start at about Jan 18 08:40"),
        (1_000_000.0 + 182 * 86400, "expected to start at about Jul 13 13:45"),
        (1_000_000.0 + 183 * 86400, "expected to start at about Jul 14 1970 13:45"),
        (1_000_000.0 + 366 * 86400, "expected to start at about Jan 13 1971 13:45"),
    ],
)
@pytest.mark.usefixtures("_in_utc")
def test_when_a_pending_job_is_expected_to_start(start_at: float, expected: str) -> None:
    assert observing.expected(start_at, 1_000_000.0) == expected


@pytest.mark.parametrize(
    ("state", "code", "child_code", "ending", "befell"),
    [
        ("PREEMPTED", 0, 0, Ending.NONE, Ending.PREEMPTED),
        ("COMPLETED", 0, 0, Ending.NONE, Ending.NONE),
        ("PREEMPTED", 3, 3, Ending.PREEMPTED, Ending.NONE),
        ("PREEMPTED", STOPPED, 0, Ending.PREEMPTED, Ending.NONE),
    ],
)
def test_what_befell_an_allocation_whose_child_ended_well_is_kept(
    state: str, code: int, child_code: int, ending: Ending, befell: Ending
) -> None:
    record = ExitRecord(token=ACCOUNT.name, attempt=1, code=code, at=20.0, child_exit_code=child_code, reason="exit")
    seen = ended(replace(ACCOUNT, state=state), record)
    assert (seen.ending, seen.befell) == (ending, befell)

"""The lease of a job: who hears nothing of the scheduler ends, and who hears «no» ends at once."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pytest

from remuda.fleet.conf import FleetConf, placed, slurm_conf
from remuda.node.lease import JobLease, LeaseTerms, hear, terms, told
from remuda.wire import exit as codes

if TYPE_CHECKING:
    from pathlib import Path

TERMS = LeaseTerms(180.0, ("10.0.0.1", 8090), "/usr/bin/scontrol", "7", "box-1")
RUNS = "JobId=7 JobName=x JobState=RUNNING ReqNodeList=(null) ExcNodeList=(null) NodeList=box-1 BatchHost=box-1"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (RUNS, ""),
        (RUNS.replace("RUNNING", "COMPLETING"), ""),
        (RUNS.replace("RUNNING", "SUSPENDED"), ""),
        (RUNS.replace(" NodeList=box-1", ""), ""),
        (RUNS.replace("RUNNING", "NODE_FAIL"), "the scheduler says that job 7 is NODE_FAIL"),
        (RUNS.replace("RUNNING", "PENDING"), "the scheduler says that job 7 is PENDING"),
        (RUNS.replace("RUNNING", "CANCELLED"), "the scheduler says that job 7 is CANCELLED"),
        (RUNS.replace(" NodeList=box-1", " NodeList=box-2"), "the scheduler says that job 7 runs on box-2"),
        ("slurm_load_jobs error: Invalid job id specified\n", "the scheduler does not know job 7 any more"),
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n", None),
        ("scontrol: error: Munge encode failed: Failed to access munge.socket\n", None),
    ],
)
def test_what_an_answer_says(answer: str, why: str | None) -> None:
    assert told(answer, "7", "box-1") == why


def test_a_job_of_several_nodes_runs_where_it_ran() -> None:
    assert told(RUNS.replace(" NodeList=box-1", " NodeList=box-[1-2]"), "7", "box-[1-2]") == ""


class Stage:
    """A lease on invented time; the scheduler says what the test says, when it says it."""

    def __init__(self) -> None:
        self.now, self.answer, self.asked = 1000.0, RUNS, 0
        self.lease = JobLease(TERMS, self._ask, lambda: self.now)

    def _ask(self, _: LeaseTerms) -> str | None:
        self.asked += 1
        return self.answer or None if self.answer != "refused" else ""

    def look(self, after_s: float) -> int:
        """Turn by turn; the code with which the work ends, 0: it goes on."""
        self.now += after_s
        end = self.lease.look()
        if self.lease._question is not None:
            self.lease._question.join()
        return end.code if end is not None else 0


def test_it_is_asked_every_quarter() -> None:
    stage = Stage()
    assert [stage.look(45.0 if turn % 2 else 0.1) for turn in range(20)] == [0] * 20
    assert stage.asked == 10


def test_no_ends_it_at_the_next_look() -> None:
    stage = Stage()
    stage.answer = RUNS.replace("RUNNING", "NODE_FAIL")
    assert [stage.look(45.0), stage.look(1.0)] == [0, codes.FENCED]


def test_silence_ends_it_after_the_lease_and_not_before() -> None:
    stage = Stage()
    assert stage.look(45.0) == 0  # heard
    stage.answer = ""
    assert [stage.look(1.0) for _ in range(179)] == [0] * 179
    assert [stage.look(1.0), stage.look(1.0)] == [0, codes.UNLEASED]
    assert stage.lease.look().reason == "nothing was heard of the scheduler for 181 s, and the lease is 180 s"  # type: ignore[union-attr]


def test_a_refused_connection_is_no_silence() -> None:
    stage = Stage()
    stage.answer = "refused"
    assert [stage.look(45.0) for _ in range(40)] == [0] * 40


def test_who_stood_still_for_longer_ends_before_anything_is_asked() -> None:
    stage = Stage()
    assert stage.look(45.0) == 0
    asked = stage.asked
    assert stage.look(3600.0) == codes.UNLEASED
    assert stage.asked <= asked + 1


def test_a_question_that_gets_no_answer_is_asked_once() -> None:
    gate, asked = threading.Event(), []

    def ask(_: LeaseTerms) -> str | None:
        asked.append(1)
        gate.wait(30)
        return None

    now = [0.0]
    lease = JobLease(TERMS, ask, lambda: now[0])
    for second in range(0, 180, 5):
        now[0] = float(second)
        assert lease.look() is None
    assert len(asked) == 1
    gate.set()


def test_a_fleet_says_its_lease_in_its_configuration(tmp_path: Path) -> None:
    path = tmp_path / "slurm.conf"
    env = {"SLURM_CONF": str(path), "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "box-1"}
    path.write_text(placed(slurm_conf(FleetConf("f", "head", "10.0.0.1", 0)), tmp_path, "", "/usr/bin/scontrol"))
    assert terms(env) == TERMS
    path.write_text(placed(slurm_conf(FleetConf("f", "head", "10.0.0.1", 0, lease_s=0)), tmp_path, "", "/bin/scontrol"))
    assert terms(env) is None
    assert terms({"SLURM_JOB_ID": "7"}) is None
    assert terms({**env, "SLURM_CONF": str(tmp_path / "none")}) is None


def test_what_is_heard(tmp_path: Path) -> None:
    program = tmp_path / "scontrol"
    program.write_text('#!/bin/sh\necho "JobState=RUNNING of $3"\n')
    program.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as head:
        at = TERMS._replace(controller=("127.0.0.1", head.getsockname()[1]), scontrol=str(program))
        assert hear(at) == "JobState=RUNNING of 7\n"
        program.write_text("#!/bin/sh\nexec sleep 60\n")
        assert hear(at._replace(lease_s=4.0)) is None
        assert hear(at._replace(scontrol=str(tmp_path / "none"))) is None
    assert hear(at) == ""

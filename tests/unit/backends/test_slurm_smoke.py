"""What srun said on a real cluster (22.05.8), and what it means."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.backends.slurm.smoke import (
    MEANING,
    Outcome,
    SmokeJob,
    Verdict,
    clean_environment,
    judge,
    queued_id,
    render,
)

NO = "srun: error: Unable to allocate resources: "
QUEUED = "srun: job 14 queued and waiting for resources\n" + NO + "Requested nodes are busy\n"
POLICY = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"


@pytest.mark.parametrize(
    ("err", "reason", "verdict"),
    [
        pytest.param(QUEUED, "Resources", Verdict(Outcome.BUSY), id="all GPUs taken"),
        pytest.param(QUEUED, "Priority", Verdict(Outcome.BUSY), id="others are before it"),
        pytest.param(NO + "Requested nodes are busy\n", "", Verdict(Outcome.BUSY), id="at once or not at all"),
        pytest.param(
            "srun: Requested partition configuration not available now\n" + QUEUED, "PartitionTimeLimit",
            Verdict(Outcome.REFUSED, "its time limit is longer than the partition allows (PartitionTimeLimit)"),
            id="the partition's time limit",
        ),
        pytest.param(
            "srun: Requested partition configuration not available now\n" + QUEUED, "",
            Verdict(Outcome.REFUSED, "Requested partition configuration not available now"), id="and nobody says why",
        ),
        pytest.param(
            QUEUED, "QOSGrpGRES",
            Verdict(Outcome.REFUSED, "as much as its QOS allows is in use: GPUs or the like (QOSGrpGRES)"),
            id="the QOS has no GPUs left",
        ),
        pytest.param(
            "srun: Required node not available (down, drained or reserved)\n" + QUEUED,
            "ReqNodeNotAvail, UnavailableNodes:l40s-1",
            Verdict(Outcome.REFUSED, "a node that it needs is down, drained or reserved "
                                     "(ReqNodeNotAvail, UnavailableNodes:l40s-1)"),
            id="drained",
        ),
        pytest.param(
            QUEUED, "Job's account not permitted to use this partition (gpu-l40s allows zzz not inference)",
            Verdict(Outcome.REFUSED, "Job's account not permitted to use this partition "
                                     "(gpu-l40s allows zzz not inference)"),
            id="a sentence for a reason",
        ),
        pytest.param(
            "srun: error: invalid partition specified: nopart\n" + NO + "Invalid partition name specified\n", "",
            Verdict(Outcome.REFUSED, "Invalid partition name specified (invalid partition specified: nopart)"),
            id="no such partition",
        ),
        pytest.param(
            NO + "Invalid qos specification\n", "", Verdict(Outcome.REFUSED, "Invalid qos specification"), id="no QOS"
        ),
        pytest.param(
            "srun: error: QOSMaxGRESPerJob\n" + NO + POLICY + "\n", "",
            Verdict(Outcome.REFUSED, f"{POLICY} (QOSMaxGRESPerJob)"), id="a limit of the QOS",
        ),
        pytest.param(
            NO + "Required partition not available (inactive or drain)\n", "",
            Verdict(Outcome.REFUSED, "Required partition not available (inactive or drain)"), id="partition drained",
        ),
        pytest.param(
            NO + "Unable to contact slurm controller (connect failure)\n", "",
            Verdict(Outcome.TIMEOUT, "the scheduler did not answer: "
                                     "Unable to contact slurm controller (connect failure)"),
            id="controller down",
        ),
        pytest.param(
            NO + "Socket timed out on send/recv operation\n", "",
            Verdict(Outcome.TIMEOUT, "the scheduler did not answer: Socket timed out on send/recv operation"),
            id="controller frozen",
        ),
    ],
)  # fmt: skip
def test_what_was_not_allocated(err: str, reason: str, verdict: Verdict) -> None:
    assert judge(1, "", err, reason) == verdict


@pytest.mark.parametrize(
    ("code", "err", "verdict"),
    [
        pytest.param(
            140,
            "srun: error: slurm_receive_msgs: [[10.1.1.14]:25604] failed: Socket timed out on send/recv operation\n"
            "srun: error: Task launch for StepId=30.0 failed on node l40s-2: Socket timed out on send/recv operation\n"
            "srun: error: Application launch failed: Socket timed out on send/recv operation\nsrun: Job step aborted\n",
            Verdict(Outcome.TIMEOUT, "the node did not answer: Socket timed out on send/recv operation"),
            id="a frozen node",
        ),
        pytest.param(
            2,
            "/usr/bin/python3: can't open file '/no/node.pyz': [Errno 2] No such file or directory\n"
            "srun: error: l40s-1: task 0: Exited with exit code 2\n",
            Verdict(Outcome.FAILED, "/usr/bin/python3: can't open file '/no/node.pyz': "
                                    "[Errno 2] No such file or directory"),
            id="the program is not there",
        ),
        pytest.param(
            2,
            "srun: error: a100-1: task 0: Exited with exit code 2\n"
            "slurmstepd-a100-1: error: execve(): python3: No such file or directory\n",
            Verdict(Outcome.FAILED, "slurmstepd-a100-1: error: execve(): python3: "
                                    "No such file or directory"),
            id="no Python",
        ),
        pytest.param(
            143,
            "srun: Job step aborted: Waiting up to 4 seconds for job step to finish.\n"
            "slurmstepd-l40s-1: error: *** STEP 28.0 ON l40s-1 CANCELLED AT 2026-11-21T06:20:18 DUE TO TIME LIMIT ***\n"
            "srun: error: l40s-1: task 0: Terminated\n",
            Verdict(Outcome.TIMEOUT, "the test did not end within its time limit"), id="Slurm's own limit",
        ),
        pytest.param(
            143, "slurmstepd: error: *** STEP 9.0 ON n1 CANCELLED AT 2026-11-21T06:20:18 DUE TO PREEMPTION ***\n",
            Verdict(Outcome.BUSY, "the test was preempted or cancelled"), id="preempted",
        ),
        pytest.param(
            143, "slurmstepd: error: *** STEP 29.0 ON l40s-1 CANCELLED AT 2026-11-21T06:20:20 ***\n",
            Verdict(Outcome.BUSY, "the test was cancelled"), id="cancelled by a person",
        ),
        pytest.param(
            143,
            "slurmstepd: error: *** STEP 9.0 ON n1 CANCELLED AT 2026-11-21T06:20:18 DUE TO NODE FAILURE, SEE LOG ***\n",
            Verdict(Outcome.FAILED, "the node was lost while it was tested"), id="node lost",
        ),
        pytest.param(
            1, "srun: fatal: Unable to process configuration file\n",
            Verdict(Outcome.FAILED, "srun: fatal: Unable to process configuration file"),
            id="no configuration",
        ),
        pytest.param(0, "", Verdict(Outcome.FAILED, "srun ended with 0 and said nothing"), id="nothing at all"),
    ],
)  # fmt: skip
def test_what_said_nothing(code: int, err: str, verdict: Verdict) -> None:
    assert judge(code, "", err) == verdict
    assert not verdict.proved
    assert (verdict.meaning == "the test did not run") == (verdict.outcome is Outcome.FAILED)


@pytest.mark.parametrize(
    ("code", "answer", "verdict"),
    [
        (0, {"outcome": "ok", "devices": [{"name": "NVIDIA H200", "ok": True}], "error": ""},
         Verdict(Outcome.OK, "", ("NVIDIA H200",), proved=True)),
        (1, {"outcome": "broken", "error": "cuInit returned 802\n (not ready)", "devices": []},
         Verdict(Outcome.FAILED, "cuInit returned 802 (not ready)", (), proved=True)),
        (1, {"outcome": "broken", "error": "GPU 1: 214", "devices": [
            {"name": "A", "ok": True, "address": "0000:1A:00.0"},
            {"name": "B", "ok": False, "address": "0000:3B:00.0"}]},
         Verdict(Outcome.FAILED, "GPU 1: 214", ("A", "B"), "0000:3b:00", proved=True)),
        (3, {"outcome": "no-cuda", "error": "no libcuda.so.1"},
         Verdict(Outcome.NO_CUDA, "no libcuda.so.1", (), proved=True)),
        (4, {"outcome": "timeout", "devices": None}, Verdict(Outcome.TIMEOUT, "", (), proved=True)),
        (3, {"outcome": "a word of a newer program"}, Verdict(Outcome.NO_CUDA, "", (), proved=True)),
        (9, {"outcome": "a word of a newer program"}, Verdict(Outcome.FAILED, "", (), proved=True)),
    ],
)  # fmt: skip
def test_what_the_test_itself_said_goes_before_what_srun_says(
    code: int, answer: dict[str, object], verdict: Verdict
) -> None:
    out = f"welcome to the cluster\n{json.dumps(answer)}\nbye {{}}\n"
    assert judge(code, out, "srun: error: n1: task 0: Exited with exit code 1\n") == verdict


@settings(deadline=None)
@given(st.integers(0, 255), st.text(max_size=200), st.text(max_size=200), st.text(max_size=40))
def test_every_answer_is_one_of_six_outcomes(code: int, out: str, err: str, reason: str) -> None:
    verdict = judge(code, out, err, reason)
    assert verdict.outcome in MEANING
    assert "\n" not in verdict.detail


def test_what_is_sent() -> None:
    job = SmokeJob("remuda-smoke.x.a1", "a1", "gpu", ("python3", "x.pyz"), gpus=2, timeout_s=61, qos="low",
                   env=(("A", "b c"),))  # fmt: skip
    assert render(job) == (
        "srun", "--job-name=remuda-smoke.x.a1", "--nodelist=a1", "--partition=gpu", "--qos=low", "--gres=gpu:2",
        "--time=2", "--immediate=10", "--nodes=1", "--ntasks=1", "--cpus-per-task=1", "--mem=1G", "--chdir=/",
        "--export=NONE", "--input=none", "--kill-on-bad-exit=1", "/usr/bin/env",
        "PATH=/usr/local/bin:/usr/bin:/bin", "A=b c", "python3", "x.pyz",
    )  # fmt: skip


def test_a_node_without_gpus_is_asked_for_none() -> None:
    assert not [word for word in render(SmokeJob("n", "c1", "cpu", ("x",), gpus=0)) if "gres" in word]


def test_srun_does_not_become_a_step_of_the_job_it_is_typed_in() -> None:
    env = {"SLURM_JOB_ID": "7", "SLURM_CONF": "/c", "SLURM_NODELIST": "n1", "PATH": "/bin", "SLURM_CLUSTERS": "a"}
    assert clean_environment(env) == {"SLURM_CONF": "/c", "PATH": "/bin", "SLURM_CLUSTERS": "a"}


def test_the_job_that_waited_is_found() -> None:
    assert queued_id(QUEUED) == "14"
    assert queued_id(NO + "Requested nodes are busy") == ""

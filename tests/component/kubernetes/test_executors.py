"""Executors on a stand-in of a Kubernetes cluster: functions in images that have no remuda, and the words of EKS."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import pytest
from tests.component.kubernetes.test_runs import OnJobs
from tests.conftest import until

from remuda import EKSExecutor, Executor
from remuda.base.errors import NotFound
from remuda.client.api import eks
from remuda.testing.kube import KubeBed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Home

QUICK: dict[str, Any] = {"backoff_base": 0.1, "backoff_max": 0.2, "kill_grace": 5, "gpu_check": False}
FITS = """\
import json, os, time
from pathlib import Path


def fit(lr):
    print("begun", flush=True)
    meets = os.environ.get("REMUDA_RENDEZVOUS")
    return {"rank": int(os.environ["REPLICA_RANK"]), "lr": lr, "file": __file__, "meets": meets}


def fails(at):
    if os.environ["REPLICA_RANK"] == str(at):
        raise ValueError("NaN")
    time.sleep(600)


def waits():
    print("begun", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def jobs(home: Home, tmp_path: Path) -> Iterator[OnJobs]:
    with KubeBed(tmp_path / "bed") as bed:
        yield OnJobs(home, bed)


@pytest.fixture
def fits(jobs: OnJobs, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of this machine, with a host that this process asks."""
    (jobs.home.root / "fits.py").write_text(FITS)
    monkeypatch.syspath_prepend(jobs.home.root)
    for name, value in {**jobs.home.env, "REMUDA_HOME": str(jobs.home.paths.root)}.items():
        monkeypatch.setenv(name, value)
    jobs.home.run("host", "start")
    return importlib.reload(importlib.import_module("fits"))


def test_a_function_runs_in_an_image_without_remuda(jobs: OnJobs, fits: Any) -> None:
    executor = Executor.of("kubernetes", image="python:3.12", **QUICK)
    handles = executor.launch_replicas(2, fits.fit, {"lr": 0.5}, timeout=600)
    found = executor.collect(handles, timeout=120)
    files = "/remuda/run/files/fits.py"
    assert [(one["status"], one["exit_code"], one["result"]) for one in found] == [
        ("succeeded", 0, {"rank": rank, "lr": 0.5, "file": files, "meets": None}) for rank in range(2)
    ]  # fmt: skip
    assert Executor.attach(handles[0].job_name) == handles
    assert executor.collect(Executor.attach(handles[0].job_name)) == found
    with pytest.raises(NotFound, match="nothing is called 'nobody'"):
        Executor.attach("nobody")


def test_a_function_that_fails_says_so(jobs: OnJobs, fits: Any) -> None:
    executor = EKSExecutor("python:3.12", cpu_request="1", memory_request="64Mi", **QUICK)
    handles = executor.launch_replicas(2, "fits:fails", {"at": 1, "rank_env": "RANK"})
    found = executor.collect(handles, timeout=120)
    assert [(one["status"], one["exit_code"]) for one in found] == [("cancelled", None), ("failed", 1)]
    assert executor.stream_logs(handles[1]).splitlines()[-1] == "ValueError: NaN"
    assert handles[0].job_name.startswith("diloco-")


def test_the_words_of_eks_from_launch_to_cancel(jobs: OnJobs, fits: Any) -> None:
    jobs.bed.add_node("t4", gpus=2, labels={eks.INSTANCE: "g4dn.xlarge"})
    script = 'echo "$LR $REMUDA_RENDEZVOUS"; exec sleep 600'
    executor = EKSExecutor(
        "reg/t:1", command=["sh", "-c", script], cpu_request="1", memory_request="64Mi", run_id="exp", **QUICK
    )
    handles = executor.launch_replicas(2, fits.waits, {"lr": 0.5, "rendezvous_uri": "s3://b/x"}, gpu="T4")
    until(lambda: [executor.poll(handle) for handle in handles] == ["running"] * 2, "both run")
    until(lambda: executor.stream_logs(handles[1]) == "0.5 s3://b/x", "its command runs")
    pods = jobs.items("pods")
    assert {pod["spec"]["nodeName"] for pod in pods} == {"t4"}
    assert pods[0]["spec"]["containers"][0]["resources"] == {
        "limits": {"memory": "67108864", "nvidia.com/gpu": "1"},
        "requests": {"memory": "67108864", "nvidia.com/gpu": "1", "cpu": "1"},
    }
    assert {job["spec"]["ttlSecondsAfterFinished"] for job in jobs.items("jobs")} == {3600}
    assert handles[0].metadata["rendezvous_uri"] == "s3://b/x"
    for handle in handles:
        executor.cancel(handle)
    assert [executor.poll(handle) for handle in handles] == ["cancelled"] * 2
    assert (jobs.items("jobs"), jobs.items("pods")) == ([], [])
    assert handles[0].job_name.startswith("exp-")

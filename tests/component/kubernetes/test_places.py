"""What a document says of where its pods run, on a stand-in of a cluster: queues, mounts, Secrets, users."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.component.kubernetes.test_runs import FOREVER, OnJobs
from tests.conftest import until

from remuda.testing.kube import KubeBed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Home

KUEUE = "kueue.x-k8s.io/queue-name"


@pytest.fixture
def jobs(home: Home, tmp_path: Path) -> Iterator[OnJobs]:
    with KubeBed(tmp_path / "bed") as bed:
        yield OnJobs(home, bed)


def let(jobs: OnJobs, *, suspend: bool) -> None:
    """Do to the one Job what Kueue does."""
    (job,) = jobs.items("jobs")
    patch = json.dumps({"spec": {"suspend": suspend}})
    jobs.kubectl("patch", "job", job["metadata"]["name"], "--type", "merge", "-p", patch)


def until_it_waits(jobs: OnJobs, begins: str = "") -> None:
    said = f"{begins}waits for queue gpus (kubectl get workloads says for what)"
    until(lambda: jobs.home.task("train", "script/0")["reason"] == said, "it waits for its queue")


def test_a_queue_lets_it_start_and_takes_its_place_back(jobs: OnJobs) -> None:
    shown = jobs.start(FOREVER, "--queue", "gpus", "--dry-run").stdout
    assert KUEUE not in shown, "Kueue would let it start before it is recorded"
    jobs.start(FOREVER, "--queue", "gpus")
    until_it_waits(jobs)
    (job,) = jobs.items("jobs")
    assert (job["spec"]["suspend"], job["metadata"]["labels"][KUEUE], jobs.items("pods")) == (True, "gpus", [])
    let(jobs, suspend=False)
    jobs.until_begun()
    let(jobs, suspend=True)
    until_it_waits(jobs, "put back into the queue by the scheduler: ")
    assert jobs.items("pods") == []
    let(jobs, suspend=False)
    until(lambda: jobs.home.run("logs", "train").stdout.split().count("begun") == 2, "it prints again")
    assert (len(jobs.items("pods")), jobs.run()["attempt"], jobs.home.task("train", "script/0")["failures"]) == (
        1,
        1,
        0,
    )
    assert jobs.home.run("stop", "train").stderr.splitlines()[-1] == "train is stopped"
    assert (jobs.items("jobs"), jobs.items("pods")) == ([], [])


@pytest.mark.parametrize("what", ["hang", "500-after"])
def test_a_host_that_is_killed_while_it_queues_one(jobs: OnJobs, what: Any) -> None:
    trouble = jobs.bed.trouble(what, "PATCH", "/jobs/")
    jobs.start(FOREVER, "--queue", "gpus")
    until(lambda: trouble.times == 0, "it is on its way")
    jobs.home.kill_host()
    jobs.home.run("status", "train")
    until_it_waits(jobs)
    (job,) = jobs.items("jobs")
    assert (job["spec"]["suspend"], job["metadata"]["labels"][KUEUE], jobs.run()["attempt"]) == (True, "gpus", 1)
    jobs.home.run("stop", "train")


def test_claims_are_mounted_and_a_secret_of_the_namespace_is_a_variable(jobs: OnJobs) -> None:
    for claim in ("data", "shared"):
        (jobs.bed.kubelet.claims / claim).mkdir(parents=True)
        (jobs.bed.kubelet.claims / claim).chmod(0o777)
    (jobs.bed.kubelet.claims / "data/rows").write_text("one\n")
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hub"}}
    jobs.kubectl("create", "-f", "-", text=json.dumps({**secret, "stringData": {"token": "hunter2-hunter2"}}))
    (jobs.home.root / "train.sh").write_text(
        '#!/bin/bash\ncat /data/rows; echo "$(id -u) ${#TOKEN}"; touch /data/x && echo wrong; touch /out/x\n'
    )
    (jobs.home.root / "train.yaml").write_text(json.dumps({
        "kind": "run", "script": "train.sh", "secret_env": {"TOKEN": {"secret": "hub/token"}},
        "backend": {"type": "kubernetes", "image": "reg/t:1", "mounts": ["data:/data:ro", "shared:/out"],
                    "security": "restricted", "run_as_user": 1000},
    }))  # fmt: skip
    jobs.home.run("run", "train.yaml", "--wait")
    said = jobs.home.run("logs", "train").stdout.splitlines()
    assert (said[:2], "wrong" in said) == (["one", "1000 15"], False)
    assert (jobs.bed.kubelet.claims / "shared/x").stat().st_uid == 1000
    (pod,) = jobs.items("pods")
    assert pod["spec"]["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    told = [path for path in jobs.home.paths.root.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]
    assert told == []


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--security", "restricted"), "container has runAsNonRoot and image will run as root"),
        (("-s", "secret_env.KEY.secret=hub/token"), 'secret "hub" not found'),
    ],
)
def test_what_the_cluster_has_not_ends_it_with_its_words(jobs: OnJobs, flags: tuple[str, ...], said: str) -> None:
    jobs.start("#!/bin/bash\ntrue\n", *flags)
    jobs.until_phase("FAILED")
    assert said in jobs.home.run("explain", "train").stdout


def test_the_defaults_file_says_what_holds_for_every_run_there(jobs: OnJobs) -> None:
    (jobs.home.paths.root / "defaults.yaml").write_text("kubernetes: {image: reg/usual:1, queue: gpus, ttl: 2h}\n")
    (jobs.home.root / "train.sh").write_text("#!/bin/bash\ntrue\n")
    shown = jobs.home.run("run", "train.sh", "--backend", "kubernetes", "--ttl", "3h", "--dry-run").stdout
    assert '"image": "reg/usual:1"' in shown
    assert '"remuda.dev/queue": "gpus"' in shown
    assert '"ttlSecondsAfterFinished": 10800' in shown
    assert "usual" not in jobs.home.run("run", "train.sh", "--backend", "local", "--dry-run").stdout

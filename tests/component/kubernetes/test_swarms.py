"""`remuda up` on a stand-in of a Kubernetes cluster: replicas are pods; router and relay, processes of this machine."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.component.kubernetes.test_runs import OnJobs
from tests.component.slurm.test_swarms import ask, tasks, wait_all
from tests.conftest import until

from remuda.testing.kube import KubeBed, podspec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Home

ROOT = Path(__file__).parents[3]
BACKEND = {"type": "kubernetes", "image": "reg/engine:1"}
NOWHERE = "192.0.2.7"
"""An address of documentation: nobody has it."""


@pytest.fixture
def jobs(home: Home, tmp_path: Path) -> Iterator[OnJobs]:
    with KubeBed(tmp_path / "bed") as bed:
        yield OnJobs(home, bed)


def document(jobs: OnJobs, **changes: Any) -> str:
    said = {"backend": BACKEND, "env": {"PYTHONPATH": str(ROOT)}, **changes}
    return str(jobs.home.swarm("herd", **said))


def test_a_swarm_from_start_to_end(jobs: OnJobs) -> None:
    home, file = jobs.home, document(jobs)
    home.run("up", "-c", file)
    now = wait_all(home, {"replica/0": 1, "replica/1": 1})
    assert {name: task["role"] for name, task in now.items()} == {
        "replica/0": "replica", "replica/1": "replica", "router/0": "router", "relay/0": "relay",
    }  # fmt: skip
    pods = {one["metadata"]["labels"]["job-name"]: one for one in jobs.items("pods")}
    assert {now[name]["native"] for name in ("replica/0", "replica/1")} == {*pods}, "a Job each, and none for the rest"
    assert {one["spec"]["containers"][0]["image"] for one in pods.values()} == {"reg/engine:1"}
    assert {one["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] for one in pods.values()} == {"1"}
    assert all(now[name]["url"].startswith("http://127.0.0.1:") for name in pods and ("replica/0", "replica/1"))
    assert home.view("herd")["endpoint"] == now["relay/0"]["url"]
    assert ask(home)

    view = home.view("herd")
    home.run("up", "-c", file)
    assert home.view("herd")["uid"] == view["uid"], "typed again, it is the same"
    home.run("scale", "herd", "3")
    wait_all(home, {"replica/2": 1})
    home.run("scale", "herd", "1")
    until(lambda: len(jobs.items("jobs")) == 1, "the others left the cluster")
    (home.root / "in.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b"}\n')
    home.run("job", "submit", "completion", "--name", "herd", "--input", "in.jsonl", "--output", "out.jsonl")
    assert [json.loads(line)["error"] for line in (home.root / "out.jsonl").read_text().splitlines()] == [None, None]
    assert home.run("logs", "herd", "--replica", "0").stdout, "its output comes from the pod"
    assert "herd is down" in home.run("down", "herd").stderr
    assert (jobs.items("jobs"), jobs.items("pods")) == ([], [])


def test_a_pod_that_is_lost_is_replaced_and_the_address_stays(jobs: OnJobs) -> None:
    home = jobs.home
    home.run("up", "-c", document(jobs))
    before, endpoint = tasks(home), home.view("herd")["endpoint"]
    jobs.bed.kubelet.kill(
        next(one["metadata"]["name"] for one in jobs.items("pods")
             if one["metadata"]["labels"]["job-name"] == before["replica/1"]["native"]),
        "OOMKilled",
    )  # fmt: skip
    now = wait_all(home, {"replica/1": 2})
    assert (now["replica/0"]["attempt"], home.view("herd")["endpoint"]) == (1, endpoint)
    assert "used more memory than it had asked for" in home.run("explain", "herd").stdout
    assert ask(home)
    home.kill_host()
    at = time.time()
    home.run("host", "start")
    until(lambda: min(task["last_seen"] for task in tasks(home).values()) > at, "the next host hears its pods")
    assert tasks(home)["replica/0"]["attempt"] == 1
    home.run("down", "herd")


def test_one_replica_without_a_router(jobs: OnJobs) -> None:
    jobs.home.run("up", "-c", document(jobs, replicas=1, router="none", gpus_per_replica=0))
    assert jobs.home.view("herd")["endpoint"] == tasks(jobs.home)["relay/0"]["url"]
    assert ask(jobs.home)
    jobs.home.run("down", "herd")


@pytest.mark.parametrize("router", ["smg", "none"])
def test_a_replica_that_is_well_and_not_reached_fails_up_with_that_sentence(
    jobs: OnJobs, router: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(podspec, "LOOPBACK", NOWHERE)
    done = jobs.home.run("up", "-c", document(jobs, replicas=1, router=router), check=False)
    assert done.returncode == 1
    said = done.stderr.splitlines()
    (first,) = (line for line in said if line.startswith("error: "))
    assert first.startswith("error: herd is FAILED: replica/0: well by its own report, and not reached from ")
    assert f"at http://{NOWHERE}:" in first
    assert first.endswith("run the host in the cluster, or on a machine that reaches the addresses of pods")
    until(lambda: jobs.items("pods") == [], "nothing holds a GPU that nobody reaches")


def test_a_dry_run_is_what_kubectl_takes_and_says_what_is_started_here(jobs: OnJobs, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("hunter2-hunter2\n")
    file = document(jobs, api_key={"file": str(key)})
    done = jobs.home.run("up", "-c", file, "--dry-run")
    lines = done.stdout.splitlines()
    assert {"# herd.replica.0.1", "# herd.router.0.1", "# herd.relay.0.1"} <= {
        " ".join(line.split()[:2]).rpartition(".")[0] for line in lines if line.startswith("# herd.")
    }  # fmt: skip
    assert any(line.startswith("# ") and " remuda.enter relay " in line for line in lines)
    assert "hunter2" not in done.stdout
    assert jobs.items("jobs") == []
    jobs.kubectl("create", "-f", "-", text=done.stdout)
    (job,) = jobs.items("jobs")
    assert job["spec"]["suspend"] is True


def test_its_key_is_in_secrets_alone(jobs: OnJobs, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("hunter2-hunter2\n")
    jobs.home.run("up", "-c", document(jobs, replicas=1, api_key={"file": str(key)}))
    for kind in ("jobs", "pods", "configmaps", "events"):
        assert "hunter2" not in json.dumps(jobs.items(kind)), kind
    jobs.home.run("down", "herd")


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "image": ({"backend": "kubernetes"}, "a swarm on Kubernetes needs an image of a registry, and there is none"),
    "file": (
        {"image": "/images/vllm.sif", "backend": "kubernetes"},
        "a swarm on Kubernetes needs an image of a registry, and the image '/images/vllm.sif' is a file",
    ),
    "profile": ({"profile": "10Hz"}, "recordings of GPUs do not come back from pods yet"),
    "key": ({"backend": {**BACKEND, "namspace": "ml"}}, "unknown key 'namspace'"),
    "namespace": ({"backend": {**BACKEND, "namespace": "nowhere"}}, 'namespaces "nowhere" not found'),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused_before_it_is_sent(jobs: OnJobs, name: str) -> None:
    changes, said = WRONG[name]
    done = jobs.home.run("up", "-c", document(jobs, **changes), check=False)
    assert done.returncode == 2
    assert said in done.stderr
    looked = jobs.home.run("preflight", "herd.yaml", check=False)
    assert said in looked.stdout + looked.stderr
    assert jobs.items("jobs") == []

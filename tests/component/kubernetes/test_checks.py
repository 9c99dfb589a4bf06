"""What a cluster is asked before anything is accepted for it, and what is told of one that does not answer."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.component.kubernetes.test_runs import FOREVER, OnJobs
from tests.conftest import until
from tests.ports import free_port

from remuda.backends.kubernetes.checking import RIGHTS
from remuda.testing.kube import KubeBed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Home

DONE = "#!/bin/bash\ntrue\n"
NOBODY = re.compile(
    r"error: the cluster does not answer: the API server https://127\.0\.0\.1:\d+ cannot be reached: .*\n"
    r"  nothing was accepted; it is context stand-in of .*, and kubectl cluster-info asks the same\n"
)


@pytest.fixture
def jobs(home: Home, tmp_path: Path) -> Iterator[OnJobs]:
    with KubeBed(tmp_path / "bed") as bed:
        yield OnJobs(home, bed)


def lead(jobs: OnJobs, server: str) -> None:
    """Let the context lead to another server."""
    file = jobs.bed.kubeconfig()
    config = json.loads(file.read_text())
    config["clusters"][0]["cluster"]["server"] = server
    file.write_text(json.dumps(config))


def test_a_cluster_that_does_not_answer_is_told_before_anything_is_accepted(jobs: OnJobs) -> None:
    lead(jobs, f"https://127.0.0.1:{free_port()}")
    done = jobs.start(DONE, check=False)
    assert done.returncode == 5
    assert NOBODY.fullmatch(done.stderr), done.stderr
    assert jobs.home.run("list", "--json").stdout.strip() == "[]"
    (jobs.home.root / "run.yaml").write_text(
        json.dumps({"kind": "run", "script": "train.sh", "backend": "kubernetes", "image": "reg/t:1"})
    )
    done = jobs.home.run("preflight", "run.yaml", check=False)
    assert done.returncode == 1
    assert "the cluster does not answer: the API server https://127.0.0.1:" in done.stdout


def test_what_a_user_may_not_do_is_told_in_one_sentence(jobs: OnJobs) -> None:
    jobs.bed.api.denied |= {("create", "secrets"), ("get", "pods/log"), ("patch", "jobs"), ("delete", "jobs")}
    done = jobs.start(DONE, "--namespace", "default", check=False)
    assert done.returncode == 2
    who = f"context stand-in of {jobs.env['KUBECONFIG']}"
    assert done.stderr.splitlines() == [
        f"error: --namespace: {who} may not patch, delete jobs; get pods/log; create secrets in the namespace default",
        "  kubectl auth can-i --list shows what it may; docs/kubernetes.md has the Role",
    ]
    assert jobs.items("jobs") == []


def test_what_the_server_refuses_is_told_with_the_field(jobs: OnJobs) -> None:
    (jobs.home.root / "train.sh").write_text(DONE)
    (jobs.home.root / "run.yaml").write_text(
        "kind: run\nscript: train.sh\nbackend:\n  type: kubernetes\n  image: reg/t:1\n  namespace: nowhere\n"
    )
    done = jobs.home.run("run", "run.yaml", check=False)
    assert done.returncode == 2
    assert done.stderr.replace(jobs.bed.url, "URL").splitlines()[0].endswith(
        'run.yaml:6:3: the API server URL: namespaces "nowhere" not found'
    )  # fmt: skip
    assert "namespace" in jobs.home.run("preflight", "run.yaml", check=False).stdout


@pytest.mark.parametrize("trouble", ["500", "429"])
def test_a_server_that_has_answered_once_and_then_cannot_keeps_nobody_out(jobs: OnJobs, trouble: Any) -> None:
    jobs.bed.trouble(trouble, "POST", "/selfsubjectaccessreviews", times=1)
    jobs.bed.trouble("500", "POST", "/jobs?dryRun", times=1)
    assert jobs.start(DONE, "--wait").returncode == 0


def test_what_was_never_asked_of_a_cluster_is_over_at_once(jobs: OnJobs) -> None:
    away = jobs.bed.trouble("reset", "POST", "/configmaps", times=1000)
    jobs.start(FOREVER)
    until(lambda: away.times < 1000, "it was asked for the program")
    lead(jobs, f"https://127.0.0.1:{free_port()}")
    began = time.monotonic()
    assert jobs.home.run("stop", "train").stderr.splitlines()[-1] == "train is stopped"
    assert time.monotonic() - began < 20, "a stop that waits for a cluster takes twice that, and does not end so"
    assert "cancelled before it started" in jobs.home.run("explain", "train").stdout


def test_a_context_that_leads_elsewhere_is_noticed(jobs: OnJobs, tmp_path: Path) -> None:
    jobs.start(FOREVER)
    jobs.until_begun()
    with KubeBed(tmp_path / "other") as other:
        theirs = other.kubeconfig().read_text()
        own = jobs.bed.kubeconfig()
        mine = own.read_text()
        own.write_text(theirs)
        jobs.home.run("host", "stop")
        jobs.home.run("host", "start")
        said = f"context stand-in of {own} leads to {other.url} now, and this was sent to {jobs.bed.url}"
        until(lambda: said in jobs.home.run("explain", "train").stdout, "it is told")
        assert jobs.home.task("train", "script/0")["phase"] == "ready", "nothing is concluded from it"
        own.write_text(mine)
    until(lambda: said not in jobs.home.run("explain", "train").stdout, "it is found again")
    assert jobs.home.run("stop", "train").stderr.splitlines()[-1] == "train is stopped"
    assert jobs.items("jobs") == []


def test_rejected_credentials_are_told_where_a_cluster_that_is_gone_has_nothing_left(jobs: OnJobs) -> None:
    def told() -> list[str]:
        checks = json.loads(jobs.home.run("doctor", "--json", check=False).stdout)["checks"]
        return [one["sentence"] for one in checks if one["name"] == "kubernetes"]

    jobs.start(DONE, "--wait")
    assert told() == []
    refused = jobs.bed.trouble("401", "GET", "/jobs", times=1000)
    who = f"the API server {jobs.bed.url} rejects the credentials of context stand-in of {jobs.env['KUBECONFIG']}"
    assert told() == [f"what it runs is unknown: {who}"]
    refused.times = 0
    file = jobs.bed.kubeconfig()
    config = json.loads(file.read_text())
    for entry in config["contexts"]:
        entry["name"] = "another"
    file.write_text(json.dumps(config))
    assert told() == []


def test_a_lost_node_is_explained_with_what_ends_the_wait(jobs: OnJobs) -> None:
    jobs.start(FOREVER)
    pod = jobs.until_begun()
    node = jobs.run()["node"]
    jobs.bed.crash(node)
    until(lambda: "unreachable" in jobs.kubectl("get", "node", node, "-o", "yaml"), "it is missed")
    jobs.bed.later(400)
    said = (
        f"its node {node} does not answer, so that nobody knows whether it has ended, and it may still write: the next "
        f"attempt waits until the node is back, or is removed (kubectl delete node {node}), or the pod is given up "
        f"(kubectl delete pod {pod} --force)"
    )
    until(lambda: said in jobs.home.run("explain", "train").stdout, "it is explained")
    assert jobs.run()["attempt"] == 1
    jobs.kubectl("delete", "node", node)
    until(lambda: jobs.run()["attempt"] == 2 and jobs.run()["state"] == "RUNNING", "it runs elsewhere")
    jobs.home.run("stop", "train")


def test_what_is_alike_is_asked_once(jobs: OnJobs) -> None:
    for name in ("a", "b", "c"):
        (jobs.home.root / f"{name}.sh").write_text(DONE)
    jobs.home.run("run", "a.sh", "b.sh", "c.sh", "--backend", "kubernetes", "--image", "reg/t:1", "--wait")
    asked = [path for _, path in jobs.bed.troubles.asked]
    assert sum("dryRun" in path for path in asked) == 1
    assert sum("selfsubjectaccessreviews" in path for path in asked) == sum(map(len, RIGHTS.values()))

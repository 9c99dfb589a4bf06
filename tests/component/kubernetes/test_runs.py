"""`remuda run` on a stand-in of a Kubernetes cluster: from start to end, and what ends it on the way."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import until

from remuda.node.zipapp import deflated
from remuda.testing.kube import KubeBed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Home

KUBECTL = str(Path(sys.executable).with_name("kubectl"))
FOREVER = "#!/bin/bash\ntrap 'echo saved; exit 0' TERM\necho begun\nwhile :; do sleep 0.05; done\n"
QUICKLY = ("--backoff-base", "0.1", "--backoff-max", "0.2", "--quick-failure", "0")


class OnJobs:
    """A home whose runs go to a cluster."""

    def __init__(self, home: Home, bed: KubeBed) -> None:
        self.home, self.bed = home, bed
        self.env = bed.env()
        home.env |= {"KUBECONFIG": self.env["KUBECONFIG"], "REMUDA_KUBERNETES_POLL_S": "0.3"}

    def kubectl(self, *words: str, text: str | None = None) -> str:
        argv = [KUBECTL, "--cache-dir", str(self.bed.root / "cache"), *words]
        done = subprocess.run(argv, env=self.env, input=text, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def items(self, kind: str) -> list[Any]:
        found: list[Any] = json.loads(self.kubectl("get", kind, "-o", "json"))["items"]
        return found

    def start(
        self, script: str, *flags: str, image: str = "reg/t:1", args: tuple[str, ...] = (), check: bool = True
    ) -> Any:
        (self.home.root / "train.sh").write_text(script)
        words = ("run", "train.sh", "--backend", "kubernetes", "--image", image, *QUICKLY, *flags)
        return self.home.run(*words, *(["--", *args] if args else []), check=check)

    def until_begun(self) -> str:
        """Wait until it prints; name of its pod."""
        until(lambda: "begun" in self.home.run("logs", "train").stdout, "it prints")
        return str(self.items("pods")[-1]["metadata"]["name"])

    def run(self) -> dict[str, Any]:
        told: dict[str, Any] = self.home.view("train")["run"]
        return told

    def until_phase(self, phase: str) -> dict[str, Any]:
        def seen() -> dict[str, Any] | None:
            view = self.home.view("train")
            return view if view["phase"] == phase else None

        return until(seen, f"it is {phase}")


@pytest.fixture
def jobs(home: Home, tmp_path: Path) -> Iterator[OnJobs]:
    with KubeBed(tmp_path / "bed") as bed:
        yield OnJobs(home, bed)


def test_a_run_from_start_to_end(jobs: OnJobs, tmp_path: Path) -> None:
    secret = tmp_path / "key"
    secret.write_text("hunter2-hunter2\n")
    script = '#!/bin/bash\nprintf \'%s|\' "$@" "$PLAIN"; echo; echo "${#KEY}"; echo err >&2\n'
    (jobs.home.root / "train.yaml").write_text(json.dumps({
        "kind": "run", "script": "train.sh", "env": {"PLAIN": "$(HOME)"}, "secret_env": {"KEY": {"file": str(secret)}},
        "backend": {"type": "kubernetes", "image": "reg/t:1", "namespace": "default"}, "gpus": 1, "gpu_check": False,
    }))  # fmt: skip
    (jobs.home.root / "train.sh").write_text(script)
    for node in jobs.items("nodes"):
        assert node["status"]["allocatable"]["nvidia.com/gpu"]
    done = jobs.home.run("run", "train.yaml", "--wait", "--", "a b", "$(HOME)", "$$", "path")
    assert done.stderr.splitlines()[0] == "train is accepted on kubernetes"
    assert jobs.home.run("logs", "train").stdout.splitlines() == ["a b|$(HOME)|$$|path|$(HOME)|", "15", "err"]
    run = jobs.run()
    (job,), (pod,) = jobs.items("jobs"), jobs.items("pods")
    assert (run["job_id"], run["node"]) == (job["metadata"]["name"], pod["spec"]["nodeName"])
    for kind in ("jobs", "pods", "configmaps", "events"):
        assert "hunter2" not in json.dumps(jobs.items(kind)), kind
    folder = jobs.home.paths.workloads / "train"
    told = [path for path in folder.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]
    assert told == []
    said = jobs.home.run("status", "train").stdout
    assert f"job id   {job['metadata']['name']}" in said


def test_a_dry_run_is_what_kubectl_takes(jobs: OnJobs) -> None:
    done = jobs.start("#!/bin/bash\ntrue\n", "--env", 'API_KEY=hunter2-"x', "--dry-run")
    assert "hunter2" not in done.stdout
    assert not jobs.home.paths.socket.exists(), "a dry run starts nothing"
    assert jobs.items("jobs") == []
    jobs.kubectl("create", "-f", "-", text=done.stdout)
    (job,) = jobs.items("jobs")
    assert job["spec"]["suspend"] is True


def test_another_context_that_is_current_later_changes_nothing(jobs: OnJobs) -> None:
    jobs.start(FOREVER)
    pod = jobs.until_begun()
    jobs.kubectl("config", "set-context", "--current", "--namespace=elsewhere")
    jobs.home.run("host", "stop")
    jobs.home.run("host", "start")
    assert jobs.home.run("stop", "train").stderr.splitlines()[-1] == "train is stopped"
    assert jobs.home.run("logs", "train").stdout.splitlines()[:2] == ["begun", "saved"]
    assert jobs.home.task("train", "script/0")["attempt"] == 1
    assert pod not in jobs.kubectl("get", "pods", "--namespace=default", "-o", "name")


def test_stop_lets_it_save_its_work_and_leaves_nothing(jobs: OnJobs) -> None:
    jobs.start(FOREVER)
    jobs.until_begun()
    jobs.home.run("restart", "train")
    until(lambda: jobs.run()["attempt"] == 2 and jobs.run()["state"] == "RUNNING", "it runs again")
    until(lambda: "begun" in jobs.home.run("logs", "train").stdout, "it prints again")
    assert jobs.home.run("stop", "train").stderr.splitlines()[-1] == "train is stopped"
    assert jobs.home.run("logs", "train").stdout.splitlines()[:2] == ["begun", "saved"]
    assert (jobs.items("jobs"), jobs.items("pods")) == ([], [])
    until(lambda: jobs.items("secrets") == [], "secrets go with their Jobs")


def test_a_failure_is_tried_again(jobs: OnJobs) -> None:
    jobs.start("#!/bin/bash\necho begun $REMUDA_ATTEMPT\nexit 3\n", "--max-retries", "1")
    jobs.until_phase("FAILED")
    assert jobs.run()["attempt"] == 2
    said = jobs.home.run("explain", "train").stdout
    assert "script/0 attempt 1: exit code 3 (cause: application)" in said
    assert "| begun 2" in said
    assert len(jobs.items("jobs")) == 2


def test_an_image_that_nobody_has(jobs: OnJobs) -> None:
    jobs.start("#!/bin/bash\ntrue\n", image="missing/t:1")
    jobs.until_phase("FAILED")
    assert "ImagePullBackOff" in jobs.home.run("explain", "train").stdout
    until(lambda: jobs.items("pods") == [], "nothing waits for it any more")


def test_an_image_without_python(jobs: OnJobs) -> None:
    jobs.start("#!/bin/bash\ntrue\n", "--python", "/no/python3")
    jobs.until_phase("FAILED")
    assert "the image, which needs Python 3.9 or newer" in jobs.home.run("explain", "train").stdout


@pytest.mark.parametrize(("reason", "said"), [
    ("OOMKilled", "used more memory than it had asked for"),
    ("Error", "killed by SIGKILL, node program and all"),
])  # fmt: skip
def test_memory_is_not_any_sigkill(jobs: OnJobs, reason: str, said: str) -> None:
    jobs.start(FOREVER, "--max-retries", "0")
    jobs.bed.kubelet.kill(jobs.until_begun(), reason)
    jobs.until_phase("FAILED")
    assert said in jobs.home.run("explain", "train").stdout


def test_an_eviction_costs_no_retry(jobs: OnJobs) -> None:
    here = f"{jobs.home.paths.workloads}/train/script-0/attempt-1-*/child.log"
    ends = f"trap 'echo ending; until grep -qs ending {here}; do sleep 0.05; done; echo saved; exit 0' TERM"
    jobs.start(FOREVER.replace("trap 'echo saved; exit 0' TERM", ends), "--max-retries", "0")
    pod = jobs.until_begun()
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": "default"}}
    jobs.kubectl("create", "--raw", f"/api/v1/namespaces/default/pods/{pod}/eviction", "-f", "-", text=json.dumps(body))
    until(lambda: jobs.run()["attempt"] == 2 and jobs.run()["state"] == "RUNNING", "it runs elsewhere")
    assert "attempt 1: preempted" in jobs.home.run("explain", "train").stdout
    (kept,) = jobs.home.paths.workloads.glob("train/*/attempt-1-*/child.log")
    assert {"begun", "ending", "saved"} <= {*kept.read_text().splitlines()}, "its output outlives its pod"


def test_a_person_deletes_its_job(jobs: OnJobs) -> None:
    jobs.start(FOREVER)
    jobs.until_begun()
    jobs.kubectl("delete", "job", jobs.run()["job_id"])
    jobs.until_phase("STOPPED")
    assert "its Job was deleted" in jobs.home.run("explain", "train").stdout


def test_its_time_is_over(jobs: OnJobs) -> None:
    jobs.start(FOREVER, "--time-limit", "1h", "--max-retries", "0")
    jobs.until_begun()
    jobs.bed.later(3700)
    until(lambda: jobs.run()["attempt"] == 2, "it is begun again")
    assert "time limit" in jobs.home.run("explain", "train").stdout


STEPS = [
    ("hang", "POST", "/configmaps", 1),
    ("500-after", "POST", "/jobs", 2),  # the first is only asked beforehand
    ("hang", "POST", "/secrets", 1),
    ("500-after", "POST", "/secrets", 1),
    ("hang", "PATCH", "/jobs/", 1),
    ("500-after", "PATCH", "/jobs/", 1),
]


@pytest.mark.parametrize("step", STEPS)
def test_a_host_that_is_killed_on_the_way(jobs: OnJobs, step: tuple[Any, str, str, int]) -> None:
    trouble = jobs.bed.trouble(*step[:3], times=step[3])
    jobs.start("#!/bin/bash\necho begun\nsleep 1\n")
    until(lambda: trouble.times == 0, "it is on its way")
    jobs.home.kill_host()
    jobs.home.run("status", "train")
    jobs.until_phase("DONE")
    assert jobs.home.run("logs", "train").stdout.splitlines() == ["begun"]
    assert (len(jobs.items("jobs")), len(jobs.items("pods")), jobs.run()["attempt"]) == (1, 1, 1)


def test_a_cluster_that_is_silent_changes_nothing(jobs: OnJobs) -> None:
    jobs.start(FOREVER)
    jobs.until_begun()
    trouble = jobs.bed.trouble("500", "GET", "/jobs", times=8)
    until(lambda: trouble.times <= 0, "it was asked")
    assert (jobs.run()["attempt"], jobs.run()["state"]) == (1, "RUNNING")
    jobs.home.run("stop", "train")


@pytest.mark.parametrize("what", ["hang", "500-after"])
def test_a_host_that_is_killed_while_it_ends_one(jobs: OnJobs, what: Any) -> None:
    jobs.start(FOREVER)
    jobs.until_begun()
    trouble = jobs.bed.trouble(what, "DELETE", "/jobs/")
    with jobs.home.start("stop", "train"):
        until(lambda: trouble.times == 0, "it is asked to end")
        jobs.home.kill_host()
        assert jobs.home.run("stop", "train").stderr.splitlines()[-1] == "train is stopped"
    assert (jobs.items("jobs"), jobs.items("pods"), jobs.run()["attempt"]) == ([], [], 1)


def test_a_right_that_is_missing_is_told_and_leaves_no_job(jobs: OnJobs) -> None:
    jobs.bed.trouble("403", "POST", "/secrets", times=1000)
    jobs.start("#!/bin/bash\ntrue\n", "--max-retries", "0")
    jobs.until_phase("FAILED")
    assert 'User "remuda" cannot create resource "secrets"' in jobs.home.run("explain", "train").stdout
    assert jobs.items("jobs") == []


def test_a_program_that_others_put_there_is_not_started(jobs: OnJobs) -> None:
    name = f"remuda-node-{deflated()[0]}"
    data = {"node.pyz": "UEsFBgAAAAAAAAAAAAAAAAAAAAAAAA=="}
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "immutable": True, "binaryData": data}
    jobs.kubectl("create", "-f", "-", text=json.dumps(other))
    jobs.start("#!/bin/bash\ntrue\n", "--max-retries", "0")
    jobs.until_phase("FAILED")
    assert f"the ConfigMap {name} there is not remuda's" in jobs.home.run("explain", "train").stdout
    assert jobs.items("jobs") == []


def test_a_host_of_another_kubeconfig_is_told_apart(jobs: OnJobs) -> None:
    jobs.home.run("host", "start", env={"KUBECONFIG": "/elsewhere"})
    done = jobs.start("#!/bin/bash\ntrue\n", check=False)
    here = jobs.env["KUBECONFIG"]
    assert done.returncode == 4
    assert done.stderr.splitlines()[0].endswith(f"was started with KUBECONFIG=/elsewhere, and here it is {here}")
    assert jobs.items("jobs") == []
    jobs.start("#!/bin/bash\ntrue\n", "--kubeconfig", here)
    jobs.until_phase("DONE")


def test_the_next_attempt_goes_where_the_first_went(jobs: OnJobs) -> None:
    jobs.start(FOREVER)
    jobs.until_begun()
    jobs.kubectl("config", "set-context", "--current", "--namespace=elsewhere")
    jobs.home.run("restart", "train")
    until(lambda: jobs.run()["attempt"] == 2 and jobs.run()["state"] == "RUNNING", "it runs again")
    (job,) = json.loads(jobs.kubectl("get", "jobs", "--namespace=default", "-o", "json"))["items"]
    assert job["metadata"]["name"] == jobs.run()["job_id"]
    jobs.home.run("stop", "train")


def test_a_directory_that_is_gone_ends_nothing(jobs: OnJobs) -> None:
    jobs.start(FOREVER)
    jobs.until_begun()
    jobs.home.kill_host()
    shutil.rmtree(jobs.home.paths.workloads / "train/script-0")
    jobs.home.run("status", "train")
    trouble = jobs.bed.trouble("500", "GET", "/pods", times=2)
    until(lambda: trouble.times <= 0, "it was asked")
    assert (jobs.run()["attempt"], jobs.run()["state"]) == (1, "RUNNING")
    jobs.home.run("stop", "train")
    assert jobs.items("jobs") == []


def test_who_is_not_known_for_a_while_changes_nothing(jobs: OnJobs) -> None:
    jobs.start(FOREVER)
    jobs.until_begun()
    trouble = jobs.bed.trouble("401", "GET", "/pods", times=8)
    until(lambda: trouble.times <= 0, "it was asked")
    assert (jobs.run()["attempt"], jobs.run()["state"]) == (1, "RUNNING")
    jobs.home.run("stop", "train")


def test_many_read_its_output_at_once(jobs: OnJobs) -> None:
    jobs.start(FOREVER)
    jobs.until_begun()
    with jobs.home.start("logs", "train", "-f") as first, jobs.home.start("logs", "train", "-f") as second:
        assert jobs.home.run("logs", "train").stdout == "begun\n"
        jobs.home.run("stop", "train")
        for reader in (first, second):
            out, _ = reader.communicate(timeout=60)
            assert out.splitlines()[:2] == ["begun", "saved"]


HERE = ("--backend", "kubernetes", "--image", "reg/t:1")
WRONG: dict[tuple[str, ...], str] = {
    ("--backend", "kubernetes"): (
        "error: a run on Kubernetes needs an image\n  --image registry/name:tag, with Python 3.9 or newer in it\n"
    ),
    ("--backend", "local", "--image", "reg/t:1"): (
        "error: --image: `image` is for runs on Kubernetes, and this one is on local\n"
        "  add --backend kubernetes, or leave it out\n"
    ),
    (*HERE, "--nodes", "2"): (
        "error: --nodes: `nodes` is 2, and a pod is on one\n  leave it out, or --backend slurm\n"
    ),
    ("--backend", "kubernetes", "--image", "a b"): (
        "error: --image: `image` must be an image of a registry, not 'a b'\n  write registry/name:tag\n"
    ),
    (
        *HERE,
        "--node-selector",
        "zone",
    ): "error: --node-selector: `node_selector` must be labels KEY=VALUE, not 'zone'\n",
    (*HERE, "--tolerations", "a=b:Never"): (
        "error: --tolerations: `tolerations` must be KEY[=VALUE][:EFFECT], not 'a=b:Never'\n"
        "  e.g. nvidia.com/gpu:NoSchedule\n"
    ),
    (*HERE, "--mounts", "/data:/data"): (
        "error: --mounts: `mounts` must be CLAIM:/path or CLAIM:/path:ro, not '/data:/data'\n"
        "  it is a PersistentVolumeClaim of the namespace; folders of nodes are not mounted\n"
    ),
    (*HERE, "--mounts", "data:/remuda/run"): (
        "error: --mounts: `mounts` cannot be at /remuda/run\n  choose a path of its own, e.g. /data\n"
    ),
    (*HERE, "--security", "baseline"): "error: --security: `security` must be `restricted`, not baseline\n",
    ("--backend", "local", "-s", "secret_env.KEY.secret=hub/token"): (
        "error: --set secret_env.KEY.secret: a Secret is given to what runs on Kubernetes, and this runs on local\n"
        "  write {env: NAME} or {file: PATH}\n"
    ),
    (*HERE, "--namespace", "A B"): (
        "error: --namespace: `namespace` must be a name that Kubernetes takes, not 'A B'\n  use a-z, 0-9, - and .\n"
    ),
    (*HERE, "--profile"): "error: --profile: recordings of GPUs do not come back from pods yet\n  leave it out\n",
    (*HERE, "--context", "prod"): "error: there is no context prod\n  contexts there: stand-in\n",
    (*HERE, "--namespace", "nowhere"): 'error: --namespace: the API server URL: namespaces "nowhere" not found\n',
}


@pytest.mark.parametrize("flags", WRONG)
def test_what_is_refused_before_it_is_sent(jobs: OnJobs, flags: tuple[str, ...]) -> None:
    (jobs.home.root / "train.sh").write_text("#!/bin/bash\ntrue\n")
    done = jobs.home.run("run", "train.sh", *flags, check=False)
    assert (done.returncode, done.stderr.replace(jobs.bed.url, "URL")) == (2, WRONG[flags])
    assert jobs.items("jobs") == []

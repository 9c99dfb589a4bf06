"""The stand-in of a Kubernetes cluster, driven by the real kubectl, does what a real control plane was seen to do."""

from __future__ import annotations

import http.client
import json
import ssl
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import until

from remuda.testing.kube import KubeBed

if TYPE_CHECKING:
    from collections.abc import Iterator

KUBECTL = str(Path(sys.executable).with_name("kubectl"))
JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
FOREVER = "trap 'echo bye; exit 0' TERM; echo here; while :; do sleep 0.05; done"
DEAF = "trap '' TERM; echo here; while :; do sleep 0.05; done"

TABLE = {
    "test_a_gang_of_four_succeeds": (
        "create -f, wait, get -o json, logs -f, describe, delete of an Indexed Job",
        "order of conditions, completedIndexes; labels, hostname, index of pods; documents pass the schema",
    ),
    "test_the_culprit_of_a_failed_gang_stays": (
        "backoffLimit 0, one rank fails",
        "BackoffLimitExceeded; failedIndexes stays empty; those that ran are killed, deleted and counted as failed",
    ),
    "test_an_index_fails_alone": (
        "backoffLimitPerIndex 0",
        "failedIndexes has the rank; the others go on; FailedIndexes",
    ),
    "test_an_index_is_tried_again_after_its_backoff": (
        "backoffLimitPerIndex 1",
        "10 s until the next pod, which counts failures",
    ),
    "test_a_policy_decides_by_exit_code": ("podFailurePolicy", "FailJob ends the Job, and its message names the rule"),
    "test_success_of_one_can_be_enough": ("successPolicy", "rank 0 ends the Job; the others are killed"),
    "test_held_released_and_held_again": ("suspend", "no pods; a fresh startTime; pods go and none counts as failed"),
    "test_deleting_in_the_background_ends_pods": ("DELETE with Background", "pods get SIGTERM, and go"),
    "test_deleting_without_a_policy_leaves_pods": ("DELETE without propagationPolicy", "pods are orphaned and go on"),
    "test_foreground_returns_when_pods_are_gone": ("DELETE with Foreground", "the Job goes after its pods"),
    "test_one_too_many_is_unschedulable": ("5 ranks on 4 GPUs", "4 hold their GPUs; the fifth is Unschedulable"),
    "test_where_a_pod_may_run": ("taints, nodeSelector, affinity", "a pod goes where all of them agree"),
    "test_a_lost_node_keeps_its_pod_until_it_is_deleted": (
        "a node dies",
        "Ready Unknown, deleted by the taint manager after 300 s, stays Terminating; replaced when the node is deleted",
    ),
    "test_a_node_that_is_back_ends_its_pods": ("a node comes back", "ContainerStatusUnknown, 137"),
    "test_deadline_and_ttl": ("activeDeadlineSeconds, ttlSecondsAfterFinished", "DeadlineExceeded; then 404"),
    "test_a_deaf_program_is_killed_after_its_grace": ("SIGTERM and grace", "exit code 137, reason Error"),
    "test_what_a_container_sees": ("volumes, downward API, env", "$(NAME) is replaced, $$ is $, unknown names stay"),
    "test_why_a_pod_waits": ("images and Secrets that are missing", "words of state.waiting, until they are there"),
    "test_how_a_container_ends": ("exit codes and messages", "message, end of the log, OOMKilled, StartError"),
    "test_eviction_replaces_nothing_by_itself": ("pods/eviction", "201, DisruptionTarget, the Job fails"),
    "test_what_is_refused": ("422", "texts of the server"),
    "test_versions_and_conflicts": ("409, put and patch", "AlreadyExists, Conflict, immutable fields, dry runs"),
    "test_lists_in_pages": ("limit and continue", "one snapshot; 410 when it is forgotten"),
    "test_selectors": ("labels and fields", "=, !=, in, notin, exists; fields that are not served: 400"),
    "test_a_watch_tells_what_changed": ("watch", "ADDED, MODIFIED, DELETED; versions rise; BOOKMARK; 410"),
    "test_log_options": ("pods/log", "tailLines, timestamps, sinceTime"),
    "test_troubles": ("401, 403, 429, 500 after it acted, hang, reset", "Status with reason and code, Retry-After"),
    "test_who_may_ask": ("kubeconfig", "a certificate is enough; without one or a token: 401"),
    "test_who_may_do_what": ("SelfSubjectAccessReview", "201, and whether it is allowed"),
    "test_nothing_is_left": ("down", "processes and files are gone"),
}  # fmt: skip
"""Test -> what is asked of the server, and what a real one was seen to do."""


class Kubectl:
    """The real client at a bed, and requests that it does not make."""

    def __init__(self, bed: KubeBed, folder: Path) -> None:
        self.bed, self._cache = bed, str(folder / "cache")
        self._context = ssl.create_default_context(cafile=bed.root / "server.crt")

    def __call__(self, *words: str, doc: object = None, code: int = 0) -> str:
        argv = [KUBECTL, "--cache-dir", self._cache, *words]
        text = None if doc is None else json.dumps(doc)
        done = subprocess.run(
            argv, env=self.bed.env(), input=text, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + (done.stderr if code else "")

    def create(self, doc: object) -> None:
        self("create", "-f", "-", doc=doc)

    def get(self, *words: str) -> Any:
        return json.loads(self("get", *words, "-o", "json"))

    def status(self, job: str) -> Any:
        return self.get("job", job).get("status", {})

    def pods(self, job: str) -> list[Any]:
        """By index."""
        found = self.get("pods", "-l", f"job-name={job}")["items"]
        return sorted(found, key=lambda pod: pod["metadata"]["name"])

    def ask(
        self, method: str, path: str, doc: object = None, content: str = "", timeout: float = 30
    ) -> tuple[int, Any, Any]:
        """A request: status, document (or text) and headers."""
        host, port = self.bed.url.removeprefix("https://").split(":")
        line = http.client.HTTPSConnection(host, int(port), context=self._context, timeout=timeout)
        token = json.loads(self.bed.kubeconfig().read_text())["users"][0]["user"]["token"]
        headers = {"Authorization": f"Bearer {token}", "Content-Type": content or "application/json"}
        try:
            line.request(method, path, None if doc is None else json.dumps(doc), headers)
            answer = line.getresponse()
            text = answer.read().decode()
            is_json = answer.headers["Content-Type"] == "application/json" and "watch=" not in path
            return answer.status, json.loads(text) if is_json else text, answer.headers
        finally:
            line.close()

    def until_running(self, job: str, count: int) -> list[Any]:
        """Wait until that many pods of a Job have begun to print."""
        until(lambda: self.status(job).get("ready") == count, f"{count} pods of {job} are ready")
        found = self.pods(job)
        for pod in found:
            if state_of(pod) == "running":
                self.until_here(pod["metadata"]["name"])
        return found

    def until_here(self, pod: str) -> None:
        until(lambda: "here" in self("logs", pod), f"{pod} prints")

    def until_failed(self, job: str) -> Any:
        self("wait", "--for=condition=failed", f"job/{job}", "--timeout=50s")
        return self.status(job)


@pytest.fixture
def kubectl(tmp_path: Path) -> Iterator[Kubectl]:
    with KubeBed(tmp_path / "bed") as bed:
        yield Kubectl(bed, tmp_path)


def job(
    script: str, count: int = 1, *, name: str = "j", gpus: int = 0, pod: dict[str, Any] | None = None, **spec: Any
) -> Any:
    container: dict[str, Any] = {"name": "main", "image": "reg/t:1", "command": ["sh", "-c", script]}
    container |= {"resources": {"limits": {"nvidia.com/gpu": gpus}}} if gpus else {}
    container |= (pod or {}).pop("container", {})
    inner = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 20, "containers": [container], **(pod or {})}
    outer = {"completionMode": "Indexed", "completions": count, "parallelism": count, "backoffLimit": 0, **spec}
    spec = outer | {"template": {"spec": inner}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def state_of(pod: Any) -> str:
    states = pod["status"].get("containerStatuses", [{"state": {}}])[0]["state"]
    return next(iter(states), "")


def ended(pod: Any) -> Any:
    return pod["status"]["containerStatuses"][0]["state"]["terminated"]


def conditions(doc: Any) -> dict[str, str]:
    return {
        one["type"]: one.get("reason", "") for one in doc["status"].get("conditions", []) if one["status"] == "True"
    }


def test_every_behaviour_has_its_fact() -> None:
    here = {name for name in globals() if name.startswith("test_")}
    assert here - {"test_every_behaviour_has_its_fact"} == set(TABLE)


def test_a_gang_of_four_succeeds(kubectl: Kubectl) -> None:
    import kubernetes_validate

    kubectl.create(job("echo rank $JOB_COMPLETION_INDEX on $HOSTNAME", 4, gpus=1))
    kubectl("wait", "--for=condition=complete", "job/j", "--timeout=50s")
    found = kubectl.get("job", "j")
    status = found["status"]
    assert [one["type"] for one in status["conditions"]] == ["SuccessCriteriaMet", "Complete"]
    assert (status["succeeded"], status["completedIndexes"]) == (4, "0-3")
    assert {"startTime", "completionTime"} <= set(status)
    assert not {"active", "failed", "failedIndexes"} & set(status)
    for index, pod in enumerate(kubectl.pods("j")):
        labels = pod["metadata"]["labels"]
        assert labels["batch.kubernetes.io/job-completion-index"] == str(index)
        assert labels["batch.kubernetes.io/controller-uid"] == found["metadata"]["uid"]
        assert (pod["spec"]["hostname"], pod["status"]["phase"]) == (f"j-{index}", "Succeeded")
        assert kubectl("logs", "-f", pod["metadata"]["name"]) == f"rank {index} on j-{index}\n"
        kubernetes_validate.validate(pod, "1.36", strict=True)
    for version in ("1.29", "1.37"):
        kubernetes_validate.validate(found, version, strict=True)
    said = kubectl("describe", "job", "j")
    assert "4 Succeeded" in said
    assert "Job completed" in said
    kubectl("delete", "job", "j")
    until(lambda: kubectl.pods("j") == [], "its pods are gone")


def test_the_culprit_of_a_failed_gang_stays(kubectl: Kubectl) -> None:
    kubectl.create(job(f"[ $JOB_COMPLETION_INDEX = 2 ] && sleep 0.5 && exit 3; {FOREVER}", 4))
    status = kubectl.until_failed("j")
    assert [(one["type"], one["reason"]) for one in status["conditions"]] == [
        ("FailureTarget", "BackoffLimitExceeded"), ("Failed", "BackoffLimitExceeded"),
    ]  # fmt: skip
    assert (status["failed"], status.get("failedIndexes")) == (4, None)
    until(lambda: len(kubectl.pods("j")) == 1, "the others are deleted")
    (culprit,) = kubectl.pods("j")
    assert (ended(culprit)["exitCode"], ended(culprit)["reason"]) == (3, "Error")


def test_an_index_fails_alone(kubectl: Kubectl) -> None:
    kubectl.create(job("[ $JOB_COMPLETION_INDEX != 1 ]", 4, backoffLimitPerIndex=0))
    status = kubectl.until_failed("j")
    assert (status["completedIndexes"], status["failedIndexes"], status["failed"]) == ("0,2-3", "1", 1)
    assert status["conditions"][-1]["reason"] == "FailedIndexes"


def test_an_index_is_tried_again_after_its_backoff(kubectl: Kubectl) -> None:
    kubectl.create(job("exit 1", backoffLimitPerIndex=1))
    until(lambda: kubectl.status("j").get("failed") == 1, "it failed")
    assert len(kubectl.pods("j")) == 1
    kubectl.bed.later(11)
    assert kubectl.until_failed("j")["failed"] == 2
    counts = {
        pod["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"] for pod in kubectl.pods("j")
    }
    assert counts == {"0", "1"}


def test_a_policy_decides_by_exit_code(kubectl: Kubectl) -> None:
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    kubectl.create(job("exit 42", backoffLimit=6, podFailurePolicy={"rules": [rule]}))
    last = kubectl.until_failed("j")["conditions"][-1]
    (pod,) = kubectl.pods("j")
    assert last["reason"] == "PodFailurePolicy"
    says = "failed with exit code 42 matching FailJob rule at index 0"
    assert last["message"] == f"Container main for pod default/{pod['metadata']['name']} {says}"


def test_success_of_one_can_be_enough(kubectl: Kubectl) -> None:
    policy = {"rules": [{"succeededIndexes": "0"}]}
    kubectl.create(job(f"[ $JOB_COMPLETION_INDEX = 0 ] && exit 0; {FOREVER}", 2, successPolicy=policy))
    kubectl("wait", "--for=condition=complete", "job/j", "--timeout=50s")
    assert kubectl.status("j")["conditions"][-1]["reason"] == "SuccessPolicy"


def test_held_released_and_held_again(kubectl: Kubectl) -> None:
    kubectl.create(job(FOREVER, 2, suspend=True))
    until(lambda: conditions(kubectl.get("job", "j")) == {"Suspended": "JobSuspended"}, "it is held")
    assert (kubectl.pods("j"), kubectl.status("j").get("startTime")) == ([], None)
    kubectl("patch", "job", "j", "-p", '{"spec": {"suspend": false}}')
    kubectl.until_running("j", 2)
    assert kubectl.status("j")["startTime"]
    kubectl("patch", "job", "j", "-p", '{"spec": {"suspend": true}}')
    until(lambda: kubectl.pods("j") == [], "its pods are deleted")
    status = kubectl.status("j")
    assert (status.get("failed", 0), status["active"], status.get("startTime")) == (0, 0, None)


def test_deleting_in_the_background_ends_pods(kubectl: Kubectl) -> None:
    kubectl.create(job(FOREVER, 2))
    kubectl.until_running("j", 2)
    kubectl("delete", "job", "j", "--cascade=background")
    until(lambda: kubectl.pods("j") == [], "its pods are gone")
    assert kubectl.ask("GET", f"{JOBS}/j")[0] == 404


def test_deleting_without_a_policy_leaves_pods(kubectl: Kubectl) -> None:
    kubectl.create(job(FOREVER))
    (pod,) = kubectl.until_running("j", 1)
    status, said, _ = kubectl.ask("DELETE", f"{JOBS}/j")
    assert (status, said["status"], said["details"]["name"]) == (200, "Success", "j")
    left = kubectl.get("pod", pod["metadata"]["name"])
    assert (left["status"]["phase"], left["metadata"].get("ownerReferences")) == ("Running", None)


def test_foreground_returns_when_pods_are_gone(kubectl: Kubectl) -> None:
    kubectl.create(job(FOREVER))
    kubectl.until_running("j", 1)
    kubectl("delete", "job", "j", "--cascade=foreground")
    assert kubectl.pods("j") == []


def test_one_too_many_is_unschedulable(kubectl: Kubectl) -> None:
    kubectl.create(job(FOREVER, 5, gpus=1))
    kubectl.until_running("j", 4)
    assert (kubectl.status("j")["active"], kubectl.status("j")["ready"]) == (5, 4)
    (last,) = [pod for pod in kubectl.pods("j") if pod["status"]["phase"] == "Pending"]
    (one,) = last["status"]["conditions"]
    assert (one["type"], one["status"], one["reason"]) == ("PodScheduled", "False", "Unschedulable")
    assert one["message"] == "0/4 nodes are available: 4 Insufficient nvidia.com/gpu."
    assert "FailedScheduling" in kubectl("describe", "pod", last["metadata"]["name"])


@pytest.mark.parametrize(
    ("pod", "node"),
    [
        ({"nodeSelector": {"gpu": "h100"}}, ""),
        ({"nodeSelector": {"gpu": "h100"}, "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}, "big"),
        ({"nodeSelector": {"kubernetes.io/hostname": "node-3"}}, "node-3"),
        ({"affinity": ("NotIn", ["big", "node-1", "node-2", "node-3"])}, "node-4"),
        ({"affinity": ("In", ["node-2"])}, "node-2"),
        ({"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}, ""),
    ],
)
def test_where_a_pod_may_run(kubectl: Kubectl, pod: dict[str, Any], node: str) -> None:
    kubectl.bed.add_node("big", 8, {"gpu": "h100"})
    taint = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
    kubectl("patch", "node", "big", "-p", json.dumps({"spec": {"taints": [taint]}}))
    if "affinity" in pod:
        how, among = pod["affinity"]
        term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": how, "values": among}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        pod = {"affinity": {"nodeAffinity": required}}
    kubectl.create(job("true", pod=dict(pod)))
    until(
        lambda: [one["status"].get("conditions") for one in kubectl.pods("j")] not in ([], [None]), "it was looked at"
    )
    assert kubectl.pods("j")[0]["spec"].get("nodeName", "") == node


def test_a_lost_node_keeps_its_pod_until_it_is_deleted(kubectl: Kubectl) -> None:
    kubectl.create(job(FOREVER, gpus=1, backoffLimitPerIndex=1, podReplacementPolicy="Failed"))
    (pod,) = kubectl.until_running("j", 1)
    node = pod["spec"]["nodeName"]
    kubectl.bed.crash(node)
    until(
        lambda: kubectl.get("node", node)["status"]["conditions"][0]["status"] == "Unknown", "the node is not heard of"
    )
    until(lambda: kubectl.status("j")["ready"] == 0, "its pod is not ready")
    kubectl.ask("GET", f"{PODS}/{pod['metadata']['name']}/log")
    kubectl.bed.later(301)
    until(lambda: "DisruptionTarget" in conditions(kubectl.pods("j")[0]), "it is to go")
    (lost,) = kubectl.pods("j")
    assert conditions(lost)["DisruptionTarget"] == "DeletionByTaintManager"
    assert (lost["status"]["phase"], kubectl.status("j")["terminating"]) == ("Running", 1)
    kubectl("delete", "node", node)
    until(lambda: kubectl.status("j").get("failed") == 1, "it counts as failed")
    kubectl.bed.later(11)
    (other,) = kubectl.until_running("j", 1)
    assert other["spec"]["nodeName"] != node


def test_a_node_that_is_back_ends_its_pods(kubectl: Kubectl) -> None:
    kubectl.create(job(FOREVER))
    (pod,) = kubectl.until_running("j", 1)
    kubectl.bed.crash(pod["spec"]["nodeName"])
    until(lambda: kubectl.status("j")["ready"] == 0, "its pod is not ready")
    kubectl.bed.revive(pod["spec"]["nodeName"])
    kubectl.until_failed("j")
    assert (ended(kubectl.pods("j")[0])["exitCode"], ended(kubectl.pods("j")[0])["reason"]) == (
        137,
        "ContainerStatusUnknown",
    )


def test_deadline_and_ttl(kubectl: Kubectl) -> None:
    kubectl.create(job(FOREVER, activeDeadlineSeconds=100, ttlSecondsAfterFinished=3600))
    kubectl.until_running("j", 1)
    kubectl.bed.later(101)
    assert kubectl.until_failed("j")["conditions"][-1]["reason"] == "DeadlineExceeded"
    kubectl.bed.later(3601)
    until(lambda: kubectl.ask("GET", f"{JOBS}/j")[0] == 404, "it is gone")


def test_a_deaf_program_is_killed_after_its_grace(kubectl: Kubectl) -> None:
    kubectl.create(job(DEAF, backoffLimit=3, podReplacementPolicy="Failed"))
    (pod,) = kubectl.until_running("j", 1)
    name = pod["metadata"]["name"]
    kubectl("annotate", "pod", name, "keep=yes")
    kubectl("patch", "pod", name, "-p", '{"metadata": {"finalizers": ["example.com/kept"]}}')
    assert kubectl.ask("DELETE", f"{PODS}/{name}?gracePeriodSeconds=1")[0] == 200
    until(lambda: kubectl.get("pod", name)["status"]["phase"] == "Failed", "it is killed")
    assert (ended(kubectl.get("pod", name))["exitCode"], ended(kubectl.get("pod", name))["reason"]) == (137, "Error")
    kubectl("patch", "pod", name, "-p", '{"metadata": {"finalizers": null}}')
    assert kubectl.ask("GET", f"{PODS}/{name}")[0] == 404


def test_what_a_container_sees(kubectl: Kubectl) -> None:
    kubectl.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"key": "hidden"}})
    kubectl.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"run.sh": "echo from $0"}}
    )
    env = [
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "key"}}},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "BOTH", "value": "$(KEY) $$(KEY) $(NONE) $(HOME)"},
    ]
    script = 'sh /remuda/bin/run.sh; cat /remuda/secret/key; echo; echo $NODE; echo "$BOTH"'
    script += "; echo x > /work/dir/x && ls /work/dir"
    script += "; touch /remuda/bin/y 2>/dev/null || echo fixed; stat -c %a /remuda/secret/key; echo $$; echo $0"
    container = {
        "command": ["sh", "-c", script.replace("$$", "$$$$"), "$(KEY)"],
        "env": env,
        "volumeMounts": [
            {"name": "bin", "mountPath": "/remuda/bin"},
            {"name": "secret", "mountPath": "/remuda/secret"},
            {"name": "dir", "mountPath": "/work/dir"},
        ],
    }
    volumes = [
        {"name": "bin", "configMap": {"name": "c"}},
        {"name": "secret", "secret": {"secretName": "s", "defaultMode": 0o400}},
        {"name": "dir", "emptyDir": {}},
    ]
    kubectl.create(job("", pod={"container": container, "volumes": volumes}))
    kubectl("wait", "--for=condition=complete", "job/j", "--timeout=50s")
    (pod,) = kubectl.pods("j")
    assert kubectl("logs", pod["metadata"]["name"]).splitlines() == [
        "from /remuda/bin/run.sh", "hidden", pod["spec"]["nodeName"], "hidden $(KEY) $(NONE) /root", "x",
        "fixed",
        "400", "1", "hidden",
    ]  # fmt: skip
    assert not Path("/remuda").exists()


@pytest.mark.parametrize(
    ("container", "volume", "reason", "says"),
    [
        ({"image": "missing/t:1"}, None, "ImagePullBackOff", 'Back-off pulling image "missing/t:1"'),
        ({"image": "No Such"}, None, "InvalidImageName", "couldn't parse image name"),
        ({"envFrom": [{"secretRef": {"name": "s"}}]}, None, "CreateContainerConfigError", 'secret "s" not found'),
        ({}, {"secret": {"secretName": "s"}}, "ContainerCreating", ""),
    ],
)
def test_why_a_pod_waits(kubectl: Kubectl, container: Any, volume: Any, reason: str, says: str) -> None:
    volumes = [{"name": "v", **volume}] if volume else []
    kubectl.create(job("true", pod={"container": dict(container), "volumes": volumes}))

    def waits() -> Any:
        pods = [pod for pod in kubectl.pods("j") if state_of(pod) == "waiting"]
        return pods and pods[0]["status"]["containerStatuses"][0]["state"]["waiting"]

    until(lambda: (waits() or {}).get("reason") == reason, reason)
    assert says in waits().get("message", "")
    if not container.get("image"):
        kubectl.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}})
    elif reason == "ImagePullBackOff":
        kubectl.bed.kubelet.missing.clear()
    else:
        return
    kubectl("wait", "--for=condition=complete", "job/j", "--timeout=50s")


@pytest.mark.parametrize(
    ("script", "container", "code", "reason", "message"),
    [
        ("echo seven > /dev/termination-log; exit 7", {}, 7, "Error", "seven\n"),
        ("echo last words; exit 1", {"terminationMessagePolicy": "FallbackToLogsOnError"}, 1, "Error", "last words\n"),
        ("kill -9 $$; sleep 9", {"command": ["sh", "-c", "sh -c 'kill -9 $$$$'"]}, 137, "Error", None),
        ("", {"command": ["/no/such/program"]}, 128, "StartError", None),
        (FOREVER, {}, 137, "OOMKilled", None),
    ],
)  # fmt: skip
def test_how_a_container_ends(
    kubectl: Kubectl, script: str, container: Any, code: int, reason: str, message: str | None
) -> None:
    kubectl.create(job(script, pod={"container": dict(container)}))
    if reason == "OOMKilled":
        (pod,) = kubectl.until_running("j", 1)
        kubectl.bed.kubelet.kill(pod["metadata"]["name"])
    kubectl.until_failed("j")
    found = ended(kubectl.pods("j")[0])
    assert (found["exitCode"], found["reason"]) == (code, reason)
    assert message is None or found["message"] == message


def test_eviction_replaces_nothing_by_itself(kubectl: Kubectl) -> None:
    kubectl.create(job(FOREVER))
    (pod,) = kubectl.until_running("j", 1)
    name = pod["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    assert kubectl.ask("POST", f"{PODS}/{name}/eviction?dryRun=All", eviction)[0] == 201
    assert conditions(kubectl.get("pod", name))["Ready"] == ""
    kubectl(
        "patch",
        "pod",
        name,
        "-p",
        '{"metadata": {"finalizers": ["batch.kubernetes.io/job-tracking", "example.com/kept"]}}',
    )
    assert kubectl.ask("POST", f"{PODS}/{name}/eviction", eviction)[0] == 201
    assert kubectl.until_failed("j")["conditions"][-1]["reason"] == "BackoffLimitExceeded"
    assert conditions(kubectl.get("pod", name))["DisruptionTarget"] == "EvictionByEvictionAPI"


@pytest.mark.parametrize(
    ("name", "spec", "container", "says"),
    [
        (
            "a" * 62,
            {},
            {},
            f'metadata.name: Invalid value: "{"a" * 62}-0": will not able to create pod with invalid DNS label',
        ),
        ("A", {}, {}, 'metadata.name: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of'),
        ("j", {"completionMode": "NonIndexed", "backoffLimitPerIndex": 0}, {}, "requires indexed completion mode"),
        ("j", {"parallelism": -1}, {}, "spec.parallelism: Invalid value: -1: must be greater than or equal to 0"),
        (
            "j",
            {"maxFailedIndexes": 1},
            {},
            "spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified",
        ),
        ("j", {}, {"resources": {"limits": {"nvidia.com/gpu": "0.5"}}}, 'Invalid value: "0.5": must be an integer'),
        ("j", {}, {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}, 'volumeMounts[0].name: Not found: "v"'),
        ("j", {}, {"image": ""}, "spec.template.spec.containers[0].image: Required value"),
    ],
)
def test_what_is_refused(kubectl: Kubectl, name: str, spec: Any, container: Any, says: str) -> None:
    code, said, _ = kubectl.ask("POST", JOBS, job("true", name=name, pod={"container": dict(container)}, **spec))
    assert (code, said["kind"], said["reason"], said["code"]) == (422, "Status", "Invalid", 422)
    assert said["message"].startswith(f'Job.batch "{name}" is invalid: ')
    assert says in said["message"]
    assert said["details"]["causes"][0]["field"] in said["message"]


def test_versions_and_conflicts(kubectl: Kubectl) -> None:
    made = kubectl.ask("POST", JOBS, job("true", suspend=True))[1]
    assert kubectl.ask("POST", JOBS, job("true"))[:2][1]["reason"] == "AlreadyExists"
    assert kubectl.ask("POST", f"{JOBS}?dryRun=All", job("true", name="k"))[0] == 201
    assert kubectl.ask("GET", f"{JOBS}/k")[1]["message"] == 'jobs.batch "k" not found'
    until(lambda: conditions(kubectl.get("job", "j")), "it is held")
    code, said, _ = kubectl.ask("PUT", f"{JOBS}/j", made)
    assert (code, said["reason"]) == (409, "Conflict")
    assert said["message"].startswith('Operation cannot be fulfilled on jobs.batch "j": the object has been modified;')
    now = kubectl.get("job", "j")
    now["metadata"]["labels"] = {"a": "b"}
    code, after, _ = kubectl.ask("PUT", f"{JOBS}/j", now)
    assert (code, after["metadata"]["labels"]) == (200, {"a": "b"})
    assert int(after["metadata"]["resourceVersion"]) > int(now["metadata"]["resourceVersion"])
    merge = "application/merge-patch+json"
    code, said, _ = kubectl.ask("PATCH", f"{JOBS}/j", {"spec": {"completionMode": "NonIndexed"}}, merge)
    assert (code, said["message"].split(": ")[-1]) == (422, "field is immutable")
    both = {"spec": {"completions": 3, "parallelism": 3}}
    assert kubectl.ask("PATCH", f"{JOBS}/j", both, merge)[0] == 200
    assert kubectl.ask("PATCH", f"{JOBS}/j", [], "application/json-patch+json")[0] == 415
    assert kubectl.ask("DELETE", f"{JOBS}/j", {"preconditions": {"uid": "other"}})[0] == 409
    assert (
        kubectl.ask("POST", JOBS.replace("default", "other"), job("true"))[1]["message"]
        == 'namespaces "other" not found'
    )


def test_lists_in_pages(kubectl: Kubectl) -> None:
    for name in ("a", "b", "c"):
        kubectl.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
    path = "/api/v1/namespaces/default/configmaps?limit=2"
    first = kubectl.ask("GET", path)[1]
    assert [one["metadata"]["name"] for one in first["items"]] == ["a", "b"]
    assert first["metadata"]["remainingItemCount"] == 1
    kubectl("delete", "configmap", "c")
    more = f"{path}&continue={first['metadata']['continue']}"
    assert [one["metadata"]["name"] for one in kubectl.ask("GET", more)[1]["items"]] == ["c"]
    kubectl.bed.api.expire_pages()
    code, said, _ = kubectl.ask("GET", more)
    assert (code, said["reason"]) == (410, "Expired")


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("labelSelector=a%3D1", "x"), ("labelSelector=a!%3D1", "y z"), ("labelSelector=a+in+(1,2)", "x y"),
        ("labelSelector=a+notin+(1)", "y z"), ("labelSelector=a", "x y"), ("labelSelector=!a", "z"),
        ("labelSelector=a,b%3D1", "y"), ("fieldSelector=metadata.name%3Dx", "x"),
        ("fieldSelector=metadata.name!%3Dx", "y z"),
        ("fieldSelector=data.a%3D1", "400"), ("labelSelector=%3D%3D", "400"),
    ],
)  # fmt: skip
def test_selectors(kubectl: Kubectl, asked: str, found: str) -> None:
    for name, labels in (("x", {"a": "1"}), ("y", {"a": "2", "b": "1"}), ("z", {})):
        doc = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}}
        kubectl.ask("POST", "/api/v1/namespaces/default/configmaps", doc)
    code, said, _ = kubectl.ask("GET", f"/api/v1/namespaces/default/configmaps?{asked}")
    assert (" ".join(one["metadata"]["name"] for one in said["items"]) if code == 200 else str(code)) == found


def test_a_watch_tells_what_changed(kubectl: Kubectl) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    since = kubectl.ask("GET", path)[1]["metadata"]["resourceVersion"]
    kubectl.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
    kubectl("label", "configmap", "a", "x=1")
    kubectl("delete", "configmap", "a")
    asked = f"{path}?watch=true&timeoutSeconds=1&allowWatchBookmarks=true&resourceVersion="
    news = [json.loads(line) for line in kubectl.ask("GET", asked + since)[1].splitlines()]
    assert [one["type"] for one in news] == ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    versions = [int(one["object"]["metadata"]["resourceVersion"]) for one in news]
    assert versions == sorted(versions)
    assert len({*versions[:3]}) == 3
    kubectl.bed.objects.expire_changes()
    code, said, _ = kubectl.ask("GET", asked + since)
    assert (code, said) == (410, said)


def test_log_options(kubectl: Kubectl) -> None:
    kubectl.create(job("seq 3"))
    kubectl("wait", "--for=condition=complete", "job/j", "--timeout=50s")
    path = f"{PODS}/{kubectl.pods('j')[0]['metadata']['name']}/log"
    assert kubectl.ask("GET", f"{path}?tailLines=2")[1] == "2\n3\n"
    lines = kubectl.ask("GET", f"{path}?timestamps=true")[1].splitlines()
    stamps = [line.split()[0] for line in lines]
    assert [line.split()[1] for line in lines] == ["1", "2", "3"]
    assert kubectl.ask("GET", f"{path}?sinceTime={stamps[-1]}")[1].splitlines()[-1] == "3"


def test_troubles(kubectl: Kubectl) -> None:
    bed = kubectl.bed
    bed.trouble("401")
    assert kubectl.ask("GET", JOBS)[1]["reason"] == "Unauthorized"
    bed.trouble("403", "GET", "jobs")
    says = 'User "remuda" cannot list resource "jobs" in API group "batch" in the namespace "default"'
    assert f"Error from server (Forbidden): jobs.batch is forbidden: {says}" in kubectl("get", "jobs", code=1)
    bed.trouble("429", retry_after_s=7)
    code, said, headers = kubectl.ask("GET", JOBS)
    assert (code, headers["Retry-After"], said["details"]["retryAfterSeconds"]) == (429, "7", 7)
    bed.trouble("500-after", "POST")
    assert kubectl.ask("POST", JOBS, job("true"))[:2][1]["reason"] == "InternalError"
    assert kubectl.ask("GET", f"{JOBS}/j")[0] == 200
    bed.trouble("reset")
    with pytest.raises(OSError, match=r"reset|EOF|Remote end"):
        kubectl.ask("GET", JOBS)
    bed.trouble("hang")
    with pytest.raises(TimeoutError):
        kubectl.ask("GET", JOBS, timeout=0.5)
    assert kubectl.ask("GET", JOBS)[0] == 200


def test_who_may_ask(kubectl: Kubectl) -> None:
    config = str(kubectl.bed.kubeconfig("certificate"))
    assert "node-1" in kubectl("--kubeconfig", config, "get", "nodes")
    assert "Unauthorized" in kubectl(
        "--kubeconfig", config.replace("certificate", "token"), "--token=other", "get", "nodes", code=1
    )


def test_who_may_do_what(kubectl: Kubectl) -> None:
    kubectl.bed.api.denied.add(("get", "pods/log"))
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    for verb, resource, below in (("create", "jobs", ""), ("get", "pods", "log"), ("get", "pods", "")):
        asked = {"verb": verb, "resource": resource, "subresource": below, "namespace": "default"}
        code, said, _ = kubectl.ask("POST", path, {"spec": {"resourceAttributes": asked}})
        assert (code, said["status"]["allowed"]) == (201, below != "log")


def test_nothing_is_left(tmp_path: Path) -> None:
    with KubeBed(tmp_path / "bed") as bed:
        kubectl = Kubectl(bed, tmp_path)
        kubectl.create(job(f"sleep 1000 & {DEAF}", 2))
        kubectl.until_running("j", 2)
        kubectl("get", "pods")
    assert not bed.root.exists()
    running = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert [words for words in running if str(bed.root).encode() in words] == []

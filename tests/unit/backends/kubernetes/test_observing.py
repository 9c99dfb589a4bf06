"""What Jobs and Pods say, translated: a row for each thing that was seen of a real control plane."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.backends.base import CHILD_ENDED, Ending, Life, Observed, Stray
from remuda.backends.kubernetes.observing import Seen, observed, strays
from remuda.backends.kubernetes.render import HOME, TOKENS
from remuda.wire.exit import ExitRecord, seal, unseal

T0, T1, T2 = "2026-11-01T10:00:00Z", "2026-11-01T10:00:05Z", "2026-11-01T10:01:00Z"
AT1, AT2 = 1793527205.0, 1793527260.0
TOKEN, KEY = "w.script.0.1.abcdefgh", "k"


def job(
    *conditions: tuple[str, str], suspend: bool = False, deleted: bool = False, queue: str = "", **spec: Any
) -> Any:
    said = [{"type": kind, "status": "True", "reason": why, "message": f"says {why}", "lastTransitionTime": T2}
            for kind, why in conditions]  # fmt: skip
    meta: Any = {"name": "j", "creationTimestamp": T0} | ({"deletionTimestamp": T2} if deleted else {})
    meta |= {"labels": {"kueue.x-k8s.io/queue-name": queue}} if queue else {}
    return {"metadata": meta, "spec": {"suspend": suspend, **spec},
            "status": {"startTime": T1, "completionTime": T2, "conditions": said}}  # fmt: skip


def pod(
    phase: str, *, deleted: bool = False, node: str = "n1", conditions: Any = (), state: Any = None, **status: Any
) -> Any:
    meta = {"name": "j-0-x", "uid": "u", "creationTimestamp": T1, "labels": {"batch.kubernetes.io/job-name": "j"}}
    meta |= {"deletionTimestamp": T2} if deleted else {}
    said = {"phase": phase, "conditions": list(conditions), "startTime": T1, **status}
    said |= {"containerStatuses": [{"state": state}]} if state else {}
    return {"metadata": meta, "spec": {"nodeName": node} if node else {}, "status": said}


def done(code: int, reason: str = "Error", **more: Any) -> Any:
    return {"terminated": {"exitCode": code, "reason": reason, "finishedAt": T2, **more}}


def waiting(reason: str, message: str = "") -> Any:
    return {"waiting": {"reason": reason} | ({"message": message} if message else {})}


def disrupted(reason: str) -> Any:
    return [{"type": "DisruptionTarget", "status": "True", "reason": reason}]


def sealed(code: int = 0, **said: Any) -> str:
    record = ExitRecord(TOKEN, 1, code, AT2, child_exit_code=code, reason=f"exit code {code}", log_tail="end", **said)
    return seal(record, KEY).decode()


def look(of: Any, *pods: Any) -> Observed | None:
    return observed("j", of, Seen([of] if of else [], pods).pod("j"), lambda text: unseal(text, KEY, TOKEN))


STUCK = "ImagePullBackOff: Back-off"
UNPLACED = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/4 nodes: no GPU"}]
IS_READY = {"type": "Ready", "status": "True"}
LOST = (
    "its node n1 does not answer, so that nobody knows whether it has ended, and it may still write: the next attempt "
    "waits until the node is back, or is removed (kubectl delete node n1), or the pod is given up (kubectl delete pod "
    "j-0-x --force)"
)
LIVING = {
    "held": (job(suspend=True), (), Observed(Life.PENDING, "j", "Suspended", held=True)),
    "held by a person while it ends": (
        job(suspend=True), (pod("Failed", deleted=True, state=done(85)),),
        Observed(Life.RUNNING, "j", "Terminating", unread=True),
    ),
    "queued": (
        job(suspend=True, queue="gpus"), (),
        Observed(Life.PENDING, "j", "Queued", reason="waits for queue gpus (kubectl get workloads says for what)"),
    ),
    "its queue took its place back": (
        job(suspend=True, queue="gpus"), (pod("Running", deleted=True),),
        Observed(Life.RUNNING, "j", "Terminating", unread=True),
    ),
    "no pod yet": (
        job(), (),
        Observed(Life.PENDING, "j", "Pending", reason="no pod was made yet (kubectl describe job j says why)"),
    ),
    "no node": (
        job(), (pod("Pending", node="", conditions=UNPLACED),),
        Observed(Life.PENDING, "j", "Unschedulable", reason="0/4 nodes: no GPU"),
    ),
    "waits": (job(), (pod("Pending", node=""),), Observed(Life.PENDING, "j", "Pending", reason="waits for a node")),
    "is made": (job(), (pod("Pending"),), Observed(Life.PENDING, "j", "Pending", "n1", "its container is made")),
    "pulls": (
        job(), (pod("Pending", state=waiting("ErrImagePull", "not found")),),
        Observed(Life.PENDING, "j", "ErrImagePull", "n1", "ErrImagePull: not found"),
    ),
    "no image": (
        job(), (pod("Pending", state=waiting("ImagePullBackOff", "Back-off")),),
        Observed(Life.PENDING, "j", "ImagePullBackOff", "n1", STUCK, never=STUCK),
    ),
    "no Secret": (
        job(), (pod("Pending", state=waiting("CreateContainerConfigError")),),
        Observed(Life.PENDING, "j", "CreateContainerConfigError", "n1", "CreateContainerConfigError",
                 never="CreateContainerConfigError"),
    ),
    "runs": (
        job(activeDeadlineSeconds=60), (pod("Running"),),
        Observed(Life.RUNNING, "j", "Running", "n1", started_at=AT1, limit_at=AT1 + 60, unread=True),
    ),
    "ends": (
        job(), (pod("Running", deleted=True),),
        Observed(Life.RUNNING, "j", "Terminating", "n1", "its pod ends", started_at=AT1, unread=True),
    ),
    "is evicted": (
        job(), (pod("Running", deleted=True, conditions=disrupted("EvictionByEvictionAPI")),),
        Observed(Life.RUNNING, "j", "Terminating", "n1", "its pod ends: it was evicted, as when a node is drained",
                 started_at=AT1, unread=True),
    ),
    "its node was given a taint": (
        job(), (pod("Running", deleted=True, conditions=[*disrupted("DeletionByTaintManager"), IS_READY]),),
        Observed(Life.RUNNING, "j", "Terminating", "n1",
                 "its pod ends: its node was given a taint that it does not tolerate", started_at=AT1, unread=True),
    ),
    "its node is lost": (
        job(), (pod("Running", deleted=True, conditions=disrupted("DeletionByTaintManager")),),
        Observed(Life.RUNNING, "j", "Terminating", "n1", LOST, started_at=AT1, unread=True),
    ),
    "its Job is gone before it": (
        None, (pod("Running", deleted=True),),
        Observed(Life.RUNNING, "j", "Terminating", "n1", "its pod ends", unread=True),
    ),
    "decided": (
        job(("FailureTarget", "DeadlineExceeded")), (),
        Observed(Life.RUNNING, "j", "Terminating", reason="says DeadlineExceeded", unread=True),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LIVING)
def test_what_lives(name: str) -> None:
    of, pods, expected = LIVING[name]
    assert look(of, *pods) == expected


def test_nothing_is_there() -> None:
    assert look(None) is None


FAILED = (("FailureTarget", "FailedIndexes"), ("Failed", "FailedIndexes"))
POLICY = (("Failed", "PodFailurePolicy"),)
DEADLINE = (("Failed", "DeadlineExceeded"),)
NO_PYTHON = "the node program could not be started in the image, which needs Python 3.9 or newer"
LOW = "The node was low on resource: memory."
EVICTED = disrupted("EvictionByEvictionAPI")
ENDS: dict[str, tuple[Any, tuple[Any, ...], tuple[Ending, int | None, int, str]]] = {
    "well": (job(("Complete", "")), (pod("Succeeded", state=done(0, "Completed", message=sealed(0))),),
             (Ending.NONE, 0, 0, "exit code 0")),
    "by itself": (job(*FAILED), (pod("Failed", state=done(3, message=sealed(3))),), (Ending.NONE, 3, 0, "exit code 3")),
    "before the Job says so": (job(), (pod("Failed", state=done(3, message=sealed(3))),),
                               (Ending.NONE, 3, 0, "exit code 3")),
    "a forged word": (job(*FAILED), (pod("Failed", state=done(3, message="0" * 64 + " {}")),),
                      (Ending.NONE, 3, 0, "its container ended with code 3 without a last word of the node program")),
    "memory": (job(*FAILED), (pod("Failed", state=done(137, "OOMKilled")),),
               (Ending.OUT_OF_MEMORY, None, 0, "the kernel killed it for its memory")),
    "SIGKILL": (job(*FAILED), (pod("Failed", state=done(137)),),
                (Ending.NONE, None, 9, "killed by SIGKILL, node program and all")),
    "no Python": (job(*FAILED), (pod("Failed", state=done(128, "StartError", message='exec: "python3": not found')),),
                  (Ending.NONE, 82, 0, f'{NO_PYTHON}: exec: "python3": not found')),
    "a document of another version": (job(*FAILED), (pod("Failed", state=done(83)),),
                                      (Ending.NONE, 83, 0, "the child document could not be read")),
    "preempted": (job(*POLICY), (pod("Failed", conditions=disrupted("PreemptionByScheduler"), state=done(85)),),
                  (Ending.PREEMPTED, None, 0, "a pod of higher priority needed its place")),
    "drained, with a last word": (
        job(*POLICY), (pod("Failed", conditions=EVICTED, state=done(85, message=sealed(85))),),
        (Ending.PREEMPTED, 85, 0, "it was evicted, as when a node is drained; exit code 85")),
    "drained, and its pod is gone": (job(*POLICY), (), (Ending.PREEMPTED, None, 0,
                                     "preempted, evicted, or its node was lost: says PodFailurePolicy")),
    "its node is lost": (job(*POLICY), (pod("Failed", conditions=disrupted("DeletionByTaintManager")),),
                         (Ending.NODE_FAILED, None, 0, "its node was given a taint that it does not tolerate")),
    "nobody saw its end": (job(*FAILED), (pod("Failed", state=done(137, "ContainerStatusUnknown")),),
                           (Ending.NODE_FAILED, None, 0, "its node was lost, and does not know how it ended")),
    "evicted for memory": (job(*FAILED), (pod("Failed", reason="Evicted", message=LOW),),
                           (Ending.OUT_OF_MEMORY, None, 0, LOW)),
    "evicted for its disk": (job(*FAILED), (pod("Failed", reason="Evicted", message="low on ephemeral-storage"),),
                             (Ending.NODE_FAILED, None, 0, "low on ephemeral-storage")),
    "a device plugin": (job(*FAILED), (pod("Failed", reason="UnexpectedAdmissionError", message="no device"),),
                        (Ending.NODE_FAILED, None, 0, "no device")),
    "its time": (job(*DEADLINE), (), (Ending.TIME_LIMIT, None, 0, "says DeadlineExceeded")),
    "its time, with a last word": (job(*DEADLINE), (pod("Failed", deleted=True, state=done(85, message=sealed(85))),),
                                   (Ending.TIME_LIMIT, 85, 0,
                                    "the Job was active longer than its time limit; exit code 85")),
    "its pod was deleted": (job(*FAILED), (), (Ending.CANCELLED, None, 0, "its pod was deleted")),
    "its pod is just deleted": (job(), (pod("Failed", deleted=True, state=done(85)),),
                                (Ending.CANCELLED, None, 0, "its pod was deleted")),
    "complete, and its pod is gone": (job(("Complete", "")), (), (Ending.NONE, 0, 0, "its Job is complete")),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_how_it_ended(name: str) -> None:
    of, pods, (ending, code, signal, reason) = ENDS[name]
    seen = look(of, *pods)
    assert seen is not None
    assert (seen.life, seen.ending, seen.exit_code, seen.signal, seen.reason) == (
        Life.ENDED,
        ending,
        code,
        signal,
        reason,
    )
    assert seen.ended_at in (AT2, 0.0)


def test_the_last_word_says_what_the_server_cannot() -> None:
    seen = look(
        job(*FAILED), pod("Failed", state=done(3, message=sealed(3, ran_s=7.0, metrics={"progress_step": 2.0})))
    )
    assert seen is not None
    assert (seen.native_state, seen.evidence, seen.ran_s, seen.metrics) == (
        CHILD_ENDED,
        "end",
        7.0,
        {"progress_step": 2.0},
    )


def test_the_newest_pod_counts() -> None:
    old, new = pod("Failed", state=done(1)), pod("Running")
    new["metadata"]["creationTimestamp"] = T2
    seen = look(job(), old, new)
    assert seen is not None
    assert seen.life is Life.RUNNING


def test_a_pod_that_still_ends_without_its_job_is_listed() -> None:
    noted = {TOKENS: TOKEN, HOME: "/h"}
    left, over, foreign = pod("Running", deleted=True), pod("Failed", state=done(85)), pod("Running")
    for one in (left, over):
        one["metadata"]["annotations"] = noted
    for pods, listed in (((left,), [Stray(TOKEN, "j", Life.RUNNING, "Terminating", "n1", AT1, "/h")]), ((over,), []),
                         ((foreign,), []), ((), [])):  # fmt: skip
        seen = Seen([], pods)
        assert [stray for name in seen.names for stray in strays(name, seen)] == listed
    made = job()
    made["metadata"]["annotations"] = noted
    seen = Seen([made], [left])
    assert [stray.since for name in seen.names for stray in strays(name, seen)] == [AT1 - 5], "once"

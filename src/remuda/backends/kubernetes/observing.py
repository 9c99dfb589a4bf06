"""From Jobs and Pods as the server lists them to one answer about an allocation. Pure."""

from __future__ import annotations

import signal
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from remuda.backends.base import Ending, Life, Observed, Stray, is_token
from remuda.backends.kubernetes.render import HOME, KUEUE, TOKENS
from remuda.backends.lastword import with_record
from remuda.wire.exit import CANNOT_START, MEANINGS, meaning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from remuda.wire.exit import ExitRecord

Doc = dict[str, Any]

JOB: Final = "batch.kubernetes.io/job-name"
_OVER: Final = ("Succeeded", "Failed")
_STUCK: Final = {
    "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "SignatureValidationFailed",
    "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PostStartHookError",
}  # fmt: skip
"""Why a container waits that its user can mend alone. What passes by itself is told as another word first."""
_DISRUPTIONS: Final = {
    "PreemptionByScheduler": (Ending.PREEMPTED, "a pod of higher priority needed its place"),
    "EvictionByEvictionAPI": (Ending.PREEMPTED, "it was evicted, as when a node is drained"),
    "DeletionByTaintManager": (Ending.NODE_FAILED, "its node was given a taint that it does not tolerate"),
    "DeletionByPodGC": (Ending.NODE_FAILED, "its node is gone"),
    "TerminationByKubelet": (Ending.NODE_FAILED, "its node ended it"),
}
_TAINTED: Final = "DeletionByTaintManager"
_OF_NODES: Final = frozenset({
    "Evicted", "NodeLost", "NodeShutdown", "Terminated", "UnexpectedAdmissionError", "OutOfcpu", "OutOfmemory",
})  # fmt: skip
"""`status.reason` of a pod that its node ended, or did not take."""
_NO_PROGRAM: Final = ("StartError", "ContainerCannotRun")
QUEUED: Final = "Queued"
"""`Observed.native_state` of what Kueue lets start, or start again."""
ENDS: Final = "Terminating"
"""`Observed.native_state` of what was told to end, and has not."""
DISRUPTED, DEADLINE = "PodFailurePolicy", "DeadlineExceeded"
_GONE: Final = "its pod was deleted"


class Seen:
    """One look: all Jobs and Pods of a namespace, by what allocations are found by."""

    def __init__(self, jobs: Iterable[Doc], pods: Iterable[Doc]) -> None:
        self.jobs = {str(job["metadata"]["name"]): job for job in jobs}
        self._pods: dict[str, list[Doc]] = {}
        for pod in pods:
            self._pods.setdefault(pod["metadata"].get("labels", {}).get(JOB, ""), []).append(pod)
        self.names = [*dict.fromkeys((*self.jobs, *self._pods))]

    def pod(self, job: str) -> Doc | None:
        """The newest pod of a Job; None: it has none."""
        return max(self._pods.get(job, ()), key=lambda pod: str(pod["metadata"]["creationTimestamp"]), default=None)


def moment(text: str | None) -> float:
    """A time of the server in seconds since the epoch; 0 where it says none."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def condition(doc: Doc, kind: str) -> Doc | None:
    """The condition of that kind that is so."""
    said = doc.get("status", {}).get("conditions") or ()
    return next((one for one in said if one["type"] == kind and one["status"] == "True"), None)


def is_suspended(job: Doc) -> bool:
    """Whether it waits to be released."""
    return bool(job["spec"].get("suspend"))


def is_over(job: Doc) -> bool:
    """Whether it has ended, with all of its pods."""
    return condition(job, "Complete") is not None or condition(job, "Failed") is not None


def observed(name: str, job: Doc | None, pod: Doc | None, read: Callable[[str], ExitRecord | None]) -> Observed | None:
    """What is so of an allocation.

    Args:
        name: native name.
        job: its Job; None: there is none.
        pod: the newest of its pods; None: there is none.
        read: makes the last word of a termination message; None for a foreign one.

    Returns:
        None where nothing of it is there.
    """
    is_going = job is None or "deletionTimestamp" in job["metadata"]
    if job is not None and is_suspended(job) and not (is_going or is_over(job)):  # not released yet, queued, or held
        return _waiting(name, job) if pod is None else Observed(Life.RUNNING, name, ENDS, unread=True)
    if pod is not None and pod["status"].get("phase") in _OVER:
        return _ended(name, job, pod, read)
    if job is None or is_going:
        if pod is None and job is None:
            return None
        return Observed(Life.RUNNING, name, ENDS, _node(pod), _why_ends(pod or {}), unread=True)
    if pod is None and is_over(job):
        return _of_job(name, job)
    if pod is None:
        return _without_pod(name, job)
    if pod["status"].get("phase") == "Running" or "deletionTimestamp" in pod["metadata"]:
        return _running(name, job, pod)
    return _pending(name, pod)


def _waiting(name: str, job: Doc) -> Observed:
    queue = job["metadata"].get("labels", {}).get(KUEUE)
    if not queue:
        return Observed(Life.PENDING, name, "Suspended", held=True)
    return Observed(Life.PENDING, name, QUEUED, reason=f"waits for queue {queue} (kubectl get workloads says for what)")


def _node(pod: Doc | None) -> str:
    return str(pod["spec"].get("nodeName", "")) if pod is not None else ""


def _without_pod(name: str, job: Doc) -> Observed:
    failing = condition(job, "FailureTarget")
    if failing is not None:  # it is decided, and a moment later the Job says so
        return Observed(Life.RUNNING, name, ENDS, reason=failing.get("message", ""), unread=True)
    return Observed(Life.PENDING, name, "Pending", reason=f"no pod was made yet (kubectl describe job {name} says why)")


def _running(name: str, job: Doc, pod: Doc) -> Observed:
    started = moment(pod["status"].get("startTime"))
    limit, began = job["spec"].get("activeDeadlineSeconds"), moment(job.get("status", {}).get("startTime"))
    word = ENDS if "deletionTimestamp" in pod["metadata"] else "Running"
    return Observed(
        Life.RUNNING, name, word, _node(pod), _why_ends(pod) if word == ENDS else "", started_at=started,
        limit_at=began + limit if limit and began else 0.0, unread=True,
    )  # fmt: skip


def _why_ends(pod: Doc) -> str:
    """Why a pod, if there is one, is to end, and what ends the wait for one whose node cannot tell that it has."""
    word = (condition(pod, "DisruptionTarget") or {}).get("reason", "")
    if word != _TAINTED or condition(pod, "Ready") is not None:
        return f"its pod ends: {_DISRUPTIONS[word][1]}" if word in _DISRUPTIONS else "its pod ends"
    node, own = _node(pod), pod["metadata"]["name"]
    return (
        f"its node {node} does not answer, so that nobody knows whether it has ended, and it may still write: the next "
        f"attempt waits until the node is back, or is removed (kubectl delete node {node}), or the pod is given up "
        f"(kubectl delete pod {own} --force)"
    )


def _pending(name: str, pod: Doc) -> Observed:
    """Why it waits. `never` may pass by itself all the same: who asks believes it when it was so for two looks."""
    seen = Observed(Life.PENDING, name, "Pending", _node(pod))
    waiting = _state(pod).get("waiting", {})
    if waiting.get("reason"):
        text = f"{waiting['reason']}: {waiting['message']}" if waiting.get("message") else waiting["reason"]
        return replace(
            seen, native_state=waiting["reason"], reason=text, never=text if waiting["reason"] in _STUCK else ""
        )
    unplaced = next((one for one in pod["status"].get("conditions") or ()
                     if one["type"] == "PodScheduled" and one["status"] == "False"), None)  # fmt: skip
    if unplaced is None:
        return replace(seen, reason="its container is made" if seen.node else "waits for a node")
    return replace(seen, native_state=unplaced.get("reason", ""), reason=unplaced.get("message", "waits for a node"))


def _state(pod: Doc) -> Doc:
    statuses: Sequence[Doc] = pod["status"].get("containerStatuses") or ({},)
    return dict(statuses[0].get("state") or {})


def _ended(name: str, job: Doc | None, pod: Doc, read: Callable[[str], ExitRecord | None]) -> Observed:
    """A pod that has ended: its own words, what befell it, and the last word of its node program."""
    status, done = pod["status"], _state(pod).get("terminated", {})
    word, code = str(done.get("reason") or status.get("reason") or status["phase"]), done.get("exitCode")
    seen = Observed(
        Life.ENDED, name, word, _node(pod), exit_code=code, started_at=moment(status.get("startTime")),
        ended_at=moment(done.get("finishedAt")),
    )  # fmt: skip
    seen = _with_ending(seen, job, pod, done)
    record = read(str(done.get("message", "")))
    if record is not None:
        return with_record(seen, record)
    if seen.ending is not Ending.NONE:
        return replace(seen, exit_code=None)
    if word in _NO_PROGRAM:
        said = str(done.get("message", "")).strip()
        why = f"the node program could not be started in the image, which needs Python 3.9 or newer: {said}"
        return replace(seen, exit_code=CANNOT_START, reason=why)
    if code in MEANINGS:
        return replace(seen, reason=meaning(code))
    if code is not None and code > 128:
        number = code - 128
        named = signal.Signals(number).name if number in [*signal.Signals] else str(number)
        return replace(seen, exit_code=None, signal=number, reason=f"killed by {named}, node program and all")
    return replace(seen, reason=f"its container ended with code {code} without a last word of the node program")


def _with_ending(seen: Observed, job: Doc | None, pod: Doc, done: Mapping[str, Any]) -> Observed:
    status = pod["status"]
    if done.get("reason") == "OOMKilled":
        return replace(seen, ending=Ending.OUT_OF_MEMORY, reason="the kernel killed it for its memory")
    if (disrupted := condition(pod, "DisruptionTarget")) is not None:
        word = str(disrupted.get("reason", ""))
        ending, reason = _DISRUPTIONS.get(word, (Ending.PREEMPTED, word))
        return replace(seen, native_state=word, ending=ending, reason=reason)
    if (said := status.get("reason")) in _OF_NODES:
        text = str(status.get("message", said))
        ending = Ending.OUT_OF_MEMORY if said == "Evicted" and "memory" in text else Ending.NODE_FAILED
        return replace(seen, native_state=said, reason=text, ending=ending)
    if done.get("reason") == "ContainerStatusUnknown":
        return replace(seen, ending=Ending.NODE_FAILED, reason="its node was lost, and does not know how it ended")
    if DEADLINE in (status.get("reason"), (_failed(job) or {}).get("reason")):
        return replace(seen, ending=Ending.TIME_LIMIT, reason="the Job was active longer than its time limit")
    if "deletionTimestamp" in pod["metadata"] and job is not None and "deletionTimestamp" not in job["metadata"]:
        return replace(seen, ending=Ending.CANCELLED, reason=_GONE)
    return seen


def _failed(job: Doc | None) -> Doc | None:
    return (condition(job, "FailureTarget") or condition(job, "Failed")) if job is not None else None


def _of_job(name: str, job: Doc) -> Observed:
    """A Job that has ended, and whose pod is gone."""
    failed = condition(job, "Failed")
    if failed is None:
        ended = moment(job["status"].get("completionTime"))
        return Observed(Life.ENDED, name, "Complete", exit_code=0, reason="its Job is complete", ended_at=ended)
    word, text = str(failed.get("reason", "")), str(failed.get("message", ""))
    seen = Observed(Life.ENDED, name, word, reason=text, ended_at=moment(failed.get("lastTransitionTime")))
    if word == DEADLINE:
        return replace(seen, ending=Ending.TIME_LIMIT)
    if word == DISRUPTED:
        return replace(seen, ending=Ending.PREEMPTED, reason=f"preempted, evicted, or its node was lost: {text}")
    return replace(seen, ending=Ending.CANCELLED, reason=_GONE)


def strays(name: str, look: Seen) -> list[Stray]:
    """What waits or runs, as a Job, or as a pod that its Job has left behind, by its tokens."""
    job, pod = look.jobs.get(name), look.pod(name)
    seen, meta = observed(name, job, pod, lambda _: None), (job or pod or {})["metadata"]
    if seen is None or seen.life not in (Life.PENDING, Life.RUNNING):
        return []
    said = meta.get("annotations") or {}
    return [
        Stray(token, name, seen.life, seen.native_state, seen.node, moment(meta["creationTimestamp"]),
              str(said.get(HOME, "")))
        for token in str(said.get(TOKENS, "")).split() if is_token(token)
    ]  # fmt: skip


def vanished(name: str) -> Observed:
    """An allocation of which nothing is there any more, and which nobody here asked to end."""
    reason = "its Job was deleted: by a person, or by its TTL after its end"
    return Observed(Life.ENDED, name, "deleted", ending=Ending.CANCELLED, reason=reason)

"""The Job controller: Indexed Jobs to pods, what pods did to a Job's status. It works as that of 1.36 does."""

from __future__ import annotations

import copy
import secrets
from typing import TYPE_CHECKING, Final

from remuda.testing.kube.objects import has_condition, key_of, moment, owner, set_condition, stamp

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remuda.testing.kube.objects import Doc, Key, Objects

TRACKING: Final = "batch.kubernetes.io/job-tracking"
INDEX: Final = "batch.kubernetes.io/job-completion-index"
FAILURES: Final = "batch.kubernetes.io/job-index-failure-count"
_ENDED: Final = ("Succeeded", "Failed")
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_BY: Final = "job-controller"


def spans(indexes: Iterable[int]) -> str:
    """Indexes as a status has them: `0-2,5`."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def within(text: str) -> set[int]:
    """The indexes that a status names."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def index_of(pod: Doc) -> int:
    """Which rank of its Job a pod is; Jobs that are not Indexed number theirs for themselves."""
    return int(pod["metadata"]["annotations"][INDEX])


class JobControl:
    """Makes pods of Jobs, and counts their ends.

    Args:
        objects: the cluster.
    """

    backoff_s = 10.0
    """How long an index waits after its first failure; doubled by each further one."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._failures: dict[tuple[str, int], tuple[int, float]] = {}
        """By Job and index: how often it failed, and when last."""

    def turn(self) -> None:
        """Look at all Jobs once."""
        pods: dict[str, list[Doc]] = {}
        for pod in self._objects.every("pods"):
            pods.setdefault(owner(pod), []).append(pod)
        jobs = self._objects.every("jobs")
        for job in jobs:
            _Sync(self, self._objects, job, pods.pop(job["metadata"]["uid"], [])).run()
        for pod in (pod for of, left in pods.items() if of for pod in left):
            self._objects.edit(key_of("pods", pod), _untracked)

    def failed(self, job: Doc, index: int, at: float) -> int:
        """Count a failure of an index."""
        key = job["metadata"]["uid"], index
        count = self._failures.get(key, (0, 0.0))[0] + 1
        self._failures[key] = count, at
        return count

    def failures(self, job: Doc, index: int) -> tuple[int, float]:
        """How often an index failed, and until when it waits."""
        count, at = self._failures.get((job["metadata"]["uid"], index), (0, 0.0))
        return count, at + self.backoff_s * 2 ** (count - 1) if count else 0.0


def _untracked(pod: Doc) -> None:
    left = [one for one in pod["metadata"].get("finalizers", []) if one != TRACKING]
    pod["metadata"]["finalizers"] = left


class _Sync:
    """One look at one Job and its pods."""

    def __init__(self, control: JobControl, objects: Objects, job: Doc, pods: list[Doc]) -> None:
        self._control = control
        self._objects = objects
        self._key: Key = key_of("jobs", job)
        self._before = job
        self._job = copy.deepcopy(job)
        self._spec, self._status = job["spec"], self._job.setdefault("status", {})
        self._pods = pods
        self._now = objects.now()
        self._done = within(self._status.get("completedIndexes", ""))
        self._lost = within(self._status.get("failedIndexes", ""))
        self._is_per_index = self._spec.get("backoffLimitPerIndex") is not None

    def run(self) -> None:
        if has_condition(self._job, "Complete", "Failed"):
            self._expire()
            return
        self._count()
        if "deletionTimestamp" not in self._job["metadata"]:
            self._decide()
            self._steer()
        self._write()

    def _expire(self) -> None:
        ttl = self._spec.get("ttlSecondsAfterFinished")
        ended = max(moment(one["lastTransitionTime"]) for one in self._status["conditions"])
        if ttl is not None and self._now >= ended + ttl:
            self._objects.end(self._key)

    # Counting ends

    def _is_over(self, pod: Doc) -> bool:
        if pod["status"]["phase"] in _ENDED:
            return True
        return self._spec["podReplacementPolicy"] != "Failed" and "deletionTimestamp" in pod["metadata"]

    def _active(self) -> list[Doc]:
        return [
            pod
            for pod in self._pods
            if pod["status"]["phase"] not in _ENDED and "deletionTimestamp" not in pod["metadata"]
        ]

    def _terminating(self) -> list[Doc]:
        return [
            pod for pod in self._pods if pod["status"]["phase"] not in _ENDED and "deletionTimestamp" in pod["metadata"]
        ]

    def _count(self) -> None:
        for pod in self._pods:
            if TRACKING not in pod["metadata"].get("finalizers", []) or not self._is_over(pod):
                continue
            index = index_of(pod)
            if pod["status"]["phase"] == "Succeeded":
                self._status["succeeded"] = self._status.get("succeeded", 0) + (index not in self._done)
                self._done.add(index)
            else:
                self._count_failure(pod, index)
            self._objects.edit(key_of("pods", pod), _untracked)

    def _count_failure(self, pod: Doc, index: int) -> None:
        action, says = self._by_policy(pod)
        if action == "Ignore":
            return
        self._status["failed"] = self._status.get("failed", 0) + 1
        count = self._control.failed(self._job, index, self._now)
        if action == "FailJob":
            self._fail("PodFailurePolicy", says)
        elif self._is_per_index and (action == "FailIndex" or count > self._spec["backoffLimitPerIndex"]):
            self._lost.add(index)

    def _by_policy(self, pod: Doc) -> tuple[str, str]:
        """The action of the first rule that a failed pod matches, and the sentence about it."""
        meta = pod["metadata"]
        of = f"pod {meta['namespace']}/{meta['name']}"
        for number, rule in enumerate((self._spec.get("podFailurePolicy") or {}).get("rules", [])):
            rest = f"matching {rule['action']} rule at index {number}"
            for one in rule.get("onPodConditions") or ():
                if any(
                    (c["type"], c["status"]) == (one["type"], one["status"])
                    for c in pod["status"].get("conditions", [])
                ):
                    return rule["action"], f"{of} has condition {one['type']} {rest}".capitalize()
            codes = rule.get("onExitCodes")
            for container in pod["status"].get("containerStatuses", []) if codes else []:
                code = container["state"].get("terminated", {}).get("exitCode", 0)
                if code and (code in codes["values"]) is (codes["operator"] == "In"):
                    return rule["action"], f"Container {container['name']} for {of} failed with exit code {code} {rest}"
        return "Count", ""

    # Deciding

    def _decide(self) -> None:
        if self._is_decided():
            return
        deadline, started = self._spec.get("activeDeadlineSeconds"), self._status.get("startTime")
        most = self._spec.get("maxFailedIndexes")
        if deadline is not None and started and self._now >= moment(started) + deadline and not self._spec["suspend"]:
            self._fail("DeadlineExceeded", "Job was active longer than specified deadline")
        elif not self._is_per_index and self._status.get("failed", 0) > self._spec["backoffLimit"]:
            self._fail("BackoffLimitExceeded", "Job has reached the specified backoff limit")
        elif most is not None and len(self._lost) > most:
            self._fail("MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes")
        elif self._lost and len(self._done | self._lost) >= self._spec["completions"]:
            self._fail("FailedIndexes", "Job has failed indexes")
        elif len(self._done) >= self._spec["completions"]:
            self._set("SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods")
        else:
            self._decide_by_success_policy()

    def _decide_by_success_policy(self) -> None:
        for number, rule in enumerate((self._spec.get("successPolicy") or {}).get("rules", [])):
            among = (
                within(rule["succeededIndexes"])
                if "succeededIndexes" in rule
                else set(range(self._spec["completions"]))
            )
            if len(self._done & among) >= rule.get("succeededCount", len(among)):
                self._set("SuccessCriteriaMet", "SuccessPolicy", f"Matched rules at index {number}")
                return

    def _is_decided(self) -> bool:
        return has_condition(self._job, "FailureTarget", "SuccessCriteriaMet")

    def _fail(self, reason: str, message: str) -> None:
        if not self._is_decided():
            self._set("FailureTarget", reason, message)

    def _set(self, kind: str, reason: str, message: str, status: str = "True") -> None:
        set_condition(self._job, kind, status, self._now, reason, message)

    # Acting

    def _steer(self) -> None:
        if self._is_decided():
            self._finish()
        elif self._spec["suspend"]:
            self._suspend()
        else:
            self._resume()
            self._fill()

    def _finish(self) -> None:
        """End what still runs, which counts as failed; the Job is over when nothing is left."""
        left = self._active()
        for pod in left:
            self._end(pod)
        if left or self._terminating():
            return
        target = next(
            one for one in self._status["conditions"] if one["type"] in ("FailureTarget", "SuccessCriteriaMet")
        )
        is_good = target["type"] == "SuccessCriteriaMet"
        self._set("Complete" if is_good else "Failed", target["reason"], target["message"])
        if is_good:
            self._status["completionTime"] = stamp(self._now)
            self._objects.note(self._job, "Completed", "Job completed", by=_BY)
        else:
            self._objects.note(self._job, target["reason"], target["message"], by=_BY, kind="Warning")

    def _suspend(self) -> None:
        for pod in self._active():
            self._objects.edit(key_of("pods", pod), _untracked)
            self._end(pod)
        self._status.pop("startTime", None)
        if not has_condition(self._job, "Suspended"):
            self._set("Suspended", "JobSuspended", "Job suspended")
            self._objects.note(self._job, "Suspended", "Job suspended", by=_BY)

    def _resume(self) -> None:
        if has_condition(self._job, "Suspended"):
            self._set("Suspended", "JobResumed", "Job resumed", "False")
            self._objects.note(self._job, "Resumed", "Job resumed", by=_BY)
        self._status.setdefault("startTime", stamp(self._now))

    def _end(self, pod: Doc) -> None:
        self._objects.end_pod(pod)
        self._objects.note(self._job, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}", by=_BY)

    def _fill(self) -> None:
        active = self._active()
        room = self._spec["parallelism"] - len(active)
        for pod in active[:-room] if room < 0 else []:
            self._objects.edit(key_of("pods", pod), _untracked)
            self._end(pod)
        blocking = active + (self._terminating() if self._spec["podReplacementPolicy"] == "Failed" else [])
        taken = {index_of(pod) for pod in blocking} | self._done | self._lost
        for index in range(self._spec["completions"]):
            count, due = self._control.failures(self._job, index)
            if room > 0 and index not in taken and self._now >= due:
                self._pods.append(self._make(index, count))
                room -= 1

    def _make(self, index: int, failures: int) -> Doc:
        meta, template = self._job["metadata"], copy.deepcopy(self._spec["template"])
        is_indexed, name = self._spec["completionMode"] == "Indexed", meta["name"]
        labels = dict(template["metadata"]["labels"])
        annotations = {INDEX: str(index)} | ({FAILURES: str(failures)} if self._is_per_index else {})
        spec = template["spec"]
        if is_indexed:
            labels[INDEX] = str(index)
            spec.setdefault("hostname", f"{name}-{index}")
            own = {
                "name": "JOB_COMPLETION_INDEX",
                "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}},
            }
            for container in spec["containers"]:
                container["env"] = [*(container.get("env") or []), own]
        tail = "".join(secrets.choice(_LETTERS) for _ in range(5))
        pod_name = f"{name}-{index}-{tail}" if is_indexed else f"{name}-{tail}"
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": meta["uid"], "controller": True}
        about = {
            "name": pod_name,
            "namespace": meta["namespace"],
            "labels": labels,
            "annotations": (template["metadata"].get("annotations") or {}) | annotations,
            "ownerReferences": [reference | {"blockOwnerDeletion": True}],
            "finalizers": [TRACKING],
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec}
        made = self._objects.create(
            ("pods", meta["namespace"], pod_name), pod | {"status": {"phase": "Pending", "qosClass": "BestEffort"}}
        )
        self._objects.note(self._job, "SuccessfulCreate", f"Created pod: {pod_name}", by=_BY)
        return made

    def _write(self) -> None:
        active = [] if "deletionTimestamp" in self._job["metadata"] else self._active()
        # What this look made or asked to end is seen by the next one, which follows at once.
        ready = sum(has_condition(pod, "Ready") for pod in active)
        if not has_condition(self._job, "Complete", "Failed"):
            self._status |= {"active": len(active), "ready": ready, "terminating": len(self._terminating())}
        else:
            self._status |= {"ready": 0, "terminating": 0}
            self._status.pop("active", None)
        self._status["uncountedTerminatedPods"] = {}
        for name, indexes in (("completedIndexes", self._done), ("failedIndexes", self._lost)):
            shown = self._spec["completionMode"] == "Indexed" and (name == "completedIndexes" or self._is_per_index)
            if shown and indexes:
                self._status[name] = spans(indexes)
        self._objects.edit(self._key, lambda doc: doc.update(status=self._status))

"""The kubelets of all nodes: pods to processes, their output to logs, their ends to statuses."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from remuda.testing.kube.container import NO_SUCH_PROGRAM
from remuda.testing.kube.objects import key_of, moment, set_condition, stamp
from remuda.testing.kube.podspec import LOOPBACK, NotStartable, command, environment, interpreter, mounts, user, volumes
from remuda.testing.kube.served import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from remuda.testing.kube.objects import Doc, Objects

_IMAGE: Final = re.compile(r"[a-z0-9][-._/:@a-zA-Z0-9]*")
_LINE: Final = 16 << 10
_MESSAGE: Final = 4096
_CONDITIONS: Final = ("Initialized", "ContainersReady", "Ready")
_STEP_S: Final = 0.05


class Kubelet:
    """Runs the pods that are bound to living nodes.

    Args:
        objects: the cluster.
        root: below which the files of pods lie.
        api: where the server listens.
        dead: nodes that have no power.
    """

    def __init__(self, objects: Objects, root: Path, api: tuple[str, int], dead: set[str]) -> None:
        self.objects, self.root, self.api, self.dead = objects, root, api, dead
        self.claims = root.with_name("claims")
        """Folders that are PersistentVolumeClaims, by their names."""
        self.missing = ["missing/"]
        """What images that no registry has begin with."""
        self._pods: dict[str, _Running] = {}

    def turn(self) -> None:
        """Start what is bound, end what is to go."""
        pods = {pod["metadata"]["uid"]: pod for pod in self.objects.every("pods")}
        for uid, pod in pods.items():
            if pod["spec"].get("nodeName") in (None, *self.dead):
                continue
            if uid not in self._pods and pod["status"]["phase"] == "Pending":
                self._pods[uid] = _Running(self, pod)
                self._pods[uid].start()
            elif uid not in self._pods and "deletionTimestamp" in pod["metadata"]:
                self.objects.end(key_of("pods", pod))
        for uid, running in [*self._pods.items()]:
            now = pods.get(uid)
            if now is None or "deletionTimestamp" in now["metadata"]:
                running.stop(0 if now is None else now["metadata"]["deletionGracePeriodSeconds"])
            if now is None and not running.is_alive():
                shutil.rmtree(running.folder, ignore_errors=True)
                del self._pods[uid]

    def crash(self, node: str) -> None:
        """The node loses its power: nothing of it goes on, and nothing of that is said."""
        self.dead.add(node)
        for running in [*self._pods.values()]:
            if running.node == node:
                running.stop(0)

    def revive(self, node: str) -> None:
        """The node is back, and knows of its pods that they ended."""
        self.dead.discard(node)
        for pod in self.objects.every("pods"):
            running = self._pods.get(pod["metadata"]["uid"])
            if running is not None and running.node == node and pod["status"]["phase"] in ("Pending", "Running"):
                running.forgotten()

    def kill(self, pod: str, reason: str = "OOMKilled") -> None:
        """End a pod's processes by SIGKILL for a reason that its status has."""
        for running in [*self._pods.values()]:
            if running.key[2] == pod:
                running.kill(reason)

    def close(self) -> None:
        """End all processes; returns when they have ended."""
        running = [*self._pods.values()]
        for one in running:
            one.stop(0)
        for one in running:
            one.join()

    # Logs

    def log(self, pod: Doc, options: dict[str, str]) -> Iterator[bytes]:
        """A pod's output, as the options of a request ask for it.

        Raises:
            Refusal: there is none yet, or its node does not answer.
        """
        running = self._pods.get(pod["metadata"]["uid"])
        if pod["spec"].get("nodeName") in self.dead:
            says = f'Get "https://{LOOPBACK}:10250/containerLogs": dial tcp {LOOPBACK}:10250: i/o timeout'
            raise Refusal(500, "InternalError", says)
        if running is None or not running.log.exists():
            name, meta = pod["spec"]["containers"][0]["name"], pod["metadata"]
            says = f'container "{name}" in pod "{meta["name"]}" is waiting to start: {_waits(pod)}'
            raise Refusal(400, "BadRequest", says)
        since = moment(options["sinceTime"]) if "sinceTime" in options else 0.0
        if "sinceSeconds" in options:
            since = time.time() - int(options["sinceSeconds"])
        return self._lines(running, options, since)

    def _lines(self, running: _Running, options: dict[str, str], since: float) -> Iterator[bytes]:
        is_followed = options.get("follow") in ("true", "1")
        with running.log.open("rb") as file:
            lines = [line for line in file if moment(line[:30].decode()) >= since]
            if "tailLines" in options:
                lines = lines[len(lines) - min(len(lines), int(options["tailLines"])) :]
            while True:
                is_over = not running.is_alive() or self.objects.closing.is_set()
                for line in lines:
                    yield line if options.get("timestamps") in ("true", "1") else line[31:]
                if not is_followed or (is_over and not lines):
                    return
                if not lines:
                    self.objects.closing.wait(_STEP_S)
                lines = [*file]


def _waits(pod: Doc) -> str:
    statuses = pod["status"].get("containerStatuses") or [{"state": {}}]
    return str(statuses[0]["state"].get("waiting", {}).get("reason", "ContainerCreating"))


class _Running(threading.Thread):
    """One pod on its node."""

    def __init__(self, kubelet: Kubelet, pod: Doc) -> None:
        super().__init__(name=pod["metadata"]["name"], daemon=True)
        self._kubelet, self._objects, self._pod = kubelet, kubelet.objects, pod
        self.key, self.node = key_of("pods", pod), pod["spec"]["nodeName"]
        self.folder = kubelet.root / pod["metadata"]["uid"]
        self.log, self._message, self._failed = (self.folder / name for name in ("log", "message", "failed"))
        self._container = pod["spec"]["containers"][0]
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = threading.Event()
        self._kill_at = float("inf")
        self._reason = ""
        self._began = ""

    # Ending it

    def stop(self, grace_s: int) -> None:
        """Ask it to end, once; called again it looks whether its time is over."""
        kill_at = time.monotonic() + grace_s
        if not self._stopped.is_set():
            self._stopped.set()
            self._send(signal.SIGTERM if grace_s else signal.SIGKILL)
        self._kill_at = min(self._kill_at, kill_at)
        if time.monotonic() >= self._kill_at:
            self._send(signal.SIGKILL)

    def kill(self, reason: str) -> None:
        """End it for a reason."""
        self._reason = reason
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    def forgotten(self) -> None:
        """Nobody saw its end."""
        says = "The container could not be located when the pod was terminated"
        self._end(137, "ContainerStatusUnknown", says)

    # Its life

    def run(self) -> None:
        try:
            spec = self._prepared()
            if spec is not None:
                self._execute(spec)
            else:
                self._end(137, "ContainerStatusUnknown", "The container could not be located when the pod was deleted")
        except OSError as error:
            self._end(NO_SUCH_PROGRAM, "StartError", f"failed to create containerd task: {error}")

    def _prepared(self) -> Doc | None:
        """What the container is; waits until all is there. None when the pod is to go before."""
        looks = 0
        while not self._stopped.wait(_STEP_S if looks else 0):
            try:
                self._pull(looks)
                with self._objects.lock:
                    return self._spec()
            except NotStartable as error:
                looks += 1
                self._wait(error.reason, str(error), is_mount=error.reason == "ContainerCreating")
        return None

    def _pull(self, looks: int) -> None:
        image = self._container["image"]
        if not _IMAGE.fullmatch(image):
            raise NotStartable(
                "InvalidImageName", f'Failed to apply default image tag "{image}": couldn\'t parse image name'
            )
        if image.startswith(tuple(self._kubelet.missing)):
            if not looks:
                says = f'failed to pull and unpack image "{image}": failed to resolve reference "{image}": not found'
                raise NotStartable("ErrImagePull", says)
            raise NotStartable("ImagePullBackOff", f'Back-off pulling image "{image}"')

    def _spec(self) -> Doc:
        number = user(self._pod)
        made = volumes(self._objects, self._pod, self.folder / "volumes", self._kubelet.claims)
        env = environment(self._objects, self._pod, self._container, self._kubelet.api)
        for folder in (self.folder, self.folder / "root"):
            folder.mkdir(parents=True, exist_ok=True)
        self._message.touch()
        self._message.chmod(0o666)
        argv = command(self._container, env)
        return {
            "root": str(self.folder / "root"),
            "failed": str(self._failed),
            "mounts": [*mounts(self._container, made, self._message)],
            "argv": argv or ["/no-command-is-given"],
            "env": env,
            "cwd": self._container.get("workingDir") or "/",
            "hostname": env["HOSTNAME"],
            "user": number,
        }

    def _execute(self, spec: Doc) -> None:
        file = self.folder / "spec.json"
        file.write_text(json.dumps(spec))
        self.log.touch()
        self._process = subprocess.Popen(
            [*interpreter(), str(file)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        if self._stopped.is_set():
            self._send(signal.SIGKILL)
        self._began = stamp(self._objects.now())
        self._report("Running", {"running": {"startedAt": self._began}}, is_ready=True)
        with self._process, self.log.open("ab", buffering=0) as log:
            assert self._process.stdout is not None
            while line := self._process.stdout.readline(_LINE):
                now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
                log.write(now.encode() + b" " + line.removesuffix(b"\n") + b"\n")
        self._finish(self._process.returncode)

    def _finish(self, code: int) -> None:
        code = code if code >= 0 else 128 - code
        if failed := self._failed.read_text():
            self._end(NO_SUCH_PROGRAM, "StartError", f"failed to create containerd task: exec: {failed}")
            return
        message = self._message.read_bytes()[:_MESSAGE].decode(errors="replace")
        if not message and code and self._container["terminationMessagePolicy"] == "FallbackToLogsOnError":
            lines = [line[31:] for line in self.log.read_bytes().splitlines(keepends=True)]
            message = b"".join(lines[-80:])[-2048:].decode(errors="replace")
        self._end(code, self._reason or ("Error" if code else "Completed"), message)

    # What is said of it

    def _wait(self, reason: str, message: str, *, is_mount: bool) -> None:
        said = {"reason": reason} | ({} if is_mount else {"message": message})
        self._report("Pending", {"waiting": said})
        self._objects.note(self._pod, "FailedMount" if is_mount else "Failed", message, by="kubelet", kind="Warning")

    def _end(self, code: int, reason: str, message: str) -> None:
        now = stamp(self._objects.now())
        ended = {"exitCode": code, "reason": reason, "startedAt": self._began or now, "finishedAt": now}
        ended |= {"message": message} if message else {}
        self._report("Failed" if code else "Succeeded", {"terminated": ended})
        pod = self._objects.get(self.key)
        if pod is not None and "deletionTimestamp" in pod["metadata"] and self.node not in self._kubelet.dead:
            self._objects.end(self.key)

    def _report(self, phase: str, state: Doc, *, is_ready: bool = False) -> None:
        def said(doc: Doc) -> None:
            if doc["metadata"]["uid"] != self._pod["metadata"]["uid"]:
                return
            now, status = self._objects.now(), doc["status"]
            name, image = self._container["name"], self._container["image"]
            one = {"name": name, "image": image, "imageID": "", "ready": is_ready, "started": is_ready, "state": state}
            status |= {"phase": phase, "hostIP": LOOPBACK, "podIP": LOOPBACK, "podIPs": [{"ip": LOOPBACK}]}
            status.setdefault("startTime", stamp(now))
            status["containerStatuses"] = [one | {"restartCount": 0, "lastState": {}}]
            for kind in _CONDITIONS:
                reason = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(phase, "ContainersNotReady")
                is_true = is_ready or kind == "Initialized"
                set_condition(doc, kind, "True" if is_true else "False", now, "" if is_true else reason)

        if self.node not in self._kubelet.dead:
            self._objects.edit(self.key, said)

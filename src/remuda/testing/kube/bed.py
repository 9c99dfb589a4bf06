"""A stand-in of a Kubernetes cluster under one directory: `KubeBed`."""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from remuda.base.disk.private import make_private
from remuda.base.errors import RemudaError, Unavailable
from remuda.testing.kube.api import Api
from remuda.testing.kube.jobs import JobControl
from remuda.testing.kube.kubelet import Kubelet
from remuda.testing.kube.nodes import NodeControl, new_node
from remuda.testing.kube.objects import Objects
from remuda.testing.kube.server import USER, KubeServer, Trouble, Troubles

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.testing.kube.objects import Doc
    from remuda.testing.kube.server import What

NAMESPACES = ("default", "kube-system")
_TICK_S = 0.1


class KubeBed:
    """One cluster; it lives as long as this process, and its containers end with it.

    It has no network of its own: all pods have the address 127.0.0.1. Images are names: a container sees this machine's
    files, with its volumes where it wants them. GPUs are counted, and are not there.

    Args:
        directory: where all that it makes lies; made by `up`, removed by `down`.
        nodes: their names, each with its number of GPUs.
    """

    def __init__(self, directory: Path | str, nodes: Mapping[str, int] | None = None) -> None:
        self.root = Path(directory).absolute()
        self._wanted = dict(nodes or {f"node-{number}": 1 for number in range(1, 5)})
        self.objects = Objects()
        self.troubles = Troubles()
        self.nodes = NodeControl(self.objects)
        self.jobs = JobControl(self.objects)
        self._token = secrets.token_urlsafe(24)
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    # Life

    def up(self) -> None:
        """Start it; returns when requests are answered.

        Raises:
            Unavailable: openssl is missing, or this user may make no namespaces.
        """
        make_private(self.root, instead="name another directory")
        _check_namespaces()
        _make_certificates(self.root)
        for name in NAMESPACES:
            self._add("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for name, gpus in self._wanted.items():
            self.add_node(name, gpus)
        self.api = Api(self.objects)
        self._server = KubeServer(self.api, self.troubles, self.root, self._token)
        host, port = str(self._server.server_address[0]), int(self._server.server_address[1])
        self.url = f"https://{host}:{port}"
        self.kubelet = Kubelet(self.objects, self.root / "pods", (host, port), self.nodes.dead)
        self.api.logs = self.kubelet.log
        for name, work in (("api", lambda: self._server.serve_forever(_TICK_S)), ("controllers", self._control)):
            self._threads.append(threading.Thread(target=work, name=f"kube-{name}", daemon=True))
            self._threads[-1].start()

    def down(self) -> None:
        """End its processes and remove its directory; fine when it is down."""
        self.objects.closing.set()
        self.troubles.ended.set()
        if self._threads:
            self._server.shutdown()
            for thread in self._threads:
                thread.join()
            self.kubelet.close()
            self._server.server_close()
            self._threads = []
        shutil.rmtree(self.root, ignore_errors=True)

    def _control(self) -> None:
        seen = 0
        while not self.objects.closing.is_set():
            with self.objects.lock:
                self.objects.lock.wait_for(lambda: self.objects.version != seen, timeout=_TICK_S)  # noqa: B023 - asked now
                seen = self.objects.version
                self.jobs.turn()
                self.nodes.turn()
            self.kubelet.turn()

    def _add(self, plural: str, doc: Doc) -> None:
        self.objects.create((plural, "", doc["metadata"]["name"]), doc)

    # Clients

    def kubeconfig(self, by: Literal["token", "certificate"] = "token") -> Path:
        """Write a file for clients that show a token, or a certificate; its path."""
        own = {"token": self._token}
        if by == "certificate":
            own = {"client-certificate-data": self._coded("client.crt"), "client-key-data": self._coded("client.key")}
        context = {"cluster": "stand-in", "user": USER, "namespace": "default"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "stand-in",
            "clusters": [
                {
                    "name": "stand-in",
                    "cluster": {"server": self.url, "certificate-authority-data": self._coded("server.crt")},
                }
            ],
            "users": [{"name": USER, "user": own}],
            "contexts": [{"name": "stand-in", "context": context}],
        }
        path = self.root / f"kubeconfig.{by}"
        path.touch(mode=0o600)
        path.write_text(json.dumps(config, indent=1) + "\n")  # JSON is YAML, too
        return path

    def _coded(self, name: str) -> str:
        return base64.b64encode((self.root / name).read_bytes()).decode()

    def env(self) -> dict[str, str]:
        """The environment of clients of this cluster."""
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig())}

    # Drills

    def trouble(
        self, what: What, method: str = "", part: str = "", *, times: int = 1, retry_after_s: int = 1
    ) -> Trouble:
        """Let the next requests of that method, with that in their path, meet a trouble."""
        made = Trouble(what, method, part, times, retry_after_s)
        self.troubles.waiting.append(made)
        return made

    def later(self, seconds: float) -> None:
        """Move the cluster's clock on: deadlines, TTLs, back-offs and tolerations of taints are over sooner."""
        with self.objects.lock:
            self.objects.ahead_s += seconds

    def add_node(self, name: str, gpus: int = 1, labels: Mapping[str, str] | None = None) -> None:
        """A further node."""
        self._add("nodes", new_node(name, gpus, labels or {}))

    def crash(self, node: str) -> None:
        """A node loses its power."""
        self.kubelet.crash(node)
        self.later(0)

    def revive(self, node: str) -> None:
        """A node is back."""
        self.kubelet.revive(node)


def _check_namespaces() -> None:
    flags = ["--mount", "--pid", "--fork", *(["--map-root-user"] if os.geteuid() else [])]
    if subprocess.run(["unshare", *flags, "true"], check=False, capture_output=True).returncode:
        raise Unavailable(
            "containers need namespaces of their own, which this user may not make", hint="run it as root"
        )


def _make_certificates(root: Path) -> None:
    """Make the server's certificate, which is its own authority, and one of a client that it signs."""
    base = ["req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-days", "3650"]
    server = ["-subj", "/CN=remuda stand-in", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    signed = ["-CA", "server.crt", "-CAkey", "server.key", "-subj", f"/CN={USER}"]
    signed += ["-addext", "basicConstraints=critical,CA:FALSE", "-addext", "extendedKeyUsage=clientAuth"]
    for name, options in (("server", server), ("client", signed)):
        argv = ["openssl", *base, *options, "-keyout", f"{name}.key", "-out", f"{name}.crt"]
        try:
            done = subprocess.run(argv, cwd=root, check=False, capture_output=True, text=True)
        except FileNotFoundError as error:
            raise Unavailable("a certificate is made by openssl, which is not installed") from error
        if done.returncode:
            raise RemudaError(f"openssl made no certificate of the {name}: {done.stderr.strip()}")
        (root / f"{name}.key").chmod(0o600)

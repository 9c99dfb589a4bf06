"""A swarm on the cluster of the tests, and clients that ask its one address without pause."""

from __future__ import annotations

import http.client
import json
import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tests.conftest import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed

BACKEND = {
    "type": "slurm", "partition": "gpu-a100", "account": "inference", "qos": "normal", "time_limit": "02:00:00",
    "endpoint": {"cpus_per_task": 1, "mem": "200MB", "wall_time": "01:00:00"},
}  # fmt: skip
BODY = json.dumps({"model": "herd-1", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4})
CLIENTS = 6


class Asked:
    """What clients saw."""

    def __init__(self) -> None:
        self.answers: Counter[str] = Counter()
        """`200`, another status with the error's code, or what broke the connection."""
        self.stop = threading.Event()

    @property
    def good(self) -> int:
        """Whole answers."""
        return self.answers["200"]

    def keep_asking(self, address: str) -> None:
        """One client: one connection for as long as that goes."""
        parts = urlsplit(address)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)
        while not self.stop.is_set():
            try:
                connection.request("POST", "/v1/chat/completions", BODY, {"Content-Type": "application/json"})
                response = connection.getresponse()
                said = json.loads(response.read())
                code = said["error"].get("code") if response.status != 200 else ""
                self.answers[f"{response.status} {code}".strip()] += 1
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.answers[repr(error)] += 1
                connection.close()
            self.stop.wait(0.02)
        connection.close()


@contextmanager
def asking(address: str) -> Iterator[Asked]:
    """Several clients for as long as the block lasts, which begins when they have answers."""
    asked = Asked()
    threads = [threading.Thread(target=asked.keep_asking, args=(address,)) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: asked.good >= 20, "clients get answers")
        yield asked
    finally:
        asked.stop.set()
        for thread in threads:
            thread.join()


class Herd:
    """A swarm that is up."""

    def __init__(self, home: Home, slurm: SlurmBed, **changes: Any) -> None:
        home.env |= {**slurm.env(), "REMUDA_SLURM_POLL_S": "0.5"}
        self.home = home
        self.slurm = slurm
        values = {"backend": BACKEND, "gpus_per_replica": 1, "cpus_per_task": 1, **changes}
        home.run("up", "-c", str(home.swarm("herd", **values)))
        self.address: str = home.view("herd")["endpoint"]

    def task(self, name: str) -> dict[str, Any]:
        """One task, as it is now."""
        return self.home.task("herd", name)

    def jobs(self) -> list[str]:
        """Names of the jobs that pend or run."""
        return self.slurm.run("squeue", "-h", "-r", "-o", "%j").stdout.split()

    def wait(self, what: str, ask: Any) -> None:
        """Wait, and tell the swarm's story when it takes too long."""
        try:
            until(ask, what, 120)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.home.run('explain', 'herd').stdout}\n{self.home.log()}") from None

    def wait_for_router(self, attempt: int) -> None:
        """Wait until that attempt of the router has members, and the address has not changed."""

        def serves() -> bool:
            view, router = self.home.view("herd"), self.task("router/0")
            members = (view["router"] or {"members": []})["members"]
            is_new = router["phase"] == "ready" and router["attempt"] >= attempt
            return bool(is_new and view["phase"] == "RUNNING" and len(members) == view["wanted"])

        self.wait(f"attempt {attempt} of the router serves", serves)
        assert self.home.view("herd")["endpoint"] == self.address

    def end(self) -> None:
        """Nothing is left on the cluster."""
        self.home.run("down", "herd")
        assert self.jobs() == []


def only_waited(asked: Asked) -> bool:
    """Whether every request was answered, or told after its wait that there is no router: none was lost."""
    return asked.answers.keys() <= {"200", "503 no_router"}

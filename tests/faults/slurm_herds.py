"""Swarms on the real cluster of the tests: a home whose host talks to it, and what a person would look at."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.conftest import Home, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.testing.slurm import SlurmBed

#: Over all nodes with GPUs; gives way to the partitions above it.
BACKEND = {
    "type": "slurm", "partition": "spotc", "account": "inference", "qos": "normal", "time_limit": "01:00:00",
    "endpoint": {"cpus_per_task": 1, "mem": "200MB", "wall_time": "01:00:00"},
}  # fmt: skip

#: On nodes that nobody else may take.
SAFE = {**BACKEND, "partition": "gpu-a100", "time_limit": "02:00:00"}


class Herd:
    """One swarm, with a host on the cluster's head."""

    def __init__(self, home: Home, bed: SlurmBed) -> None:
        self.home = home
        self.bed = bed
        home.env |= {**bed.env(), "REMUDA_SLURM_POLL_S": "0.5"}

    def document(self, **changes: Any) -> str:
        values = {"backend": BACKEND, "gpus_per_replica": 2, "cpus_per_task": 1, **changes}
        return str(self.home.swarm("herd", **values))

    def up(self, **changes: Any) -> dict[str, dict[str, Any]]:
        """Bring it up, and wait until it answers; its tasks by name."""
        self.home.run("up", "-c", self.document(**changes))
        return self.tasks()

    def up_safely(self, **changes: Any) -> str:
        """Bring up replicas of one GPU on nodes that nobody takes from them, and wait; the address."""
        self.up(**{"backend": SAFE, "gpus_per_replica": 1, **changes})
        return self.address

    @property
    def address(self) -> str:
        return str(self.view()["endpoint"])

    def view(self) -> dict[str, Any]:
        return self.home.view("herd")

    def tasks(self) -> dict[str, dict[str, Any]]:
        return {task["task"]: task for task in self.view()["tasks"]}

    def task(self, name: str) -> dict[str, Any]:
        return self.home.task("herd", name)

    def replicas(self) -> dict[str, dict[str, Any]]:
        return {name: task for name, task in self.tasks().items() if task["role"] == "replica"}

    def by_node(self) -> dict[str, list[str]]:
        """Names of tasks by the node that they are on."""
        found: dict[str, list[str]] = {}
        for name, task in self.tasks().items():
            found.setdefault(task["node"], []).append(name)
        return found

    def members(self) -> list[str]:
        return list((self.view()["router"] or {"members": []})["members"])

    def serves(self) -> bool:
        """Whether all replicas serve, and the router sends to each."""
        view = self.view()
        return bool(view["phase"] == "RUNNING" and view["ready"] == view["wanted"] == len(self.members()))

    def ask(self) -> int:
        """Status of one request at the endpoint."""
        body = json.dumps({"model": "herd-1", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4})
        request = urllib.request.Request(
            f"{self.view()['endpoint']}/v1/chat/completions", body.encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=90) as answer:
            return int(answer.status)

    def wait_for_router(self, attempt: int) -> None:
        """Wait until that attempt of the router, or a later one, has all members."""

        def serves() -> bool:
            router = self.task("router/0")
            return router["phase"] == "ready" and router["attempt"] >= attempt and self.serves()

        self.wait(serves, f"attempt {attempt} of the router serves")

    def wait(self, ask: Callable[[], bool], what: str, limit_s: float = 240) -> None:
        """Wait; a failure tells what a person would look at."""
        try:
            until(ask, what, limit_s)
        except AssertionError as error:
            told = self.told()
            queue = self.bed.run("squeue", "-t", "all", "-o", "%i %j %T %P %N %r", check=False).stdout
            nodes = self.bed.run("sinfo", "-N", "-o", "%N %T %P %E", check=False).stdout
            raise AssertionError("\n".join([str(error), told, queue, nodes, self.home.log()])) from None

    def told(self) -> str:
        return self.home.run("explain", "herd", check=False).stdout

    def story(self, task: str) -> list[str]:
        """Phases that a task went through, and what else was noted of it."""
        lines = json.loads(self.home.run("events", "herd", "-n", "1000", "--json").stdout)
        return [line["phase"] or line["kind"] for line in lines if line["task"] == task]

    def node_program(self, task: str) -> int:
        """Pid of the program beside a task, wherever its node is on this machine."""
        group, _, index = task.partition("/")
        folder = f"{self.home.paths.workloads}/herd/{group}-{index}/attempt-{self.tasks()[task]['attempt']}-"
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if "child" in words and any(word.startswith(folder) for word in words):
                return int(path.parent.name)
        raise AssertionError(f"no program beside {task}")

    def jobs(self) -> list[str]:
        """Names of the jobs that pend or run."""
        return self.bed.run("squeue", "-h", "-r", "-o", "%j").stdout.split()

    def down(self) -> None:
        """Take it down; nothing may be left."""
        self.home.run("down", "herd", timeout=300)
        assert self.jobs() == []

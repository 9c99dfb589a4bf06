"""Batch jobs beside a swarm on the real cluster of the tests."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.conftest import Home, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.testing.slurm import SlurmBed

BACKEND = {
    "type": "slurm", "partition": "gpu-a100", "account": "inference", "qos": "normal", "time_limit": "02:00:00",
    "endpoint": {"cpus_per_task": 1, "mem": "200MB", "wall_time": "01:00:00"},
    "job": {"cpus_per_task": 1, "mem": "300MB"},
}  # fmt: skip

#: An engine that stands still for a moment is not to be begun again: nobody is ill here.
PATIENT = {"http_timeout": 60, "unhealthy_restart_after": 120}


class Jobs:
    """A home whose host talks to the cluster, a swarm there, and its jobs."""

    def __init__(self, home: Home, bed: SlurmBed, name: str = "herd") -> None:
        self.home = home
        self.bed = bed
        self.name = name
        self._number = 0
        home.env |= {**bed.env(), "REMUDA_SLURM_POLL_S": "0.5"}

    def up(self, **changes: Any) -> None:
        """Bring the swarm up: two replicas of an engine that does as it is told."""
        watchdog = PATIENT | changes.pop("watchdog", {})
        values = {"backend": BACKEND, "gpus_per_replica": 1, "cpus_per_task": 1, "watchdog": watchdog, **changes}
        self.home.run("up", "-c", str(self.home.swarm(self.name, **values)))

    def write(self, rows: int, name: str = "in.jsonl") -> None:
        """An input of so many rows."""
        lines = [json.dumps({"id": number, "prompt": f"row {number}"}) for number in range(rows)]
        (self.home.root / name).write_text("\n".join(lines) + "\n")

    def new(self, name: str) -> str:
        """A job id that nobody has had: a second try of a test must not meet the first."""
        self._number += 1
        return f"{name}-{self._number}"

    def words(self, job: str, *more: str) -> tuple[str, ...]:
        """The command that submits `in.jsonl`."""
        return ("job", "submit", "completion", "--name", self.name, "-i", "in.jsonl", "-o", f"{job}.jsonl",
                "--job-id", job, *more)  # fmt: skip

    def slow(self, seconds: float) -> None:
        """Every answer takes so long."""
        self.home.behave("slow", self.name, slow_s=seconds)

    def fast(self) -> None:
        """Answers come at once."""
        self.home.behave("ok", self.name)

    def state(self, job: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.home.run("job", "status", job, "--json").stdout)
        return found

    def done(self, job: str) -> int:
        """Rows that it has finished, as its own file says."""
        try:
            said = json.loads((self.home.root / f"{job}.jsonl.checkpoint" / "progress.json").read_text())
        except (OSError, ValueError):
            return 0
        return int(said["done"])

    def wait_rows(self, job: str, count: int, limit_s: float = 240) -> None:
        self.wait(lambda: self.done(job) >= count, f"{count} rows of {job}", limit_s)

    def wait_end(self, job: str, limit_s: float = 300) -> dict[str, Any]:
        """Its last state."""
        done = self.home.run("job", "wait", job, "--json", check=False, timeout=limit_s)
        state: dict[str, Any] = json.loads(done.stdout)
        assert state["state"] == "DONE", (state, self.told(job))
        return state

    def driver(self, job: str) -> dict[str, Any]:
        return self.home.task(job, "driver/0")

    def wait_attempt(self, job: str, attempt: int, limit_s: float = 240) -> dict[str, Any]:
        """Wait until that attempt of its driver runs."""

        def runs() -> bool:
            found = self.driver(job)
            return bool(found["attempt"] == attempt and found["phase"] == "ready")

        self.wait(runs, f"attempt {attempt} of {job}", limit_s)
        return self.driver(job)

    def wait(self, ask: Callable[[], bool], what: str, limit_s: float = 240) -> None:
        """Wait; a failure tells what a person would look at."""
        try:
            until(ask, what, limit_s)
        except AssertionError as error:
            names = [view["name"] for view in self.home.client.get("/workloads")]
            queue = self.bed.run("squeue", "-t", "all", "-o", "%i %j %T %P %N %r").stdout
            raise AssertionError("\n".join([str(error), *map(self.told, names), queue, self.home.log()])) from None

    def told(self, name: str) -> str:
        """What a person would look at."""
        explain = self.home.run("explain", name, check=False).stdout
        return explain + self.home.run("logs", name, "-n", "20", check=False).stdout

    def check(self, job: str, rows: int) -> None:
        """Every row is in the output once, in the input's order, with an answer."""
        lines = [json.loads(line) for line in (self.home.root / f"{job}.jsonl").read_text().splitlines()]
        assert [line["id"] for line in lines] == list(range(rows))
        assert Counter(line["error"] for line in lines) == {None: rows}
        assert all(line["result"] for line in lines)

    def wait_gone(self, job: str) -> None:
        """Wait until nothing of it is on the cluster."""
        self.wait(lambda: not any(name.startswith(f"{job}.") for name in self.queue()), f"{job} has left the queue")

    def queue(self) -> list[str]:
        """Names of the jobs that pend or run."""
        return self.bed.run("squeue", "-h", "-r", "-o", "%j").stdout.split()

"""What the benchmarks share: a state directory of their own, CPU time of processes, figures with bounds.

Light on purpose: the peak memory of a child process is never less than that of the process that started it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from remuda.client.http import HostClient
    from remuda.testing.slurm import SlurmBed, Topology


@dataclass(frozen=True)
class Figure:
    """One measured number."""

    name: str
    value: float
    unit: str
    bound: float | None = None
    """It must not be more."""
    baseline: float | None = None
    """The same of something that does nothing else, measured in the same run."""
    baseline_name: str = ""

    @property
    def is_good(self) -> bool:
        """Whether the bound holds."""
        return self.bound is None or self.value <= self.bound

    @property
    def ratio(self) -> float | None:
        """How many times the baseline."""
        return self.value / self.baseline if self.baseline else None


def finish(figures: Sequence[Figure], *, as_json: bool) -> int:
    """Print the figures as a table or as JSON; the exit code says whether all bounds hold."""
    if as_json:
        rows = [{**asdict(one), "ratio": one.ratio, "good": one.is_good} for one in figures]
        sys.stdout.write(json.dumps({"figures": rows}, indent=1) + "\n")
    else:
        width = max(len(one.name) for one in figures)
        for one in figures:
            sys.stdout.write(_row(one, width) + "\n")
    return 0 if all(one.is_good for one in figures) else 1


def _row(one: Figure, width: int) -> str:
    text = f"{one.name.ljust(width)}  {one.value:10.2f} {one.unit:<10}"
    if one.ratio is not None:
        text += f"  {one.ratio:8.2f} x {one.baseline_name} ({one.baseline:.2f})"
    if one.bound is not None:
        text += f"  bound {one.bound:g}: {'holds' if one.is_good else 'BROKEN'}"
    return text.rstrip()


class Used(NamedTuple):
    """What one process used in its life."""

    cpu_s: float
    rss_bytes: int
    code: int


def measure(argv: Sequence[str], env: Mapping[str, str] | None = None) -> Used:
    """Run a program to its end, its output thrown away."""
    actions = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
    pid = os.posix_spawnp(argv[0], list(argv), dict(os.environ if env is None else env), file_actions=actions)
    _, status, used = os.wait4(pid, 0)
    return Used(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, os.waitstatus_to_exitcode(status))


def cpu_seconds(pid: int) -> float:
    """CPU time of a living process, of all its threads: nanoseconds from the scheduler, not clock ticks."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def until(ask: Callable[[], object], what: str, limit_s: float = 60.0, *, step_s: float = 0.01) -> None:
    """Wait until `ask`, which is asked every `step_s`, says something true.

    Raises:
        SystemExit: it does not.
    """
    deadline = time.monotonic() + limit_s
    while not ask():
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {limit_s:.0f} s: {what}")
        time.sleep(step_s)


@contextmanager
def slurm_farm(topology: Topology, *settings: str) -> Iterator[SlurmBed]:
    """A real Slurm with accounting under a short path, whose nodes share this machine; gone at the end.

    Args:
        topology: its nodes and partitions.
        settings: lines `Key=Value` of slurm.conf that are added, or replace those of the bed.
    """
    from remuda.testing.slurm import SlurmBed

    # Each step daemon would look through all processes of the machine once a second.
    quiet = ("JobAcctGatherType=jobacct_gather/none", "JobAcctGatherFrequency=0", "JobAcctGatherParams=NoShared")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    bed = SlurmBed(
        tempfile.mkdtemp(prefix="rbs", dir="/tmp"), topology=topology, isolated=False, extra=(*quiet, *settings),
        owned=True,
    )  # fmt: skip
    try:
        bed.up()
        yield bed
    finally:
        bed.down(wipe=True)


class BenchHome:
    """A state directory under a short path, with a host that nobody else uses; it leaves nothing behind."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="rb", dir="/tmp"))
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("REMUDA_", "DOMYN_SWARM_"))}
        self.env = {**kept, "REMUDA_HOME": str(self.root / "home"), "NO_COLOR": "1"}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def client(self) -> HostClient:
        """The host's API."""
        from remuda.base.disk.paths import StatePaths
        from remuda.client.http import HostClient

        return HostClient(StatePaths(self.root / "home"))

    def run(self, *arguments: str) -> str:
        """Run a command; its standard output.

        Raises:
            SystemExit: it failed.
        """
        done = subprocess.run(
            [sys.executable, "-m", "remuda", *arguments], env=self.env, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise SystemExit(f"remuda {' '.join(arguments)}: {done.returncode}\n{done.stderr[-2000:]}")
        return done.stdout

    def swarm(self, name: str, replicas: int, **changes: Any) -> Path:
        """Write the document of a swarm of engines that answer at once."""
        command = [sys.executable, "-m", "tests.fakes.engine", "--host", "{host}", "--port", "{port}"]
        document = {
            "name": name, "model": "bench-1", "engine": "command", "command": [*command, "--model", "bench-1"],
            "replicas": replicas, "ready": "all", "wait_endpoint_s": 120, "backend": {"type": "local"}, **changes,
        }  # fmt: skip
        path = self.root / f"{name}.yaml"
        path.write_text(json.dumps(document))
        return path

    def pids(self) -> list[int]:
        """Living processes that have this state directory in their environment or on their command line."""
        mark, found = os.fsencode(str(self.root)), []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
        return found

    def close(self) -> None:
        """End everything that was started with this state directory, and remove it."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            end = time.monotonic() + 10
            while (pids := self.pids()) and time.monotonic() < end:
                for pid in pids:
                    with suppress(ProcessLookupError):
                        os.kill(pid, number)
                time.sleep(0.1)
        shutil.rmtree(self.root, ignore_errors=True)

"""Seconds that `remuda stop` of many runs takes, beside one `remuda status` of them, and what it asks of Slurm.

The runs wait in the queue of a real Slurm. Every call of its commands is counted by a stand-in before the real one.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harness import BenchHome, Figure, cpu_seconds, finish, slurm_farm, until
from harness import measure as run_and_measure
from remuda.testing.slurm import cpu_farm

if TYPE_CHECKING:
    from remuda.testing.slurm import SlurmBed

TIMES_STATUS, SQUEUES, LOOKS = 3.0, 3.0, 5
MEMORY_MB = 8.0
"""What differs between two looks at a host that has done nothing in between, and then some."""
COMMANDS = ("squeue", "scancel", "sacct")


def count_calls(bed: SlurmBed, home: BenchHome) -> Path:
    """Let the commands that the host calls be noted, one line each, in the file that is returned."""
    folder, calls = home.root / "bin", home.root / "calls"
    folder.mkdir()
    for command in COMMANDS:
        script = folder / command
        script.write_text(f'#!/bin/sh\necho {command} >> {calls}\nPATH={bed.env()["PATH"]}\nexec {command} "$@"\n')
        script.chmod(0o755)
    home.env |= {"SLURM_CONF": bed.env()["SLURM_CONF"], "PATH": f"{folder}:{bed.env()['PATH']}"}
    calls.touch()
    return calls


def rss_mb(pid: int) -> float:
    """Memory of a process now."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


class Took(NamedTuple):
    """What one command cost."""

    seconds: float
    cpu_s: float
    """Of the command and of the host; a busy machine makes a command longer, and this not."""


def took(home: BenchHome, pid: int, *arguments: str) -> Took:
    begin, host_s = time.monotonic(), cpu_seconds(pid)
    used = run_and_measure([sys.executable, "-m", "remuda", *arguments], home.env)
    if used.code:
        raise SystemExit(f"remuda {arguments[0]}: {used.code}")
    return Took(time.monotonic() - begin, used.cpu_s + cpu_seconds(pid) - host_s)


def waiting(bed: SlurmBed) -> int:
    """How many jobs are in the queue and may begin: while one is held, the host still submits."""
    reasons = bed.run("squeue", "-h", "-r", "-t", "PD", "-o", "%r").stdout.split()
    return len(reasons) - reasons.count("JobHeldUser")


def rests(pid: int) -> bool:
    """Whether a process does next to nothing for longer than the host puts off what is not urgent."""
    before = cpu_seconds(pid)
    time.sleep(4.0)
    return cpu_seconds(pid) - before < 0.2


def measure(bed: SlurmBed, home: BenchHome, options: argparse.Namespace) -> list[Figure]:
    calls = count_calls(bed, home)
    names = [f"job-{number:04}" for number in range(options.runs)]
    for name in names:
        (home.root / f"{name}.sh").write_text("#!/bin/sh\nsleep 60\n")
    # The only processor of the cluster is taken, so none of them begins.
    blocker = bed.submit("sleep 100000", "--time=UNLIMITED")
    bed.wait_job(blocker, "RUNNING")
    scripts = [str(home.root / f"{name}.sh") for name in names]
    home.run("run", "--backend", "slurm", "--partitions", "cpu", *scripts)
    until(lambda: waiting(bed) == options.runs, "all wait", 600, step_s=1.0)
    pid = int(home.client.get("/host")["pid"])
    until(lambda: rests(pid), "the host has nothing to do", 60)
    looks = [took(home, pid, "status") for _ in range(LOOKS)]
    # What is typical of one: `stop` can be measured only once, and so has no best try either.
    status = Took(statistics.median(look.seconds for look in looks), statistics.median(look.cpu_s for look in looks))
    memory, before = rss_mb(pid), len(calls.read_text().split())
    stop = took(home, pid, "stop", *names, "--timeout", "600")
    asked = Counter(calls.read_text().split()[before:])
    after = rss_mb(pid)
    name, many = "one status", f"{options.runs} runs"
    return [
        Figure(f"stop of {many}", stop.seconds, "s", TIMES_STATUS * status.seconds, status.seconds, name),
        Figure("CPU of it, host and command", stop.cpu_s, "s", TIMES_STATUS * status.cpu_s, status.cpu_s, name),
        *(Figure(f"calls of {command}", asked[command], "", SQUEUES if command == "squeue" else None)
          for command in COMMANDS),
        Figure("memory of the host after it", after, "MB", memory + MEMORY_MB, memory, "before"),
    ]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with slurm_farm(cpu_farm(1, cpus=1)) as bed, BenchHome() as home:
        figures = measure(bed, home, options)
    return finish(figures, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())

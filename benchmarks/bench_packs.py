"""Rigid gangs: what `decide` costs; on a real Slurm, how long start and restart take and what an idle crew needs.

python benchmarks/bench_packs.py [--ranks N] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

from harness import BenchHome, Figure, cpu_seconds, finish, slurm_farm, until
from remuda.backends.base import TaskKey
from remuda.plan.model import Command, Group, Kind, Role, Workload
from remuda.supervise.decide import decide
from remuda.supervise.model import Phase, Task, Want
from remuda.testing.slurm import cpu_farm

NOW, TASKS, RANKS, BACKOFF_S, IDLE_S = 1_000_000.0, 10_000, 64, 0.1, 20.0
RANK = """\
import os, time
env = os.environ
folder, rank, attempt = env["OUT"], env.get("RANK") or env["SLURM_PROCID"], env.get("REMUDA_ATTEMPT", "0")
with open(f"{folder}/{attempt}-{rank}", "w") as file:
    file.write(f"{time.time()} {os.getpid()}")
while not os.path.exists(f"{folder}/go-{attempt}"):
    time.sleep(0.05)
"""


def world(*, together: bool) -> list[tuple[Want, dict[TaskKey, Task]]]:
    """Gangs in the middle of their lives; not together: the same tasks as runs."""
    made = []
    for number in range(TASKS // RANKS):
        name = f"w{number}"
        group = Group(name="rank", role=Role.RANK, count=RANKS, command=Command(argv=("train",)), together=together)
        workload = Workload(name=name, kind=Kind.GANG, uid="u", backend="fake", groups=(group,), run_dir="/run")
        keys = [TaskKey(name, "rank", index) for index in range(RANKS)]
        tasks = {key: Task(key, "fake", Phase.READY, attempt=1, token=f"t{key.index}", ready_since=NOW) for key in keys}
        made.append((Want(workload, running=True, counts={"rank": RANKS}), tasks))
    return made


def decide_ms(*kinds: list[tuple[Want, dict[TaskKey, Task]]]) -> list[float]:
    """CPU of one look at all of each kind, taken in turn."""
    times: list[list[float]] = [[] for _ in kinds]
    for _ in range(25):
        for worlds, mine in zip(kinds, times, strict=True):
            begin = time.process_time()
            for want, tasks in worlds:
                decide(want, tasks, NOW)
            mine.append(time.process_time() - begin)
    return [statistics.median(mine) * 1000 for mine in times]


def began(folder: Path, attempt: int, ranks: int) -> float:
    """When the last rank of an attempt began."""
    paths = [folder / f"{attempt}-{rank}" for rank in range(ranks)]
    until(lambda: all(path.exists() and path.read_text() for path in paths), f"attempt {attempt} runs", 120)
    return max(float(path.read_text().split()[0]) for path in paths)


def bare_s(folder: Path, ranks: int, env: dict[str, str]) -> float:
    """Seconds from the start of a batch script to its last rank, by `srun` alone."""
    words = f"date +%s.%N > {folder}/begin; srun --ntasks={ranks} {sys.executable} {folder}/rank.py"
    wanted = ["-N2", f"--ntasks={ranks}", "-p", "cpu", "--account=inference", "--qos=normal", "--output=/dev/null"]
    argv = ["sbatch", *wanted, "--wrap", words]
    subprocess.run(argv, env=env, check=True, capture_output=True, cwd=folder)
    last = began(folder, 0, ranks)
    (folder / "go-0").touch()
    return last - float((folder / "begin").read_text())


def node_programs_s(home: BenchHome, folder: Path, number: int) -> float:
    """Seconds that whole node programs take, begun at once, whose tasks end at once: what a rank has below it."""
    (program,) = (home.root / "home/node").glob("*.pyz")
    known = json.loads(next((home.root / "home/workloads/bench").glob("rank-0/*/child.json")).read_text())
    times = []
    for turn in range(5):
        documents = []
        for at in range(number):
            own = folder / f"alone-{number}-{turn}-{at}"
            own.mkdir()
            mine = known | {"run_dir": str(own), "argv": ["/bin/true"], "host_file": str(folder / "no-host")}
            (own / "child.json").write_text(json.dumps(mine))
            documents.append(str(own / "child.json"))
        begin = time.perf_counter()
        argv = [sys.executable, "-I", "-S", str(program), "child"]
        programs = [subprocess.Popen([*argv, document], stderr=subprocess.DEVNULL) for document in documents]
        ends = [one.wait() for one in programs]
        if any(ends):
            raise SystemExit(f"node programs alone ended with {ends}")
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def crews(home: BenchHome) -> list[int]:
    """Programs of a pack beside its node programs."""
    lines = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in home.pids()}
    return [pid for pid, line in lines.items() if line[-3:-2] in ([b"crew"], [b"seats"]) and b"srun" not in line[0]]


def memory_mb(pid: int) -> float:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in rollup if line.startswith("Pss:")) / 1024


def on_slurm(ranks: int) -> list[Figure]:
    """The figures of a gang of so many ranks on two nodes."""
    with slurm_farm(cpu_farm(2, cpus=ranks)) as bed, BenchHome() as home:
        folder = home.root / "out"
        folder.mkdir()
        (folder / "rank.py").write_text(RANK)
        home.env |= {name: bed.env()[name] for name in ("SLURM_CONF", "PATH")} | {"OUT": str(folder)}
        home.run("host", "start")
        bare = bare_s(folder, ranks, home.env)
        typed = time.time()
        home.run(
            "gang", "run", "-n", str(ranks), "--mode", "rigid", "--backend", "slurm", "-p", "cpu", "--name", "bench",
            "-s", "account=inference", "-s", "qos=normal", "-s", f"backoff_base={BACKOFF_S}", "-s", "cpus_per_task=1",
            "-s", f"backoff_max={BACKOFF_S}", "-s", f"env.OUT={folder}", "-s", f"ranks_per_node={ranks // 2}", "--",
            sys.executable, str(folder / "rank.py"),
        )  # fmt: skip
        last = began(folder, 1, ranks)
        (claim,) = (home.root / "home/workloads/bench").glob("pack-0/*/claim.json")
        start, fresh = last - claim.stat().st_mtime, last - typed
        program, programs = node_programs_s(home, folder, 1), node_programs_s(home, folder, ranks)
        before = {pid: cpu_seconds(pid) for pid in crews(home)}
        time.sleep(IDLE_S)
        idle = max((cpu_seconds(pid) - cpu) / IDLE_S * 100 for pid, cpu in before.items())
        memory = max(map(memory_mb, before))
        killed = time.time()
        os.kill(int((folder / "1-0").read_text().split()[1]), signal.SIGKILL)
        again = began(folder, 2, ranks) - killed
        (folder / "go-2").touch()
        home.run("down", "bench")
        below = bare + 2 * program + programs
    return [
        Figure(f"start of the job → the last of {ranks} ranks", start, "s", 1.2 * below, below,
               "srun alone, two programs that start others, a node program for each rank"),
        Figure("a whole node program; one for each rank, at once", programs, "s", None, program, "one alone"),
        Figure("a rank killed → the last rank of the next attempt", again, "s", 2.5, fresh,
               "typed → the last rank"),
        Figure("idle crew, the busier of its programs", idle, "% of a core", 0.3),
        Figure("its memory", memory, "MiB", 15.0),
    ]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    alone, whole = decide_ms(world(together=False), world(together=True))
    first = Figure(f"decide, {TASKS:,} tasks in gangs of {RANKS}", whole, "ms", 1.2 * alone, alone, "the same as runs")
    return finish([first, *on_slurm(options.ranks)], as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())

"""What one look of the supervisor at many runs on Slurm costs, beside one squeue for each job and one bare squeue."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness import BenchHome, Figure, finish, slurm_farm
from remuda.backends.rundir import allocation_dir
from remuda.backends.slurm.backend import SlurmBackend
from remuda.backends.slurm.client import SlurmClient
from remuda.backends.slurm.commands import Commands
from remuda.backends.slurm.parsing.parse import RECORD, SQUEUE_FORMAT, parse_squeue
from remuda.backends.slurm.render import SlurmSite
from remuda.base.clock import SystemClock
from remuda.base.disk.paths import StatePaths
from remuda.host.reconcilers.campaigns import Campaigns
from remuda.host.reconcilers.every import every
from remuda.host.reconcilers.job_rows import JobKeeper
from remuda.host.reconcilers.run_files import RunFiles
from remuda.host.service import NewWorkload, Service
from remuda.plan.model import Command, Group, Kind, Replace, Role, Watch, Workload
from remuda.store import lease
from remuda.store.engine import open_store
from remuda.supervise.loop import Supervisor
from remuda.supervise.model import Phase, Task
from remuda.supervise.records import StoreJournal
from remuda.testing.slurm import cpu_farm
from remuda.wire.process import identify
from remuda.wire.report import Report

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from remuda.testing.slurm import SlurmBed

BOUND_MS = 300.0
NODES = 4
AT_ONCE = 40
"""So many jobs are begun together."""
#: Takes the place of the node program: a claim, and then nothing. What it would write is written by the benchmark.
STAND_IN = """#!/bin/sh
folder=${5%/*}
printf '{"pid": %d, "start": "", "boot": "", "node": "%s"}\\n' $$ "$SLURMD_NODENAME" > "$folder/claim.new"
mv "$folder/claim.new" "$folder/claim.json"
exec sleep 1000000
"""


@dataclass(frozen=True)
class Spent:
    """What something cost."""

    host_ms: float
    """CPU time of this process, of all its threads."""
    children_ms: float
    calls: Counter[str]


class Host:
    """The parts of a host that look after runs, without its API, so that one step can be measured alone."""

    def __init__(self, home: BenchHome, bed: SlurmBed) -> None:
        self.bed = bed
        paths = StatePaths(home.root / "home")
        paths.prepare()
        stand_in = home.root / "stand-in"
        stand_in.write_text(STAND_IN)
        stand_in.chmod(0o755)
        self.workloads = paths.workloads
        self.store = open_store(str(paths.database))
        taken = lease.acquire(self.store, identify(os.getpid()), 3600.0, time.time())
        assert isinstance(taken, lease.Lease)
        self.commands = Commands(environ=bed.env())
        site = SlurmSite(paths.workloads, paths.root / "node.pyz", paths.host_file, python=str(stand_in))
        backend = SlurmBackend(site, SlurmClient(self.commands), poll_s=0.0, hurry_s=0.0)
        journal = StoreJournal(self.store, taken.fence)
        self.supervisor = Supervisor(journal, {"slurm": backend}, SystemClock())
        self.service = Service(journal, self.supervisor, paths, SystemClock())
        jobs = JobKeeper(journal, self.supervisor, paths, SystemClock())
        self.supervisor.after = every(self.service, jobs, Campaigns(self.service, jobs))
        self.files = next(one for one in self.supervisor.after if isinstance(one, RunFiles))
        self._said = 0

    def tasks(self, *phases: Phase) -> list[Task]:
        """All tasks that are in one of the phases."""
        found = (task for tasks in self.supervisor.all.values() for task in tasks.values())
        return [task for task in found if task.phase in phases]

    def create(self, first: int, count: int, *args: str) -> None:
        """Record runs that are not begun again while this runs, and are never taken for hung.

        Args:
            first: number of the first of them.
            count: how many.
            args: more arguments of `sbatch`.
        """
        watch = Watch(heartbeat_grace_s=86400.0)
        rule = Replace(policy="on-failure", backoff_initial_s=86400.0, backoff_max_s=86400.0)
        group = Group(
            name="script", role=Role.SCRIPT, count=1, command=Command(argv=("sleep",)), watch=watch, replace=rule
        )
        self.service.create_many([
            NewWorkload(Workload(
                name=f"run-{number:04}", kind=Kind.RUN, uid="bench123", backend="slurm", groups=(group,),
                run_dir=str(self.workloads / f"run-{number:04}"), place={"partition": "cpu", "args": args},
            ))
            for number in range(first, first + count)
        ])  # fmt: skip

    def report(self) -> int:
        """Write what the node programs would have written since the last look: a report and a heartbeat each."""
        self._said += 1
        count = 0
        for task in self.tasks(Phase.PENDING, Phase.STARTING, Phase.READY):
            folder = allocation_dir(self.workloads, task.token)
            if not (folder / "claim.json").exists():
                continue
            count += 1
            report = Report(
                token=task.token, attempt=task.attempt, seq=self._said, at=time.time(), state="ready",
                node=task.node or "n001", pid=4242, metrics={"progress_step": float(self._said), "loss": 1.25},
            )  # fmt: skip
            for name, text in (("report.json", report.to_json()), ("heartbeat", f"{time.time()}\n")):
                (folder / f"{name}.new").write_text(text)
                (folder / f"{name}.new").replace(folder / name)
        return count

    async def spend(self, act: Callable[[], Awaitable[object]]) -> Spent:
        """What `act` costs."""
        before = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        calls = Counter(self.commands.calls)
        await act()
        after = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        host, children = (
            1000 * (late.ru_utime + late.ru_stime - early.ru_utime - early.ru_stime)
            for early, late in zip(before, after, strict=True)
        )
        return Spent(host, children, Counter(self.commands.calls) - calls)

    async def begin(self, count: int, running: int, limit_s: float) -> None:
        """Submit, release, and wait until so many run; few at once, so that the machine bears it."""
        deadline = time.monotonic() + limit_s
        for first in range(0, running, AT_ONCE):
            last = min(first + AT_ONCE, running)
            self.create(first, last - first)
            while len(self.tasks(Phase.READY)) < last:
                await self.supervisor.step()
                self.report()
                if time.monotonic() > deadline or self.tasks(Phase.WAITING):
                    raise SystemExit(f"{last} runs do not run within {limit_s:.0f} s: {self.told()}")
                await asyncio.sleep(0.5)
        self.create(running, count - running, "--begin=now+30days")
        while len(self.tasks(Phase.PENDING)) < count - running:
            await self.supervisor.step()
        await self.supervisor.step()
        await self.files.close()

    def told(self) -> str:
        """How many tasks are in which phase."""
        phases = Counter(str(task.phase) for tasks in self.supervisor.all.values() for task in tasks.values())
        return ", ".join(f"{count} {phase}" for phase, count in sorted(phases.items()))

    async def bare_look(self) -> None:
        """One squeue, taken apart and no more."""
        argv = ["squeue", "-h", "-r", "-t", "all", "-o", SQUEUE_FORMAT]
        done = subprocess.run(argv, env=self.bed.env(), capture_output=True, text=True, check=True)
        assert [line.split("\x1f") for line in done.stdout.split(RECORD)]

    async def naive_look(self, tasks: list[Task]) -> None:
        """One squeue for each job, all that many programs do."""
        for task in tasks:
            parse_squeue(await self.commands.ask(("squeue", "-h", "-j", task.native, "-o", SQUEUE_FORMAT)))

    async def kill(self, count: int, *, purged: bool, limit_s: float) -> list[Task]:
        """Kill that many of the running jobs, and wait until squeue says so, or (`purged`) does not list them."""
        chosen = self.tasks(Phase.READY)[:count]
        for number, task in enumerate(chosen):
            folder = allocation_dir(self.workloads, task.token)
            if number % 2:  # every other left a last word; the rest was killed with its node program
                word = {"token": task.token, "attempt": 1, "code": 1, "at": time.time(), "child_exit_code": 1}
                (folder / "exit.json").write_text(json.dumps(word))
            os.kill(json.loads((folder / "claim.json").read_text())["pid"], signal.SIGKILL)
        mine, deadline = {task.native for task in chosen}, time.monotonic() + limit_s
        while True:
            states = ["-t", "all"] if purged else []
            listed = self.bed.run("squeue", "-h", *states, "-o", "%i").stdout.split()
            if not mine & set(listed):
                return chosen
            if time.monotonic() > deadline:
                raise SystemExit(f"not within {limit_s:.0f} s: {count} jobs have left the queue")
            await asyncio.sleep(0.5)


async def figures(host: Host, options: argparse.Namespace) -> list[Figure]:
    live, running = options.runs, options.running
    await host.begin(live, running, options.limit)
    seen = len(host.tasks(Phase.READY)), len(host.tasks(Phase.PENDING))
    looks = []
    for _ in range(options.rounds):
        if host.report() < running:
            raise SystemExit(f"runs have ended by themselves: {host.told()}")
        looks.append(await host.spend(host.supervisor.step))
    bare = statistics.median([(await host.spend(host.bare_look)).host_ms for _ in range(options.rounds)])
    sample = host.tasks(Phase.READY)[: options.sample]
    naive = await host.spend(lambda: host.naive_look(sample))
    scale = live / len(sample)
    look_ms, children_ms = (statistics.median([getattr(look, name) for look in looks]) for name in
                            ("host_ms", "children_ms"))  # fmt: skip
    each = f"one squeue a job, from {len(sample)}"
    found = [
        Figure(f"a look at {live} runs ({seen[0]} run, {seen[1]} pend, all reports new): host", look_ms, "ms CPU",
               BOUND_MS, bare, "bare squeue"),
        Figure("the same, beside naive looks", look_ms, "ms CPU", None, naive.host_ms * scale, each),
        Figure("commands that it started", children_ms, "ms CPU", None, naive.children_ms * scale, each),
        Figure("squeue calls in a look", max(look.calls["squeue"] for look in looks), "calls", 1),
        Figure("all other calls in a look", max(look.calls.total() - look.calls["squeue"] for look in looks), "calls",
               0),
    ]  # fmt: skip
    for purged in (False, True):
        found += await leave(host, options, purged=purged)
    return found


async def leave(host: Host, options: argparse.Namespace, *, purged: bool) -> list[Figure]:
    """One look after many runs have ended at once."""
    killed = await host.kill(options.leaving, purged=purged, limit_s=options.limit)
    host.report()
    look = await host.spend(host.supervisor.step)
    files = await host.spend(host.files.close)
    gone = len({task.key for task in killed} & {task.key for task in host.tasks(Phase.WAITING)})
    if gone != options.leaving:
        raise SystemExit(f"{gone} runs were seen to end, and {options.leaving} did: {host.told()}")
    how = "forgotten by squeue" if purged else "listed as ended"
    return [
        Figure(f"{gone} runs leave at once, {how}: host", look.host_ms, "ms CPU"),
        Figure("and the files of those runs", files.host_ms, "ms CPU"),
        Figure("squeue calls", look.calls["squeue"], "calls", 1),
        Figure("sacct calls", look.calls["sacct"], "calls", 1),
        Figure("scontrol calls", look.calls["scontrol"], "calls"),
        Figure("other calls", look.calls.total() - sum(look.calls[name] for name in ("squeue", "sacct", "scontrol")),
               "calls", 0),
    ]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--running", type=int, default=400, help="of them; the others are pending")
    parser.add_argument("--leaving", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--sample", type=int, default=30, help="jobs of the naive look")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds for the cluster to start or end the jobs")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if 2 * options.leaving > options.running or options.running > options.runs:
        parser.error("--running is at least twice --leaving, and at most --runs")
    farm = cpu_farm(NODES, cpus=-(-options.running // NODES))
    # Ended jobs must be listed for as long as it takes a busy machine to end them all, and not much longer.
    with slurm_farm(farm, "MinJobAge=60", "BatchStartTimeout=300", "MessageTimeout=60") as bed, BenchHome() as home:
        host = Host(home, bed)
        try:
            return finish(asyncio.run(figures(host, options)), as_json=options.json)
        finally:
            host.store.close()


if __name__ == "__main__":
    sys.exit(main())

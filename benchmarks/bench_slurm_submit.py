"""How fast one `remuda run` of many scripts gets them all accepted and released, beside 16 bare `sbatch` at once."""

from __future__ import annotations

import argparse
import getpass
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from harness import BenchHome, Figure, cpu_seconds, finish, slurm_farm, until
from remuda.testing.slurm import cpu_farm

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.testing.slurm import SlurmBed

AT_ONCE = 16
AT_MOST = 2.0
"""Times what the bare calls take."""


def bare_s(bed: SlurmBed, scripts: list[Path]) -> float:
    """Seconds for as many bare calls; their jobs are gone afterwards."""
    begin = time.monotonic()
    subprocess.run(
        ["xargs", "-P", str(AT_ONCE), "-n", "1", "sbatch", "--parsable", "--output=/dev/null", "--job-name=bare"],
        input="\n".join(map(str, scripts)), env=bed.env(), stdout=subprocess.DEVNULL, text=True, check=True,
    )  # fmt: skip
    seconds = time.monotonic() - begin
    made = bed.run("squeue", "-h", "--name=bare", "-o", "%i").stdout.split()
    if len(made) != len(scripts):
        raise SystemExit(f"{len(made)} of {len(scripts)} bare jobs were taken")
    bed.run("scancel", "--name=bare")
    until(lambda: not bed.run("squeue", "-h", "--name=bare", "-o", "%i").stdout, "the bare jobs are gone")
    return seconds


def released(bed: SlurmBed) -> int:
    """How many jobs of runs wait for nobody but Slurm."""
    lines = bed.run("squeue", "-h", "-r", "-o", "%r|%j").stdout.splitlines()
    return sum(
        ("runs.script.b.1." in line or ".script.0.1." in line) and not line.startswith("JobHeldUser|") for line in lines
    )


def measure(bed: SlurmBed, home: BenchHome, options: argparse.Namespace) -> list[Figure]:
    scripts = []
    for number in range(options.runs):
        script = home.root / f"job-{number:04}.sh"
        script.write_text("#!/bin/sh\nsleep 60\n")
        scripts.append(script)
    home.env |= {name: bed.env()[name] for name in ("SLURM_CONF", "PATH")}
    home.run("list")  # the host runs; starting it is measured elsewhere
    host = int(home.client.get("/host")["pid"])
    # The only processor of the cluster is taken: neither kind of job begins and disturbs the others.
    blocker = bed.submit("sleep 100000", "--time=UNLIMITED")
    bed.wait_job(blocker, "RUNNING")
    before = bare_s(bed, scripts)
    host_cpu, begin = cpu_seconds(host), time.monotonic()
    command = [sys.executable, "-m", "remuda", "run", "--backend", "slurm", "--partitions", "cpu", *map(str, scripts)]
    child = subprocess.Popen(command, env=home.env, cwd=home.root, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                             text=True)  # fmt: skip
    marks: dict[str, float] = {}

    def is_over() -> bool:
        if "returned" not in marks and child.poll() is not None:
            marks["returned"] = time.monotonic() - begin
        if child.returncode:
            raise SystemExit(f"remuda run: {child.returncode}\n{child.communicate()[1][-2000:]}")
        return child.returncode == 0 and released(bed) >= options.runs

    until(is_over, f"{options.runs} runs are released", 900, step_s=0.2)
    seconds, host_cpu = time.monotonic() - begin, cpu_seconds(host) - host_cpu
    home.run("host", "stop")  # it would look after what is cancelled now
    bed.run("scancel", "--state=PENDING", f"--user={getpass.getuser()}", check=False)
    bare = (before + bare_s(bed, scripts)) / 2
    name = f"{AT_ONCE} bare sbatch at once"
    return [
        Figure(f"{options.runs} runs by one command, accepted and released", seconds, "s", AT_MOST * bare, bare, name),
        Figure("of that until the command returned", marks["returned"], "s", None, bare, name),
        Figure("runs a second", options.runs / seconds, "/s", None, options.runs / bare, name),
        Figure("CPU of the host", host_cpu, "s"),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with slurm_farm(cpu_farm(1, cpus=1)) as bed, BenchHome() as home:
        figures = measure(bed, home, options)
    return finish(figures, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())

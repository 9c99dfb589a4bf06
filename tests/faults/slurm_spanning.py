"""A replica over two nodes of the real cluster: brought up, asked, looked for afterwards."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.conftest import PYTHON, until

if TYPE_CHECKING:
    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed

PROGRAMS = Path(__file__).parent / "programs"
BACKEND = {
    "type": "slurm", "partition": "spot", "account": "inference", "qos": "normal", "time_limit": "02:00:00",
    "preamble": ["#SBATCH --mem=8G"],
    "endpoint": {"cpus_per_task": 1, "mem": "200MB", "wall_time": "01:00:00"},
}  # fmt: skip
RANKS = [PYTHON, str(PROGRAMS / "ranks.py"), "{rank}", "{nnodes}", "{head}", "{head_port}", "{port}"]
ON_RAY = [PYTHON, str(PROGRAMS / "on_ray.py"), "2", "{port}"]


def up(site: Home, command: list[str], **changes: Any) -> dict[str, Any]:
    """Bring up one replica of two nodes with two GPUs each, without a router; its answer."""
    key = site.root / "key"
    key.write_text("of-the-ranks\n")
    file = site.swarm(
        backend=BACKEND, gpus_per_replica=4, gpus_per_node=2, cpus_per_task=1, replicas=1, router="none",
        command=command, secret_env={"TOKEN_OF_RANKS": {"file": str(key)}}, wait_endpoint_s=360,
        **{"env": {"GPUS_OF_A_NODE": "2"}, **changes},
    )  # fmt: skip
    done = site.run("up", "-c", str(file), check=False, timeout=420)
    assert done.returncode == 0, f"{done.stderr}\n{told(site)}"
    return ask(site)


def told(site: Home) -> str:
    logs = sorted(site.paths.workloads.rglob("child.log")) + sorted(site.paths.workloads.rglob("node.log"))
    return "\n".join([site.run("explain", "herd", check=False).stdout, *(path.read_text()[-3000:] for path in logs)])


def ask(site: Home) -> dict[str, Any]:
    url = site.task("herd", "replica/0")["url"]
    with urllib.request.urlopen(f"{url}/v1/models", timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def member(site: Home) -> int:
    """Pid of rank 1."""
    script = str(PROGRAMS / "ranks.py")
    (pid,) = [pid for pid in site.tokens() if _words(pid)[1:3] == [script, "1"]]
    return pid


def _words(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def names_in_queue(slurm: SlurmBed) -> set[str]:
    """Nodes of the only job there is."""
    listed = slurm.run("squeue", "-h", "-o", "%N").stdout.strip()
    return set(slurm.run("scontrol", "show", "hostnames", listed).stdout.split())


def nothing_left(site: Home, slurm: SlurmBed) -> None:
    """No job, and on no node a process of the replica."""
    assert slurm.run("squeue", "-h", "-o", "%j").stdout == ""
    until(lambda: not site.tokens(), "no process is left on any node")


def wait_replaced(site: Home, lost: set[str]) -> None:
    def served() -> bool:
        task = site.task("herd", "replica/0")
        return bool(task["phase"] == "ready" and task["attempt"] >= 2)

    try:
        until(served, "it serves again", 180)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{told(site)}") from None
    assert not lost & nodes_of(ask(site))


def nodes_of(answer: dict[str, Any]) -> set[str]:
    where = answer["where"]
    return set(where.values() if isinstance(where, dict) else where)

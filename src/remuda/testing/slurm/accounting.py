"""The accounting side of a bed: a private MariaDB, slurmdbd, and the associations of the topology."""

from __future__ import annotations

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.base.errors import RemudaError
from remuda.fleet.tree import which
from remuda.testing.slurm.config import CLUSTER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from remuda.testing.slurm.config import BedLayout
    from remuda.testing.slurm.topology import Topology

_SQL = [Path("/usr/share/mysql"), Path("/usr/share/mariadb")]


def make_database(layout: BedLayout) -> None:
    """Make the system tables, unless they are there; the bed's user logs in through the socket, nobody else can.

    Raises:
        RemudaError: MariaDB refused; the message has its words.
    """
    done = layout.root / "db" / "made"
    if done.exists():
        return
    shutil.rmtree(layout.root / "db", ignore_errors=True)
    (layout.root / "db" / "mysql").mkdir(parents=True, mode=0o700)
    answer = subprocess.run(
        [_mariadbd(), f"--defaults-file={layout.root}/my.cnf", f"--user={layout.user}", "--bootstrap"],
        input=_system_tables(layout.user),
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        log = (layout.root / "log" / "mariadbd.log").read_text(errors="replace")
        raise RemudaError(f"MariaDB cannot make its system tables: {answer.stderr[-500:]}\n{log[-1500:]}")
    done.touch()


def _mariadbd() -> str:
    return which("mariadbd") or "mariadbd"


def _system_tables(user: str) -> str:
    """What MariaDB's own installer runs, without help texts, time zones, and rows for this machine's host name."""
    parts = [f"use mysql;\nset @auth_root_socket='{user}';\n", _script("system_tables")]
    data = _script("system_tables_data").splitlines(keepends=True)
    return "".join([*parts, *(line for line in data if "@current_hostname" not in line)])


def _script(name: str) -> str:
    for folder in _SQL:
        for maker in ("mysql", "mariadb"):
            path = folder / f"{maker}_{name}.sql"
            if path.exists():
                return path.read_text()
    raise RemudaError(f"no {name}.sql of MariaDB in {' or '.join(map(str, _SQL))}")


def associations(topology: Topology, user: str) -> list[list[str]]:
    """Arguments of `sacctmgr`, in stages: those of one stage may run side by side."""
    stages = [[f"add cluster {CLUSTER}"], [f"add qos {qos.name} {qos.options}" for qos in topology.qos]]
    if topology.accounts:
        allowed = ",".join(["normal", *(qos.name for qos in topology.qos)])
        names = ",".join(topology.accounts)
        stages.append([f"add account {names} Cluster={CLUSTER} Description=bed Organization=bed QOS={allowed}"])
        stages.append([f"add user {user} Account={names} DefaultAccount={topology.accounts[0]}"])
    return [stage for stage in stages if stage]


def fill(layout: BedLayout, run: Callable[[Sequence[str]], subprocess.CompletedProcess[str]]) -> None:
    """Add cluster, qualities of service, accounts and the user, once.

    Raises:
        RemudaError: sacctmgr refused one of them.
    """
    done = layout.root / "db" / "filled"
    if done.exists():
        return
    for stage in associations(layout.topology, layout.user):
        with ThreadPoolExecutor() as pool:
            answers = pool.map(lambda line: run(["sacctmgr", "-i", *line.split()]), stage)
            for line, answer in zip(stage, answers, strict=True):
                if answer.returncode != 0 and "already exists" not in answer.stdout + answer.stderr:
                    raise RemudaError(f"sacctmgr {line}: {(answer.stderr or answer.stdout).strip()}")
    done.touch()

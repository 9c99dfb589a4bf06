"""Groups that wait for each other on a real Slurm, each task a job."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.component.ordered import life, lines, post
from tests.conftest import until

from remuda.base.ids import new_suffix
from remuda.plan.model import (
    PORT_MARK,
    Command,
    Group,
    HealthProbe,
    Kind,
    Listen,
    Replace,
    RestartRule,
    Role,
    Workload,
    address_mark,
)

if TYPE_CHECKING:
    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed

SERVER = str(Path(__file__).parents[1] / "node/server.py")


def test_a_deployment_of_four_groups(home: Home, slurm: SlurmBed) -> None:
    home.env |= {**slurm.env(), "REMUDA_SLURM_POLL_S": "0.5"}
    life(home, "slurm", {"partition": "cpu", "workdir": str(home.root)})
    until(lambda: not slurm.run("squeue", "-h", "-o", "%j").stdout.split(), "no job is left")


def test_who_was_told_where_a_service_is_follows_it_to_another_node(home: Home, slurm: SlurmBed) -> None:
    home.env |= {**slurm.env(), "REMUDA_SLURM_POLL_S": "0.5"}
    once, soon = RestartRule(policy="never"), Replace(backoff_initial_s=0.1)
    service = Group(
        name="service", role=Role.SERVICE, count=1, listen=Listen(port=2379),
        probe=HealthProbe(path="", interval_s=1.0), restart=once, replace=soon,
        command=Command(argv=(sys.executable, "-I", "-S", SERVER, PORT_MARK)),
    )  # fmt: skip
    worker = Group(
        name="worker", role=Role.DECODE, count=1, after=("service",), restart=once, replace=soon,
        command=Command(argv=("/bin/sh", "-c", f"echo $AT >> {home.root}/told; exec sleep 1000"),
                        env={"AT": address_mark("service")}),
    )  # fmt: skip
    home.run("host", "start")
    post(home, Workload(
        name="pd", kind=Kind.DEPLOYMENT, uid=new_suffix(8), backend="slurm", groups=(worker, service),
        run_dir=str(home.paths.workload("pd")), place={"partition": "cpu", "workdir": str(home.root)},
    ))  # fmt: skip
    first = until(lambda: lines(home, "told"), "the worker is told")[0]
    task = home.task("pd", "service/0")
    assert task["url"] == f"http://{first}"
    slurm.run("scontrol", "update", f"nodename={task['node']}", "state=drain", "reason=test")
    home.run("restart", "pd", "service")
    second = until(lambda: lines(home, "told")[1:], "the worker is told anew")[0]
    assert home.task("pd", "service/0")["url"] == f"http://{second}"
    assert second != first
    assert f"service has another address: it was {first}, and is {second}" in home.run("events", "pd").stdout
    home.run("down", "pd")

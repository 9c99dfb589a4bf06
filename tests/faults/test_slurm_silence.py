"""Replicas of which nothing is heard, and hosts that hear nothing over the network."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import pytest
from tests.faults.slurm_herds import Herd

if TYPE_CHECKING:
    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed


@pytest.fixture
def herd(home: Home, slurm: SlurmBed) -> Herd:
    return Herd(home, slurm)


def test_a_replica_that_nobody_watches_any_more_is_replaced(herd: Herd) -> None:
    """The program beside it stands still, and Slurm sees nothing wrong: it is missed, because others are heard."""
    herd.up(replicas=3, watchdog={"silence_after": 15})
    address, job = herd.tasks()["replica/1"]["url"], herd.tasks()["replica/1"]["native"]
    os.kill(herd.node_program("replica/1"), signal.SIGSTOP)
    herd.wait(lambda: address not in herd.members(), "nothing is sent there any more")
    herd.wait(lambda: herd.tasks()["replica/1"]["attempt"] == 2 and herd.serves(), "it is replaced")
    assert "unhealthy" in herd.story("replica/1")
    assert herd.tasks()["replica/1"]["native"] != job
    assert [herd.tasks()[name]["attempt"] for name in ("replica/0", "replica/2", "router/0")] == [1, 1, 1]
    assert "no sign of life" in herd.told()
    assert herd.ask() == 200
    herd.down()


def test_where_the_network_to_the_host_is_closed_files_carry_the_reports(herd: Herd) -> None:
    herd.home.run("host", "start")
    where = json.loads(herd.home.paths.host_file.read_text())
    herd.home.paths.host_file.write_text(json.dumps({**where, "report_port": 1}))
    herd.up(replicas=2)
    seen = {name: task["last_seen"] for name, task in herd.replicas().items()}
    herd.wait(lambda: all(task["last_seen"] > seen[n] for n, task in herd.replicas().items()), "they are heard again")
    herd.home.behave("500")
    herd.wait(lambda: any(task["phase"] == "unhealthy" for task in herd.replicas().values()), "status follows")
    herd.home.behave("ok")
    herd.wait(herd.serves, "all serve again")
    assert herd.home.client.get("/host")["reports"]["reports"] == 0
    assert [task["attempt"] for task in herd.replicas().values()] == [1, 1]
    herd.down()

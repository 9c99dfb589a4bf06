"""The one address of a swarm on Slurm, while what is behind it is cancelled, ended by its time limit, and killed."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from tests.faults.slurm_herds import Herd
from tests.faults.slurm_relays import asking, only_waited

if TYPE_CHECKING:
    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed


def test_a_router_that_is_cancelled_and_a_relay_that_is_killed(home: Home, slurm: SlurmBed) -> None:
    herd = Herd(home, slurm)
    address = herd.up_safely()
    with asking(address) as asked:
        slurm.run("scancel", herd.task("router/0")["native"])
        herd.wait_for_router(2)
        assert herd.address == address
        before = asked.good
        herd.wait(lambda: asked.good > before + 50, "clients are answered again")
    assert only_waited(asked), asked.answers
    replicas = [herd.task(f"replica/{index}")["attempt"] for index in (0, 1)]
    assert replicas == [1, 1]

    relay = herd.task("relay/0")
    os.kill(relay["pid"], signal.SIGKILL)
    herd.wait(
        lambda: herd.task("relay/0")["restarts"] == 1 and herd.task("relay/0")["phase"] == "ready", "the relay is back"
    )
    assert herd.task("relay/0")["url"] == relay["url"]
    with asking(address) as asked:
        pass
    assert only_waited(asked), asked.answers
    herd.down()


def test_the_routers_time_limit_comes_before_the_replicas(home: Home, slurm: SlurmBed) -> None:
    herd = Herd(home, slurm)
    address = herd.up_safely()
    with asking(address) as asked:
        slurm.run("scontrol", "update", f"jobid={herd.task('router/0')['native']}", "EndTime=now+5")
        herd.wait_for_router(2)
        assert herd.address == address
        before = asked.good
        herd.wait(lambda: asked.good > before + 50, "clients are answered again")
    assert only_waited(asked), asked.answers
    assert [herd.task(f"replica/{index}")["attempt"] for index in (0, 1)] == [1, 1]
    herd.down()

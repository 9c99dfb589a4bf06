"""The one address of a swarm on Slurm, when the host or a node is not there to tell that the router moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.faults.slurm_herds import Herd
from tests.faults.slurm_relays import asking, only_waited

if TYPE_CHECKING:
    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed


def test_the_host_is_killed_while_the_router_is_lost(home: Home, slurm: SlurmBed) -> None:
    herd = Herd(home, slurm)
    address = herd.up_safely()
    router, relay = herd.task("router/0"), herd.task("relay/0")
    home.kill_host()
    slurm.run("scancel", router["native"])
    herd.wait(lambda: len(herd.jobs()) == 2, "the job is gone")
    home.run("status", "herd")
    herd.wait_for_router(2)
    assert herd.address == address
    assert herd.task("relay/0")["pid"] == relay["pid"], "nobody touched it"
    with asking(address) as asked:
        pass
    assert only_waited(asked), asked.answers
    herd.down()


def test_a_node_is_lost_with_the_router_and_all_replicas(home: Home, slurm: SlurmBed) -> None:
    """Nothing closes the connections of those who ask: they are asked again all the same."""
    herd = Herd(home, slurm)
    address = herd.up_safely(replicas=1)
    node = herd.task("router/0")["node"]
    with asking(address) as asked:
        slurm.crash(node)
        herd.wait_for_router(2)
        assert herd.address == address
        before = asked.good
        herd.wait(lambda: asked.good > before + 50, "clients are answered again")
    assert herd.task("router/0")["node"] != node
    assert only_waited(asked), asked.answers
    herd.down()

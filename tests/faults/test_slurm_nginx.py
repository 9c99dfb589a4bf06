"""nginx as the router of a swarm on Slurm, with a key that every request must carry."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tests.faults.slurm_herds import Herd
from tests.faults.slurm_relays import asking, only_waited
from tests.faults.test_swarm_faults import ask

if TYPE_CHECKING:
    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed

KEY = "sk-of-the-herd"


def test_nginx_on_a_node_with_a_key(home: Home, slurm: SlurmBed) -> None:
    """Wrong keys are refused everywhere; a lost replica costs no request, and a lost router not the address."""
    herd = Herd(home, slurm)
    home.env["HERD_KEY"] = KEY
    # An engine that stands still for a moment is not to be lost besides.
    patient = {"http_timeout": 60, "unhealthy_restart_after": 120}
    address = herd.up_safely(router="nginx", api_key={"env": "HERD_KEY"}, watchdog=patient)
    assert urlsplit(address).hostname not in ("127.0.0.1", "localhost"), "with a key, others may ask, too"
    assert [ask(address), ask(address, key="sk-of-another"), ask(address, key=KEY)] == [401, 401, 200]
    router = herd.task("router/0")
    assert router["node"] in slurm.node_names
    assert [ask(router["url"]), ask(router["url"], key=KEY)] == [401, 200], "nor is it open where it runs"

    with asking(address, KEY) as asked:
        slurm.run("scancel", herd.task("replica/1")["native"])
        herd.wait(lambda: herd.task("replica/1")["attempt"] >= 2 and herd.serves(), "the replica is replaced")
        before = asked.good
        herd.wait(lambda: asked.good > before + 50, "clients go on")
    assert asked.answers.keys() == {"200"}, asked.answers

    with asking(address, KEY) as asked:
        slurm.run("scancel", router["native"])
        herd.wait_for_router(2)
        before = asked.good
        herd.wait(lambda: asked.good > before + 50, "clients are answered again")
    assert only_waited(asked), asked.answers
    assert herd.address == address
    assert ask(address) == 401
    herd.down()

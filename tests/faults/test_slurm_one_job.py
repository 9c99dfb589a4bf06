"""What a cluster does to a deployment that is one job: whatever takes it away, it comes back whole."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from tests.component.host.test_deployments import ask, tasks
from tests.component.slurm.test_one_job import NAME, PACK, Packed
from tests.conftest import until

if TYPE_CHECKING:
    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed

A100 = ("a100-1", "a100-2")


@pytest.fixture
def packed(home: Home, slurm: SlurmBed) -> Packed:
    home.env |= {**slurm.env(), "REMUDA_SLURM_POLL_S": "0.5"}
    return Packed(home, slurm)


@pytest.fixture
def alone(packed: Packed) -> Packed:
    """The same without services, which are jobs of their own: all that is lost is lost of the one job."""
    lines = packed.file.read_text().replace(', CACHE_AT: "{address:cache}"', "").splitlines()
    packed.file.write_text("\n".join(line for line in lines if not line.startswith(("services:", "  - "))))
    return packed


def others(packed: Packed) -> dict[str, int]:
    """Attempts of the services that are jobs of their own: nobody else's end is theirs."""
    return {name: tasks(packed.site, NAME)[f"{name}/0"]["attempt"] for name in ("cache", "later")}


@pytest.mark.parametrize("pool", ["spot", "spotc"])
def test_preemption_is_no_failure_and_all_come_back(alone: Packed, pool: str) -> None:
    alone.up("--set", f"slurm.partition={pool}")
    nodes = set(alone.of_pack("node"))
    node = next(node for node in A100 if node in nodes)
    words = ("-p", "gpu-a100", "-w", node, "--exclusive", "-o", "/dev/null", "--job-name=first")
    alone.slurm.run("sbatch", *words, "--wrap", "sleep 4")
    alone.until_answered(2)
    assert alone.of_pack("failures") == [0] * len(PACK)
    assert "preempt" in alone.site.run("explain", NAME).stdout
    alone.down()


def test_the_time_limit_is_no_failure(packed: Packed) -> None:
    packed.up()
    packed.slurm.expire(int(str(packed.of_pack("native")[0])))
    packed.until_answered(2)
    assert packed.of_pack("failures") == [0] * len(PACK)
    assert "time limit" in packed.site.run("explain", NAME).stdout
    assert others(packed) == {"cache": 1, "later": 1}
    packed.down()


def test_a_node_that_crashes_is_left_and_is_no_failure_of_a_server(alone: Packed) -> None:
    alone.up()
    lost = str(tasks(alone.site, NAME)["decode/0"]["node"])
    alone.slurm.crash(lost)
    alone.slurm.run("scontrol", "update", f"nodename={lost}", "state=down", "reason=crashed")
    alone.until_answered(2)
    assert alone.of_pack("failures") == [0] * len(PACK)
    assert lost not in alone.of_pack("node")
    assert alone.site.run("nodes", "history", lost, "--backend", "slurm").stdout.count("node-failed") == 1
    alone.down()


def test_behind_a_cut_cable_it_comes_back_elsewhere(alone: Packed) -> None:
    if not alone.slurm.layout.isolated:
        return
    alone.up()
    lost = str(tasks(alone.site, NAME)["decode/0"]["node"])
    alone.slurm.cut(lost)
    alone.until_answered(2)
    assert lost not in alone.of_pack("node")
    alone.slurm.heal(lost)
    until(lambda: not any(".pack.0.1." in token for token in alone.site.tokens().values()), "the old copy has ended")
    assert (alone.of_pack("attempt"), ask(alone.site, NAME)) == ([2] * len(PACK), 5)
    alone.down()


def test_a_server_that_ends_with_0_is_begun_again_with_all_others(alone: Packed) -> None:
    """It has no goal that could be reached: that is a failure, whatever it says."""
    alone.up()
    alone.kill_decode(signal.SIGUSR2)
    alone.until_answered(2)
    assert alone.of_pack("failures") == [1] * len(PACK)
    alone.down()

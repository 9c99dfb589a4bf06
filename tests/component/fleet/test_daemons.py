"""Head and node of a fleet as real daemons: they come up, outlive whoever started them, and come back when killed."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from remuda.fleet.daemons import ENVIRONMENT, LEFT, TWICE
from remuda.fleet.processes import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.component.fleet.conftest import Alone

    from remuda.fleet.daemons import Controller, Node


def tended(*sides: Controller | Node) -> list[str]:
    """What one turn of `tend` does on each side, where it is time to look at everything."""
    done = []
    for side in sides:
        side._looked = float("-inf")
        done += side.tend()
    return done


def kept(alone: Alone) -> None:
    """Until the controller has written down all that it knows now: it does so some seconds after a change."""
    alone.submit("true", "--hold", "--job-name=written-down")
    state = alone.root / "home/fleet/state/job_state"
    wait_until(lambda: state.exists() and b"written-down" in state.read_bytes(), "it is written down", 30)


def _is_longer(path: Path, size: int) -> bool:
    return path.stat().st_size > size


def test_a_node_joins_with_its_gpus_within_ten_seconds(alone: Alone) -> None:
    began = time.monotonic()
    alone.head().start()
    alone.node().start()
    alone.wait()
    assert time.monotonic() - began < 10
    assert alone.ask("sinfo", "-h", "-o", "%P %G %c %m") == "fleet* gpu:h100:2 8 16000"
    job = alone.submit("echo gpus=$CUDA_VISIBLE_DEVICES", "--gres=gpu:h100:1")
    output = alone.root / f"{job}.out"
    wait_until(lambda: output.exists() and output.read_text(), "the job's word", 30)
    assert output.read_text() == "gpus=0\n"
    assert tended(alone.head(), alone.node()) == []


def test_a_machine_without_an_address_is_told_what_slurm_needs(alone: Alone) -> None:
    code = """if True:
        import os, sys
        from pathlib import Path
        from remuda.fleet import conf, daemons, tree
        fleet = conf.FleetConf("fleet", "h", "127.0.0.1", os.getuid())
        daemons.Controller(Path(sys.argv[1]), fleet, tree.find(head=True)).start()"""
    offline = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    words = [*offline, sys.executable, "-c", code, str(alone.root / "home/fleet")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == (
        "remuda.base.errors.Unavailable: Slurm starts only where there is an address beside 127.0.0.1, and this "
        "machine has none"
    )


def test_a_machine_without_a_gpu_joins_too(alone: Alone) -> None:
    alone.head().start()
    alone.node(gpus="").start()
    alone.wait()
    assert alone.ask("sinfo", "-h", "-o", "%G") == "(null)"


def test_what_was_killed_comes_back_and_work_goes_on(alone: Alone) -> None:
    alone.head().start()
    alone.node().start()
    alone.wait()
    job = alone.submit("while :; do date +%s.%N; sleep 0.05; done")
    output = alone.root / f"{job}.out"
    wait_until(lambda: output.exists() and output.read_text(), "the job's first word", 30)
    kept(alone)
    for names in (["head/slurmctld"], ["node/slurmd"], ["head/munged", "node/munged"],
                  ["head/slurmctld", "node/slurmd", "node/munged", "head/munged"]):  # fmt: skip
        alone.kill(*names)
        done = [*alone.head().tend(), *alone.node().tend()]
        assert sorted(done) == sorted(f"{name.partition('/')[2]} had ended and was started again" for name in names)
        wait_until(lambda: alone.state() == "mix", "the node answers", 30)
        size = output.stat().st_size
        wait_until(partial(_is_longer, output, size), "the job goes on", 10)
    assert alone.ask("squeue", "-h", "-t", "running", "-o", "%i") == str(job)
    times = [float(line) for line in output.read_text().splitlines()]
    assert max(b - a for a, b in itertools.pairwise(times)) < 5


def test_a_head_that_ends_lets_work_go_on_and_one_that_drains_takes_its_nodes_back(alone: Alone) -> None:
    head, node = alone.head(), alone.node()
    head.start()
    node.start()
    alone.wait()
    assert (head.root / ENVIRONMENT).exists()
    job = alone.submit("sleep 3600")
    wait_until(lambda: alone.state() == "mix", "the job runs", 30)
    head.stop(drain=True)
    assert not head.alive()
    assert not (head.root / ENVIRONMENT).exists()
    alone.head().start()
    assert alone.ask("squeue", "-h", "-o", "%i %T") == f"{job} RUNNING"
    assert LEFT not in alone.ask("scontrol", "show", "node", "n1")
    wait_until(lambda: alone.state() == "mix", "the node takes work", 30)


def test_a_node_that_slurm_drained_for_its_own_last_words_takes_work_again(alone: Alone) -> None:
    alone.head().start()
    alone.node().start()
    alone.wait()
    alone.ask("scontrol", "update", "nodename=n1", "state=drain", f"reason={TWICE}")
    assert tended(alone.head()) == [f"n1 takes work again: Slurm had drained it, «{TWICE}»"]
    alone.wait("idle")
    alone.ask("scontrol", "update", "nodename=n1", "state=drain", "reason=new fans")
    assert tended(alone.head()) == []
    assert alone.state() == "drain"


def test_a_job_that_the_controller_forgot_and_sent_again_drains_nothing_for_long(alone: Alone) -> None:
    head, node = alone.head(), alone.node()
    head.start()
    node.start()
    alone.wait()
    first = alone.submit("sleep 3600")
    wait_until(lambda: alone.state() == "mix", "the job runs", 30)
    alone.kill("head/slurmctld")  # before it has written down that the job runs
    head.start()
    known = alone.ask("squeue", "-h", "-o", "%T")
    if not known:
        assert alone.submit("sleep 3600") == first  # ids are given out again
    said: list[str] = []

    def works() -> bool:
        said.extend(tended(head))
        return (bool(said) or known == "RUNNING") and alone.state() in ("mix", "idle")

    wait_until(works, "the node takes work", 60)
    assert known == "RUNNING" or said[0] == f"n1 takes work again: Slurm had drained it, «{TWICE}»"

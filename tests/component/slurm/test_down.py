"""`remuda down` on a real Slurm: it returns when nothing is left on the cluster, or says what is."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from tests.component.slurm.test_swarms import document, queue, tasks
from tests.conftest import at_once, until

if TYPE_CHECKING:
    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed


def test_down_while_nobody_answers_says_so_and_goes_on(site: Home, slurm: SlurmBed) -> None:
    site.run("up", "-c", document(site))
    slurm.freeze("slurmctld")
    waiting = site.start("down", "herd", "--timeout", "170")
    assert waiting.stderr is not None
    while (line := waiting.stderr.readline()) and not at_once(line):
        pass  # the host is busy
    assert line.startswith("herd still ends; left: "), line
    waiting.send_signal(signal.SIGINT)
    rest = waiting.communicate(timeout=180)[1]
    assert waiting.returncode == 130, rest
    assert "error: not waited for: herd; the host keeps taking it down\n  wait again: remuda down herd\n" in rest

    told = site.run("down", "herd", "--timeout", "1", check=False)
    assert told.returncode == 7, told.stderr
    assert "error: herd is not down after 1 s; " in told.stderr
    assert "its record is kept and the host keeps ending it; wait again: remuda down herd" in told.stderr
    assert "by hand: scancel " in told.stderr, told.stderr.splitlines()
    assert site.view("herd")["phase"] == "STOPPING"

    slurm.thaw("slurmctld")
    assert "herd is down" in site.run("down", "herd").stderr
    assert queue(slurm) == []
    assert site.run("down", "herd").stderr == "herd is down\n", "a second one is fine"


def test_down_ends_what_only_the_name_betrays(site: Home, slurm: SlurmBed) -> None:
    """Jobs of the swarm that no record has, of which one does not listen; and not those of others."""
    site.run("up", "-c", document(site, replicas=1))
    uid = site.view("herd")["uid"]
    deaf = "#!/bin/sh\ntrap '' TERM\nwhile :; do sleep 1; done\n"
    for name, script in ((f"herd.replica.7.1.{uid}", deaf), ("herd.replica.7.1.zzzzzzzz", "#!/bin/sh\nsleep 600\n")):
        path = site.root / f"{name}.sh"
        path.write_text(script)
        slurm.run("sbatch", "-p", "cpu", "--job-name", name, "--output", "/dev/null", str(path))
    until(lambda: "R" in slurm.run("squeue", "-h", "-n", f"herd.replica.7.1.{uid}", "-o", "%t").stdout, "it runs")
    assert len(tasks(site)) >= 2
    assert "herd is down" in site.run("down", "herd").stderr
    assert queue(slurm) == ["herd.replica.7.1.zzzzzzzz"]

"""A machine that leaves at once, one that had nothing installed, and a head whose directory was removed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from tests.conftest import until

from remuda.fleet import tree
from remuda.fleet.processes import Daemons

if TYPE_CHECKING:
    from tests.component.fleet.homes import Fleet


def test_by_force_a_node_leaves_what_runs_there(fleet: Fleet) -> None:
    fleet.connect(fleet.begin(), "--resilient")
    fleet.idle()
    (fleet.head.root / "train.sh").write_text("#!/bin/sh\nsleep 3600\n")
    fleet.head.run("run", "train.sh", "--backend", "fleet", "--set", "backoff_base=1")
    until(lambda: fleet.head.task("train", "script/0")["phase"] == "ready", "it runs")
    assert fleet.box.run("client", "disconnect", "--force").stderr.splitlines()[-1] == "this machine has left the fleet"
    until(lambda: fleet.head.task("train", "script/0")["phase"] != "ready", "it runs there no more", 60)
    assert "its node failed" in fleet.head.run("explain", "train").stdout
    until(lambda: "box" not in fleet.nodes(), "the node is gone", 60)
    fleet.head.run("down", "train")


def test_a_node_of_a_head_that_is_gone_for_good(fleet: Fleet) -> None:
    fleet.connect(fleet.begin(), "--resilient")
    fleet.head.kill_host()
    for name in ("slurmctld", "munged"):
        Daemons(fleet.head.paths.fleet).stop(name, kill=True)
    refused = fleet.box.run("client", "disconnect", check=False)
    assert refused.returncode == 5
    assert refused.stderr.endswith("  try again when the head is back; where it is gone for good: --force\n")
    assert fleet.status()["name"] == "box"
    assert fleet.box.run("client", "disconnect", "--force").stderr == "this machine has left the fleet\n"
    assert fleet.box.run("client", "status", check=False).returncode == 3
    assert Daemons(fleet.box.paths.fleet_node / "slurm").pid("slurmd") is None


def test_a_machine_without_slurm_fetches_it(fleet: Fleet) -> None:
    """What apt-get would bring is what this machine has: the programs that run are those that were unpacked."""
    stand_ins(fleet.box.root / "bin")
    fleet.box.env["PATH"] = f"{fleet.box.root}/bin:{os.environ['PATH']}"
    fleet.connect(fleet.begin(), "--resilient", "--unpack")
    fleet.idle()
    real = fleet.box.paths.fleet_node / "tree" / "real"
    words = Path(f"/proc/{fleet.status()['slurmd']}/cmdline").read_bytes().split(b"\0")
    assert words[0].decode() == str(real / "slurmd")
    fleet.box.run("client", "disconnect")


def stand_ins(folder: Path) -> None:
    """`apt-get download` and `dpkg -x` that put links to this machine's programs and plugins where Debian has them."""
    folder.mkdir()
    plugins = next(Path("/usr/lib").rglob("auth_munge.so")).parent
    programs = " ".join(str(tree.which(name)) for name in tree.needed(head=False))
    (folder / "apt-get").write_text('#!/bin/sh\nshift; for name; do : > "$name.deb"; done\n')
    (folder / "dpkg").write_text(
        f'#!/bin/sh\nmkdir -p "$3/usr/sbin" "$3/usr/lib/slurm-wlm"\nln -sf {programs} "$3/usr/sbin"\n'
        f'ln -sf {plugins}/* "$3/usr/lib/slurm-wlm"\n'
    )
    for name in ("apt-get", "dpkg"):
        (folder / name).chmod(0o755)


def test_doctor_names_daemons_of_a_head_that_was_removed(fleet: Fleet) -> None:
    fleet.begin()
    daemons = Daemons(fleet.head.paths.fleet)
    pids = sorted(pid for name in ("slurmctld", "munged") if (pid := daemons.pid(name)))
    fleet.head.kill_host()
    mine = str(fleet.head.paths.fleet)
    assert named(fleet, mine) == [], "it is there"
    shutil.rmtree(mine)
    try:
        (check,) = named(fleet, mine)
        assert check["state"] == "note"
        assert sorted(map(int, re.findall(r"pid (\d+)", check["sentence"]))) == pids
        assert sorted(map(int, check["todo"].partition("kill ")[2].split())) == pids
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
    until(lambda: not named(fleet, mine), "they have ended", 60)


def named(fleet: Fleet, folder: str) -> list[dict[str, str]]:
    """What doctor says of the daemons of a folder."""
    seen = json.loads(fleet.box.run("doctor", "--json", check=False).stdout)
    return [check for check in seen["checks"] if check["name"] == "fleet" and folder in check["sentence"]]

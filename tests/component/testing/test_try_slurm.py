"""`remuda try slurm` as a user types it."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.conftest import until

from remuda.testing.slurm import SlurmBed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Home


@pytest.fixture
def clean_home(home: Home) -> Iterator[Home]:
    """A home whose bed ends with the test."""
    yield home
    SlurmBed(home.paths.root / "try" / "slurm").down()


def node(home: Home, name: str) -> tuple[str, str]:
    seen = json.loads(home.run("try", "slurm", "--status", "--json").stdout)["nodes"][name]
    return seen["daemon"], seen["state"]


def test_a_cluster_from_nothing_to_nothing(clean_home: Home) -> None:
    home, root = clean_home, clean_home.paths.root / "try" / "slurm"
    started = home.run("try", "slurm", "--no-accounting", timeout=400)
    assert started.stdout == f"export SLURM_CONF={root}/slurm.conf\n"
    assert f"Slurm is up in {root} after " in started.stderr
    for line in (
        '  eval "$(remuda try slurm)"',
        "  remuda run train.sh                     # a run that remuda keeps alive",
        "  remuda try slurm --drill crash a100-1   # the power of its node fails",
        "Remove it: remuda try slurm --down",
    ):
        assert line in started.stderr.splitlines()
    env = {**os.environ, "SLURM_CONF": f"{root}/slurm.conf"}
    answer = subprocess.run(
        ["sinfo", "-h", "-o", "%D %T", "-p", "short"], env=env, capture_output=True, text=True, check=True
    )
    assert answer.stdout == "6 idle\n"
    assert home.run("try", "slurm", "--drill", "crash", "a100-1").stderr == (
        "a100-1: its power has failed; `start` brings it back\n"
    )
    assert node(home, "a100-1")[0] == "down"
    until(lambda: node(home, "a100-1")[1] == "down*", "Slurm has noticed")
    assert "a100-1" in home.run("try", "slurm", "--status").stderr
    home.run("try", "slurm", "--drill", "start", "a100-1")
    until(lambda: node(home, "a100-1") == ("up", "idle"), "it is back")
    again = home.run("try", "slurm")
    assert again.stdout == started.stdout
    home.run("nodes", "ban", "a100-1", env={"SLURM_CONF": env["SLURM_CONF"]})
    home.run("host", "stop")
    gone = home.run("try", "slurm", "--down")
    assert (gone.stdout, gone.stderr) == ("", f"{root} is removed, and nothing of it runs\n")
    assert not root.exists()
    assert not home.client.is_up(), "what forgets the ban is the host, which then ends again"
    home.run("host", "start")
    assert home.client.get("/nodes/a100-1/history", backend="slurm") == []


def test_what_is_wrong_is_said(clean_home: Home, tmp_path: Path) -> None:
    home, root = clean_home, clean_home.paths.root / "try" / "slurm"
    for words in (["--status"], ["--down"], ["--drill", "crash", "a100-1"]):
        gone = home.run("try", "slurm", *words, check=False)
        assert (gone.returncode, gone.stdout) == (3, "")
        assert gone.stderr == f"error: there is no Slurm test bed in {root}\n  start one: remuda try slurm\n"
    both = home.run("try", "slurm", "--status", "--down", check=False)
    assert (both.returncode, "--drill, --status and --down exclude each other" in both.stderr) == (2, True)
    odd = home.run("try", "slurm", "--drill", "explode", "a100-1", check=False)
    assert (odd.returncode, "'explode' is not one of 'crash'" in odd.stderr) == (2, True)
    deep = tmp_path / ("d" * 70)
    long = home.run("try", "slurm", "--dir", str(deep), check=False)
    assert long.returncode == 2
    assert long.stderr == f"error: {deep}: the path of a bed has at most 70 characters\n"
    assert not deep.exists()


def test_a_deep_state_directory_gets_a_short_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    from remuda.cli.setup.try_ import default_folder

    monkeypatch.setenv("REMUDA_HOME", "/srv/" + "deep/" * 20)
    short = default_folder("slurm")
    assert short.parent.as_posix() == "/tmp"
    assert short == default_folder("slurm")
    monkeypatch.setenv("REMUDA_HOME", "/srv/remuda")
    assert default_folder("slurm").as_posix() == "/srv/remuda/try/slurm"

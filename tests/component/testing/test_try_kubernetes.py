"""`remuda try kubernetes` as a user types it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conftest import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Home

KUBERNETES = ("try", "kubernetes")


@pytest.fixture
def clean_home(home: Home) -> Iterator[Home]:
    """A home whose cluster ends with the test."""
    yield home
    home.run(*KUBERNETES, "--down", check=False)


def seen(home: Home) -> dict[str, dict[str, object]]:
    nodes: dict[str, dict[str, object]] = json.loads(home.run(*KUBERNETES, "--status", "--json").stdout)["nodes"]
    return nodes


def servers(root: Path) -> list[int]:
    """Processes that are the cluster of a directory."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[-3:-1] == [b"serve", os.fsencode(root)]:
            found.append(int(entry.parent.name))
    return found


def test_a_cluster_from_nothing_to_nothing(clean_home: Home) -> None:
    home, root = clean_home, clean_home.paths.root / "try" / "kubernetes"
    started = home.run(*KUBERNETES)
    assert started.stdout == f"export KUBECONFIG={root}/kubeconfig.token\n"
    assert f"A stand-in of Kubernetes is up in {root} after " in started.stderr
    for line in ("  node-1    Ready     0 of 1 GPU used  0 pods", "Remove it: remuda try kubernetes --down"):
        assert line in started.stderr.splitlines()
    (home.root / "train.sh").write_text("#!/bin/sh\necho begun; sleep 600\n")
    env = {"KUBECONFIG": f"{root}/kubeconfig.token"}
    home.run("run", str(home.root / "train.sh"), "--backend", "kubernetes", "--image", "any:1", "--gpus", "1", env=env)
    until(lambda: any(node["gpus_used"] for node in seen(home).values()), "its pod has a node")
    node = next(name for name, one in seen(home).items() if one["gpus_used"])
    broken = home.run(*KUBERNETES, "--drill", "crash", node)
    assert broken.stderr == f"{node}: its power has failed; `start` brings it back\n"
    assert seen(home)[node]["state"] == "NotReady"
    passed = home.run(*KUBERNETES, "--drill", "advance", "301")
    assert "301 s have passed on the cluster's clock" in passed.stderr
    home.run(*KUBERNETES, "--drill", "start", node)
    until(lambda: "attempt 2" in home.run("events", "train").stdout, "the run is restarted", 60)
    home.run("stop", "train")
    gone = home.run(*KUBERNETES, "--down")
    assert (gone.stdout, gone.stderr) == ("", f"{root} is removed, and nothing of it runs\n")
    assert (root.exists(), servers(root)) == (False, [])


def test_what_is_wrong_is_said(clean_home: Home, tmp_path: Path) -> None:
    home, root = clean_home, clean_home.paths.root / "try" / "kubernetes"
    for words in (["--status"], ["--down"], ["--drill", "crash", "node-1"]):
        gone = home.run(*KUBERNETES, *words, check=False)
        assert (gone.returncode, gone.stdout) == (3, "")
        assert gone.stderr == f"error: there is no practice cluster in {root}\n  start one: remuda try kubernetes\n"
    both = home.run(*KUBERNETES, "--status", "--down", check=False)
    assert (both.returncode, "--drill, --status and --down exclude each other" in both.stderr) == (2, True)
    deep = tmp_path / ("d" * 90)
    long = home.run(*KUBERNETES, "--dir", str(deep), check=False)
    assert (long.returncode, deep.exists()) == (2, False)
    assert long.stderr == f"error: {deep}: the path of a practice cluster has at most 80 characters\n"
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o700)
    (mine / "thesis.txt").write_text("years of work")
    for words in ([], ["--down"]):
        assert home.run(*KUBERNETES, "--dir", str(mine), *words, check=False).returncode in (2, 3)
    assert (mine / "thesis.txt").read_text() == "years of work"


def test_a_cluster_that_was_killed(clean_home: Home) -> None:
    home, root = clean_home, clean_home.paths.root / "try" / "kubernetes"
    home.run(*KUBERNETES)
    (victim,) = servers(root)
    os.kill(victim, signal.SIGKILL)
    until(lambda: not servers(root), "it is gone")
    assert home.run(*KUBERNETES, "--status", check=False).returncode == 3
    assert home.run(*KUBERNETES).stdout == f"export KUBECONFIG={root}/kubeconfig.token\n"
    assert home.run(*KUBERNETES, "--drill", "crash", "node-9", check=False).stderr == (
        "error: there is no node 'node-9'\n  nodes: node-1, node-2, node-3, node-4\n"
    )
    assert home.run(*KUBERNETES, "--drill", "advance", "x", check=False).stderr == (
        "error: advance takes seconds, not 'x'\n"
    )
    (victim,) = servers(root)
    os.kill(victim, signal.SIGKILL)
    until(lambda: not servers(root), "it is gone")
    assert home.run(*KUBERNETES, "--down").returncode == 0
    assert not root.exists()

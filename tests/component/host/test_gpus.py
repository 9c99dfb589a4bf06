"""GPUs are handed out once each. The machine's GPUs are invented at the wire: an `nvidia-smi` on PATH."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.conftest import PYTHON, Home, until

if TYPE_CHECKING:
    from pathlib import Path

SHOW = "import os, time; print('GPUS', os.environ.get('CUDA_VISIBLE_DEVICES', 'none'), flush=True); time.sleep(600)"


@pytest.fixture
def four_gpus(home: Home) -> Home:
    """A machine that has four GPUs."""
    folder = home.root / "bin"
    folder.mkdir()
    program = folder / "nvidia-smi"
    program.write_text("#!/bin/sh\nprintf '0\\n1\\n2\\n3\\n'\n")
    program.chmod(0o755)
    home.env["PATH"] = f"{folder}:{os.environ['PATH']}"
    home.env.pop("CUDA_VISIBLE_DEVICES", None)
    return home


def swarm(home: Home, name: str, replicas: int, gpus: int) -> Path:
    return home.swarm(
        name, command=[PYTHON, "-c", SHOW], replicas=replicas, gpus_per_replica=gpus, watchdog={"enabled": False}
    )


def seen(home: Home, name: str, replica: int) -> set[str]:
    """GPUs that a replica says it sees."""

    def line() -> str:
        lines = home.run("logs", name, "--replica", str(replica), check=False).stdout.splitlines()
        return next((text for text in lines if len(text.split()) == 2), "")

    return set(until(line, "its GPUs").split()[1].split(","))


def test_every_replica_has_its_own(four_gpus: Home) -> None:
    home = four_gpus
    home.run("up", "-c", str(swarm(home, "big", 1, 2)), "--no-wait")
    home.run("up", "-c", str(swarm(home, "small", 1, 1)), "--no-wait")
    first, second = seen(home, "big", 0), seen(home, "small", 0)
    assert (len(first), len(second)) == (2, 1)
    assert not first & second
    refused = home.run("up", "-c", str(swarm(home, "more", 2, 1)), "--no-wait", check=False)
    assert refused.returncode == 4
    assert "2 GPUs are needed and 1 of this machine's 4 are free" in refused.stderr
    assert "in use by: big, small" in refused.stderr
    home.run("scale", "small", "2")
    third = seen(home, "small", 1)
    assert len(third) == 1
    assert not third & (first | second)
    home.run("down", "big")
    home.run("up", "-c", str(swarm(home, "more", 2, 1)), "--no-wait")
    assert seen(home, "more", 0) | seen(home, "more", 1) == first


def test_the_users_own_choice_counts(four_gpus: Home) -> None:
    home = four_gpus
    home.run("host", "start")
    path = swarm(home, "few", 1, 1)
    home.run("up", "-c", str(path), "--no-wait", env={"CUDA_VISIBLE_DEVICES": "3"})
    assert seen(home, "few", 0) == {"3"}
    none = home.run("config", "check", str(path), env={"CUDA_VISIBLE_DEVICES": ""}, check=False)
    assert none.returncode == 2
    assert "1 GPUs are needed, and there are 0 on this machine" in none.stderr


def test_an_array_has_gpus_for_as_many_tasks_as_run_at_a_time(four_gpus: Home) -> None:
    home = four_gpus
    body = "for gpu in ${CUDA_VISIBLE_DEVICES//,/ }; do mkdir gpu-$gpu || exit 1; done; echo $CUDA_VISIBLE_DEVICES; "
    free = "for gpu in ${CUDA_VISIBLE_DEVICES//,/ }; do rmdir gpu-$gpu; done"
    (home.root / "sweep.sh").write_text(f"#!/bin/bash\n{body}{free}\n")
    flags = ("--backend", "local", "--gpus", "2", "--no-gpu-check")
    refused = home.run("run", "sweep.sh", *flags, "--array", "1-6%3", check=False)
    assert "6 GPUs are needed and 4 of this machine's 4 are free" in refused.stderr
    home.run("run", "sweep.sh", *flags, "--array", "1-6%2", "--max-retries", "0", "--wait")
    given = [home.run("logs", "sweep", "--task", str(index)).stdout.strip() for index in range(1, 7)]
    assert given == ["0,1", "2,3"] * 3

"""Whether the process that a bed belongs to lives: beds of dead ones are removed by whoever starts another."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from remuda.fleet import processes

SAYS = (
    "import os, time; from remuda.fleet import processes; print(processes.identity(os.getpid()), flush=True); input()"
)
OTHER_CLOCK = ["unshare", "--time", "--fork", "--boottime=1000"]


#: A clock of its own needs the right to make namespaces.
WAYS = (
    [[], OTHER_CLOCK]
    if subprocess.run([*OTHER_CLOCK, "true"], capture_output=True, check=False).returncode == 0
    else [[]]
)


@pytest.mark.parametrize("enter", WAYS, ids=["as here", "in a time namespace"][: len(WAYS)])
def test_an_owner_lives_until_it_ends_whatever_its_clock_says(enter: list[str]) -> None:
    with subprocess.Popen(
        [*enter, sys.executable, "-c", SAYS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        owner = process.stdout.readline().strip()
        assert processes.is_alive(owner)
        process.communicate("\n", timeout=120)
    assert not processes.is_alive(owner)


def test_a_pid_that_another_process_got_is_not_the_owner() -> None:
    pid, start, clock = processes.identity(os.getpid()).split()
    assert processes.is_alive(f"{pid} {start} {clock}")
    assert not processes.is_alive(f"{pid} {int(start) + 1} {clock}")
    assert not processes.is_alive(f"{pid} ")

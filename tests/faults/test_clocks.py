"""Clocks that are set while everything runs, and processes that stand still: nothing is begun again, nothing waits on.

A real host and real runs on this machine. `libfaketime` moves the wall clock of the host, of the node programs or of
both, as a person or NTP would; a clock that nobody can set goes on. Limits are a few seconds.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conftest import PYTHON, Home, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

HOUR, DAY = 3600, 86400
BEAT_S, GRACE_S = 0.4, 6.6  # longer than a busy machine lets one process stand still
LIMIT_S = BEAT_S + GRACE_S
STOP_S, APART_S = LIMIT_S + 2.0, 0.4
STEPS = """
exec 9<> <(:)
for ((i = 1; ; i++)); do printf '{"step": %d}' $i > "$REMUDA_PROGRESS_FILE"; read -t 0.2 -u 9; done
"""
"""Starts no other process: what counts it is the only one that is stopped."""


class Clocks:
    """One home whose host and nodes have clocks that are set."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.files = {name: home.root / f"{name}.clock" for name in ("host", "node")}
        self.set("both", 0)
        self.process: subprocess.Popen[bytes] | None = None

    def set(self, whose: str, off: int) -> None:
        """By how many seconds a clock is off from now on."""
        for name, file in self.files.items():
            if whose in (name, "both"):
                draft = file.with_suffix(".draft")
                draft.write_text(f"{off:+d}\n")
                draft.rename(file)

    def start(self) -> None:
        """Start the host."""
        (library,) = map(str, Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))  # installed by .ci/packages
        fake = {
            "LD_PRELOAD": library,
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }
        node = {f"NODE_{name}": value for name, value in fake.items()}
        env = {**self.home.env, **fake, **node, "FAKETIME_TIMESTAMP_FILE": str(self.files["host"])}
        with self.home.paths.host_log.open("ab") as log:
            self.process = subprocess.Popen(
                [PYTHON, "-m", "tests.faults.clocked_host"], stdout=log, stderr=subprocess.STDOUT,
                env={**env, "NODE_FAKETIME_TIMESTAMP_FILE": str(self.files["node"])},
            )  # fmt: skip
        until(self.home.client.is_up, "the host answers")

    def kill(self) -> None:
        """The host is no more."""
        if self.process is not None:  # it may not have come so far
            self.process.kill()
            self.process.wait()

    def run(self, name: str, body: str, directives: str = "", limit_s: float = LIMIT_S) -> Run:
        """Begin a run with short limits."""
        head = f"#!/bin/bash\n#REMUDA --backend local --kill-grace 3 {directives}\n"
        head += f"#REMUDA --heartbeat-interval {BEAT_S} --heartbeat-grace {GRACE_S} --progress-stall {limit_s}\n"
        (self.home.root / f"{name}.sh").write_text(f"{head}{body}\n")
        self.home.run("run", f"{name}.sh")
        return Run(self.home, name)


@dataclass
class Run:
    """One run, as the host sees it."""

    home: Home
    name: str

    @property
    def task(self) -> dict[str, object]:
        return self.home.task(self.name, "script/0")

    @property
    def step(self) -> float:
        return float(self.home.view(self.name)["run"]["progress"].get("step", 0))

    def is_untouched(self) -> None:
        task = self.task
        assert (task["attempt"], task["restarts"], task["phase"]) == (1, 0, "ready"), (task, self.home.log())
        assert self.home.view(self.name)["run"]["restarts"] == 0


def go_on(runs: Iterable[Run], seconds: float) -> None:
    """The host takes in so many more of their steps, of 0.2 s each."""
    goals = [(run, run.step + seconds / 0.2) for run in runs]

    def all_went_on() -> bool:
        return all(run.step >= goal for run, goal in goals)

    until(all_went_on, f"they go on: {[run.task for run, _ in goals]}")


@pytest.fixture
def make_clocks() -> Iterator[Callable[[], Clocks]]:
    made: list[Clocks] = []

    def make() -> Clocks:
        made.append(Clocks(Home(Path(tempfile.mkdtemp(prefix="rh", dir="/tmp")))))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.kill()
        one.home.close()
    for path in Path("/dev/shm").glob(
        "*faketime_s*"
    ):  # of each process with a moved clock: it stays where it is killed
        if not Path(f"/proc/{path.name.rpartition('_')[2]}").exists():
            path.unlink(missing_ok=True)


@pytest.fixture
def clocks(make_clocks: Callable[[], Clocks]) -> Clocks:
    return make_clocks()


def test_a_clock_that_is_set(make_clocks: Callable[[], Clocks]) -> None:
    """By an hour and by a day, on and back, while the run runs and while no host does: on host, node, and both."""
    sites = {name: make_clocks() for name in ("host", "node", "both")}
    runs = {name: clocks.run("steady", STEPS) for name, clocks in sites.items()}
    off = 0
    for by in (HOUR, -HOUR, DAY, -DAY, -DAY, DAY):
        go_on(runs.values(), 0.4)
        off += by
        for name, clocks in sites.items():
            if off == -DAY:
                clocks.kill()
            clocks.set(name, off)
            if off == -DAY:
                clocks.start()
        go_on(runs.values(), LIMIT_S + 0.4)
        for run in runs.values():
            run.is_untouched()


@pytest.mark.parametrize("restarted", [False, True], ids=["while the host runs", "while none does"])
def test_a_clock_set_back_by_a_day_keeps_nobody_waiting(clocks: Clocks, *, restarted: bool) -> None:
    wait_s = 12.0
    mark = clocks.home.root / "tried"
    body = f"[ -e {mark} ] && exec sleep 600; touch {mark}; exit 1"
    run = clocks.run("again", body, f"--backoff-base {wait_s} --backoff-max {wait_s}", limit_s=0)
    until(lambda: run.task["phase"] == "waiting", "it waits for its second attempt")
    if restarted:
        clocks.kill()
    clocks.set("host", -DAY)
    if restarted:
        clocks.start()
    until(lambda: run.task["attempt"] == 2, f"it is begun again: {run.task}", 10 * wait_s)


ORDERS: list[tuple[tuple[str, ...], float]] = [
    ((), LIMIT_S), (("node",), LIMIT_S), (("child",), 0.0), (("node", "child"), LIMIT_S), (("child", "node"), LIMIT_S),
]  # fmt: skip
"""Who stands still beside the host, in the order of going on, and after how long without progress a run is hung.

Where only the child stands still its node program watches it, so its progress is not asked for."""


def group_of(pid: int) -> int:
    """Its process group; 0 when it has just ended."""
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def pids_of(run: Run) -> dict[str, list[int]]:
    """The run's node program, and its script with all that this started."""
    tokens = [pid for pid, token in run.home.tokens().items() if f"{run.name}." in token]
    script = int(run.task["pid"])  # type: ignore[call-overload]
    children = [pid for pid in tokens if group_of(pid) == script]
    return {"node": [pid for pid in tokens if pid not in children], "child": children}


def test_all_that_stands_still_goes_on_in_every_order(clocks: Clocks) -> None:
    runs = [
        (clocks.run(f"run{number}", STEPS, limit_s=limit_s), order)
        for number, (order, limit_s) in enumerate(ORDERS)
    ]  # fmt: skip
    assert clocks.process is not None
    for going_on in (("host", 0, 1), (0, "host", 1), (0, 1, "host")):
        go_on((run for run, _ in runs), 0.4)
        stopped = [[pids_of(run)[name] for name in order] for run, order in runs]
        host = clocks.process.pid
        for pid in [host, *itertools.chain(*itertools.chain(*stopped))]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        time.sleep(STOP_S)
        for who in going_on:
            pids = [[host]] if isinstance(who, str) else [order[who] for order in stopped if len(order) > who]
            for pid in itertools.chain(*pids):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            time.sleep(APART_S)
        go_on((run for run, _ in runs), LIMIT_S + 0.4)
        for run, _ in runs:
            run.is_untouched()

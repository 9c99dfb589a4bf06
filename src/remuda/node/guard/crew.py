"""The crew of a pack: starts a node program for each task on each node of one job, and ends all of them with one.

In the batch step it starts one `srun` with a crew on every node, and says in `told.json` what it was told. The crew of
a node looks there each second, passes it on to its node programs as signals, and says so itself when one of those ends
badly. So all tasks are asked to end in order; a crew that dies is a bad exit, with which Slurm ends all at once.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

from remuda.node import private
from remuda.node.child.launch import own_address
from remuda.node.child.process import adopt_orphans
from remuda.node.child.signals import ENDING, Signals
from remuda.node.claim import EXIT, claim, start_number
from remuda.node.guard import member_line
from remuda.node.guard.guard_server import USERS
from remuda.node.records import Records
from remuda.wire import exit as codes
from remuda.wire.child import DEVICES, ChildSpec
from remuda.wire.crew import CrewSpec

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping

    from remuda.wire.crew import CrewSeat

TOLD = "told.json"
"""In the pack's directory: what all tasks are to be told, a level for each signal that only rises."""
LOOK_S = 1.0
_LISTS = (DEVICES, "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")


def seats(arguments: list[str]) -> int:
    """`seats CREW.json`, on each node: exit code of the first that ended badly."""
    return Seats(CrewSpec.from_json(Path(arguments[0]).read_text(encoding="utf-8")), os.environ).run()


def lead(arguments: list[str]) -> int:
    """`crew CREW.json`, in the batch step: start the crews of all nodes, and pass on what the scheduler says."""
    crew = CrewSpec.from_json(Path(arguments[0]).read_text(encoding="utf-8"))
    signals, folder = Signals(), Path(crew.run_dir)
    if not claim(folder, start_number(os.environ)):
        sys.stderr.write(f"remuda-node: {crew.token}: another copy holds {folder}\n")
        return codes.FENCED
    tell(folder)
    for name in [name for name in os.environ if name.startswith(USERS)]:
        del os.environ[name]
    meeting = {}
    if crew.meet:
        meeting = {"MASTER_ADDR": own_address(crew.host_file), "MASTER_PORT": str(free_port(crew.token))}
    argv = [*step_words(crew.nodes), *crew.launcher, "seats", str(folder / "crew.json")]
    try:
        step = member_line.start(argv, meeting, adopt_orphans(), own_group=True)
    except OSError as error:
        sys.stderr.write(f"remuda-node: cannot start srun: {error}\n")
        return codes.CANNOT_START
    while step.poll() is None:
        signals.wait(LOOK_S * 1000)
        for number in signals.take():
            tell(folder, stop=number in ENDING, warn=number == signal.SIGUSR1)
    return member_line.code_of(step)


def step_words(nodes: int) -> list[str]:
    """`srun` that starts one crew on each node, and ends all of them with the first that ends badly."""
    return [
        "srun", "--job-name=remuda-crew", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "--mem=0",
        "--cpu-bind=none", "--mpi=none", "--export=ALL", "--input=none", "--output=none", "--kill-on-bad-exit=1",
        "--wait=0", "--quiet",
    ]  # fmt: skip


def free_port(token: str) -> int:
    """A port that nobody has on this node now, below those of node programs; another for each attempt."""
    first = crc32(token.encode())
    for more in range(10000):
        port = 10000 + (first + more) % 10000
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    return 10000 + first % 10000


def tell(folder: Path, *, stop: bool = False, warn: bool = False) -> None:
    """Say to all crews what their tasks are to be told; what was said before stays."""
    before = heard(folder)
    told = {"stop": stop or before["stop"], "warn": warn or before["warn"]}
    private.write_whole(folder / TOLD, json.dumps(told))


def heard(folder: Path) -> dict[str, bool]:
    """What was said; nothing where that cannot be read now."""
    try:
        # Opened, not only looked at: a network file system answers a look from memory for up to a minute.
        told = json.loads((folder / TOLD).read_text(encoding="utf-8"))
        return {name: bool(told[name]) for name in ("stop", "warn")}
    except (OSError, ValueError, KeyError, TypeError):
        return {"stop": False, "warn": False}


class Seats:
    """The node programs of one node.

    Args:
        crew: of the pack.
        environ: of this program: says which node, and which GPUs.
    """

    def __init__(self, crew: CrewSpec, environ: Mapping[str, str]) -> None:
        self._folder = Path(crew.run_dir)
        self._signals = Signals()
        self._passed = {"stop": False, "warn": False}
        self._code = 0
        self._living: dict[str, subprocess.Popen[bytes]] = {}
        node, cleanup = int(environ.get("SLURM_NODEID", "0")), adopt_orphans()
        for seat in crew.seats:
            if seat.node == node:
                argv = [*crew.launcher, "child", f"{seat.run_dir}/child.json"]
                env = env_of(seat, environ, ranks=crew.meet)
                started = member_line.start(argv, env, cleanup, own_group=True)
                self._living[seat.run_dir] = started

    def run(self) -> int:
        """Until all of them have ended."""
        while self._living:
            self._signals.wait(LOOK_S * 1000)
            numbers = self._signals.take()
            told = heard(self._folder)
            self._pass_on("warn", signal.SIGUSR1, told=told["warn"])
            self._pass_on("stop", signal.SIGTERM, told=told["stop"] or any(number in ENDING for number in numbers))
            for run_dir, process in list(self._living.items()):
                if process.poll() is not None:
                    del self._living[run_dir]
                    self._take_end(run_dir, process)
        return self._code

    def _pass_on(self, word: str, number: int, *, told: bool) -> None:
        """Tell the node programs once."""
        if told and not self._passed[word]:
            self._passed[word] = True
            for process in self._living.values():
                process.send_signal(number)

    def _take_end(self, run_dir: str, process: subprocess.Popen[bytes]) -> None:
        code = member_line.code_of(process)
        if process.returncode < 0:
            say_last_word(run_dir, -process.returncode)
        if code and not self._passed["stop"]:
            self._code = code
            tell(self._folder, stop=True)
            self._pass_on("stop", signal.SIGTERM, told=True)


def env_of(seat: CrewSeat, environ: Mapping[str, str], *, ranks: bool = True) -> dict[str, str]:
    """What one task's node program has besides: its GPUs of those that the job has on its node, a rank its number."""
    more = {"LOCAL_RANK": "0" if seat.gpus else str(seat.place)} if ranks else {}
    for name in _LISTS if seat.gpus else ():
        if name in environ:
            more[name] = ",".join(environ[name].split(",")[seat.gpu : seat.gpu + seat.gpus])
    return more


def say_last_word(run_dir: str, number: int) -> None:
    """Write the exit record of a node program that was killed before it could."""
    folder = Path(run_dir)
    if (folder / EXIT).exists():
        return
    spec = ChildSpec.from_json((folder / "child.json").read_text(encoding="utf-8"))
    reason = f"its node program was killed by signal {number}"
    record = codes.ExitRecord(token=spec.token, attempt=spec.attempt, code=128 + number, at=time.time(), reason=reason)
    Records(folder).exit(record)

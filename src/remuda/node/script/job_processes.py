"""The processes of a scheduler's job on this node, whoever started them: its steps are no descendants of ours."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

from remuda.node.child.process import descendants, pids, spare, spared

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.node.child.process import Child

LOOKS = 2
"""Nothing was found so often, one after the other: nothing is left."""
WITHIN_S = 10.0
_STEP = b"slurmstepd"
_TELL = 'for try in 1 2 3 4 5; do scancel --signal=TERM "$0" && exit; sleep 1; done'


class Script:
    """A child that may be a script of a scheduler's job, whose `srun` must not be asked to end.

    SIGTERM to `srun` is SIGKILL to its ranks, before they can save their work. So they are told themselves.

    Args:
        environ: of this program.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        is_batch = environ.get("SLURM_TASK_PID") == str(os.getpid())  # and none that runs beside others in a job
        # The id of an array is one of its tasks' ids, too: as that task's name it would mean all of them.
        array, index = environ.get("SLURM_ARRAY_JOB_ID", ""), environ.get("SLURM_ARRAY_TASK_ID", "")
        self._job = (f"{array}_{index}" if index else environ.get("SLURM_JOB_ID", "")) if is_batch else ""
        self._environ = {name: value for name, value in environ.items() if not name.startswith("SCANCEL_")}
        self.telling: subprocess.Popen[bytes] | None = None
        """Who has asked the scheduler to tell the steps."""

    def sruns(self) -> set[int]:
        """Those that run, of a job's script."""
        return {pid for pid in descendants() if _read(pid, "comm") == b"srun\n"} if self._job else set()

    def tell(self, child: Child, number: int) -> None:
        """Send a signal to its process group: SIGTERM to all but `srun`, and by the scheduler to the job's steps."""
        sruns = self.sruns() if number == signal.SIGTERM else set()
        if not sruns:
            child.signal_group(number)
            return
        with contextlib.suppress(OSError):
            self.telling = subprocess.Popen(["/bin/sh", "-c", _TELL, self._job], env=self._environ)
            spare(self.telling.pid)
        for pid in descendants().keys() - sruns:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getpgid(pid) == child.pid:
                    os.kill(pid, number)


class NodeJob:
    """One job on one node.

    Args:
        environ: of a process of the job: says which job, and which node.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.id = environ.get("SLURM_JOB_ID", "")
        self.node = environ.get("SLURMD_NODENAME", "")

    def processes(self) -> list[int]:
        """All living ones of this user but this program, what it spares, and what it descends from.

        A process is the job's when its environment says so, or when it descends from one of the job's steps: programs
        may have taken a new environment.
        """
        if not self.id:
            return []
        parents = {pid: parent for pid in pids() if (parent := _parent(pid)) is not None}
        kept = {os.getpid(), *_above(os.getpid(), parents), *spared(parents)}
        found = [pid for pid in parents if pid not in kept and _is_ours(pid) and not _is_step(pid)]
        return [pid for pid in found if self._is_mine(pid, parents)]

    def kill(self, within_s: float = WITHIN_S) -> list[int]:
        """SIGKILL to all of them until none is left; those that are left after `within_s`."""
        until = time.monotonic() + within_s
        empty = 0
        while True:
            left = self.processes()
            empty = 0 if left else empty + 1
            if empty >= LOOKS or time.monotonic() >= until:
                return left
            for pid in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)

    def _is_mine(self, pid: int, parents: Mapping[int, int]) -> bool:
        env = dict(pair.partition(b"=")[::2] for pair in _read(pid, "environ").split(b"\0"))
        if env.get(b"SLURM_JOB_ID") == self.id.encode():
            # Where several nodes are one machine, each ends its own.
            return env.get(b"SLURMD_NODENAME", self.node.encode()) == self.node.encode()
        title = f"slurmstepd: [{self.id}.".encode()
        return any(_read(one, "cmdline").startswith(title) for one in _above(pid, parents))


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:  # noqa: PTH123 - called for every process of the machine
            return file.read()
    except OSError:
        return b""


def _parent(pid: int) -> int | None:
    """None for one that has ended."""
    fields = _read(pid, "stat").rpartition(b") ")[2].split()
    return int(fields[1]) if len(fields) > 1 and fields[0] not in (b"Z", b"X") else None


def _above(pid: int, parents: Mapping[int, int]) -> list[int]:
    """What it descends from, nearest first."""
    found: list[int] = []
    while (pid := parents.get(pid, 0)) > 1 and pid not in found:
        found.append(pid)
    return found


def _is_ours(pid: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.geteuid()  # noqa: PTH116 - called for every process of the machine
    except OSError:
        return False


def _is_step(pid: int) -> bool:
    """The scheduler's own program, which a test's root user might end."""
    return _read(pid, "comm").startswith(_STEP) or _read(pid, "cmdline").startswith(_STEP)

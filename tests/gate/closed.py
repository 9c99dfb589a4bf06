"""A place of its own for the suite: its processes, network, `/tmp` and `/dev/shm` are seen by nobody else.

`run_inside` starts this program once more as the first process of new namespaces; what the suite starts ends with that
process, however it ends. Where namespaces may not be made, the suite runs in the open: what an interrupted run left
there is ended first, known by a variable in its environment.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from remuda.wire.process import start_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MARK: Final = "PYTEST_GATE_RUN"
"""A variable that everything has which a run of the suite started: pid and start time of the gate."""
ROOM: Final = "PYTEST_GATE_ROOM"
"""Names the folder that is `/tmp` inside, while the first process there begins."""
OPEN: Final = "PYTEST_GATE_OPEN"
"""Set by whoever wants no namespaces."""
SCRATCH: Final = "PYTEST_GATE_SCRATCH"
"""Names a folder that the gate removes: for what workers of pytest-xdist keep until their end, which may be a kill."""
_TMP: Final = Path(tempfile.gettempdir())
_PREFIX: Final = "remuda-tests-"
_UNSHARE: Final = (
    "setpriv", "--pdeathsig", "KILL",
    "unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--net", "--",
)  # fmt: skip
_KEPT: Final = ("remuda-ports-", "remuda-test-ports-", "remuda-slurm-", "pytest-of-", "hsperfdata_")
"""What the product, pytest and Java keep in /tmp by design, one folder a user."""
_ORIGIN: Final = ("PYTEST_CURRENT_TEST", "REMUDA_TASK", "REMUDA_TOKEN")
"""Variables that say which test, or which task of a workload, a process comes from."""
_WAIT_S: Final = float(os.environ.get("PYTEST_GATE_WAIT", "30"))
"""Seconds that processes have for their end when all tests are done."""


# Outside


def run_inside(argv: Sequence[str]) -> int | None:
    """Run a program in new namespaces; its exit code, or None where they may not be made.

    Args:
        argv: what to run there as the first process. It calls `settle_in`.
    """
    if os.environ.get(OPEN):
        return None
    _remove_unused_rooms()
    room = Path(tempfile.mkdtemp(prefix=_PREFIX))
    lock = os.open(room, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)  # others see that it is in use
    room.chmod(0o1777)  # as /tmp is
    env = {**os.environ, ROOM: str(room)}
    probe = "from tests.gate.closed import settle_in; settle_in()"
    try:
        if _try([*_UNSHARE, sys.executable, "-c", probe], env) != 0:
            return None
        process = subprocess.Popen([*_UNSHARE, *argv], env=env)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: process.kill())
        signal.signal(signal.SIGINT, lambda *_: None)  # those inside hear it too, and say how far they came
        return process.wait()
    finally:
        shutil.rmtree(room, ignore_errors=True)
        os.close(lock)


def _try(argv: Sequence[str], env: dict[str, str]) -> int:
    try:
        return subprocess.run(argv, env=env, capture_output=True, check=False).returncode
    except FileNotFoundError:
        return 127


def _remove_unused_rooms() -> None:
    """Remove what runs have left that were interrupted."""
    for room in _TMP.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            held = os.open(room, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(room)
            finally:
                os.close(held)


# Inside


def settle_in() -> None:
    """Give the new namespaces file systems of their own.

    Raises:
        CalledProcessError, OSError: it is not possible here.
    """
    room = Path(os.environ.pop(ROOM))
    cgroups = Path("/sys/fs/cgroup")
    (room / "cgroups").mkdir(exist_ok=True)
    _mount("--rbind", cgroups, room / "cgroups")
    _mount("-t", "sysfs", "sysfs", "/sys")  # it shows the interfaces of the network in which it is mounted
    _mount("--rbind", room / "cgroups", cgroups)
    subprocess.run(["umount", "--recursive", "--lazy", room / "cgroups"], check=True)
    (room / "cgroups").rmdir()
    for path in _needed():  # the checkout may lie below /tmp, and has to stay where it is
        (room / path.name).mkdir(exist_ok=True)
        _mount("--rbind", path, room / path.name)
    _mount("-t", "tmpfs", "tmpfs", "/dev/shm")
    _mount("--rbind", room, _TMP)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    # Slurm's daemons start only where there is an address beside 127.0.0.1.
    subprocess.run(["ip", "addr", "add", "198.51.100.1/32", "dev", "lo"], check=True)


def _mount(*words: str | Path) -> None:
    subprocess.run(["mount", *words], check=True)


def _needed() -> set[Path]:
    """Folders directly in /tmp without which nothing runs here."""
    places = [path.resolve() for path in (Path.cwd(), Path(sys.prefix), Path(sys.base_prefix))]
    return {_TMP / path.relative_to(_TMP).parts[0] for path in places if path.is_relative_to(_TMP)}


def left_inside() -> list[str]:
    """Processes that are left in the namespaces, a line each; what is about to end has half a minute for it."""
    return _processes_left(lambda pid: pid != os.getpid())


def files_inside() -> list[str]:
    """What tests left in the temporary folders of the namespaces, which are gone with them."""
    needed = {path.name for path in _needed()}
    return [
        str(path)
        for folder in (_TMP, Path("/dev/shm"))
        for path in sorted(folder.iterdir())
        if path.name not in needed and not path.name.startswith(_KEPT)
    ]


@contextmanager
def scratch() -> Iterator[None]:
    """A folder for the suite's own machinery, removed at the end; its path is short, as those of sockets must be."""
    with tempfile.TemporaryDirectory(prefix="rg", dir="/tmp", ignore_cleanup_errors=True) as folder:
        os.environ[SCRATCH] = folder
        yield


# In the open


def identity(pid: int) -> str:
    """`pid.start-time`: names a process for ever; empty where there is none."""
    start = start_time(pid)
    return f"{pid}.{start}" if start else ""


def end_interrupted() -> list[str]:
    """End what a run of the suite started whose gate is gone; a line for each."""
    ended = []
    for pid, mark in _marked():
        if identity(int(mark.partition(".")[0] or 0)) != mark:
            ended.append(f"{pid} {_words(pid)}")
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    return ended


def left_in_the_open() -> list[str]:
    """Processes that this run started and that go on."""
    mine = identity(os.getpid())
    marked = {pid for pid, mark in _marked() if mark == mine}
    return _processes_left(lambda pid: pid in marked)


def _marked() -> Iterator[tuple[int, str]]:
    for pid in _pids():
        if pid != os.getpid() and (mark := _environment(pid).get(MARK)) is not None:
            yield pid, mark


def _environment(pid: int) -> dict[str, str]:
    """With which a process began; empty where it may not be read, or there is none."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
        return {name: value for name, _, value in (word.partition("=") for word in words)}
    return {}


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _words(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()[:150]
    return ""


def _story(pid: int) -> str:
    """What tells whose a process is: its words, its folder, its age, and what its environment says of its origin."""
    folder, age = "a folder that cannot be read", ""
    with suppress(OSError):
        folder = str(Path(f"/proc/{pid}/cwd").readlink())
    if start := start_time(pid):
        age = f", for {time.clock_gettime(time.CLOCK_BOOTTIME) - int(start) / os.sysconf('SC_CLK_TCK'):.0f} s"
    environment = _environment(pid)
    origin = "".join(f", {name}={environment[name]}" for name in _ORIGIN if name in environment)
    return f"process {pid}: {_words(pid)}, in {folder}{age}{origin}"


def _processes_left(is_ours: Callable[[int], bool]) -> list[str]:
    deadline = time.monotonic() + _WAIT_S
    while left := [pid for pid in _pids() if is_ours(pid) and identity(pid)]:
        if time.monotonic() > deadline:
            return [_story(pid) for pid in left]
        time.sleep(0.2)
        reap()
    return []


def reap() -> None:
    """Take note of the end of what has no other parent."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass

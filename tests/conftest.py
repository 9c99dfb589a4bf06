"""A state directory of its own for tests that run the command line and the host for real."""

from __future__ import annotations

import atexit
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from itertools import chain, groupby, zip_longest
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings

from remuda.backends.local.processes import tokens_by_pid
from remuda.backends.rundir import allocation_dir
from remuda.base.disk.paths import StatePaths
from remuda.base.errors import RemudaError
from remuda.client.http import HostClient
from tests.collecting import pytest_collection, pytest_xdist_setupnodes  # noqa: F401 - hooks
from tests.gate.closed import SCRATCH
from tests.gate.record import counted
from tests.strangers import common, loose, squatter, stranger  # noqa: F401 - fixtures
from tests.warm import forked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from remuda.testing.slurm import SlurmBed
    from tests.fleetbed import FleetBed

    BedT = TypeVar("BedT", bound=SlurmBed)

#: A busy machine is no failure, and what passed here passes elsewhere: the same examples each time.
#: To look for new ones: `pytest --hypothesis-profile=explore`.
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("steady", settings.get_profile("explore"), derandomize=True)
settings.load_profile("steady")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what runs in the background deaf to Ctrl-C, and everything that tests start would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    # The same for `nohup` and a terminal that is closed.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

#: What tools that remuda works with, or stands in for, read from the environment.
CALLERS = (
    "REMUDA_", "DOMYN_SWARM_", "OPENAI_", "LEPTON", "SHEPHERD_", "KUBE",
    "SLURM", "SBATCH_", "SALLOC_", "SRUN_", "SQUEUE_", "SINFO_", "SACCT_", "SCONTROL_", "SCANCEL_",
)  # fmt: skip
CALLERS_HOME = Path(pwd.getpwuid(os.getuid()).pw_dir)
"""Of whoever runs the tests: for looking up installed programs there, and nothing else."""


def leave_the_caller() -> None:
    """Forget the settings of whoever runs the tests, whose state directory and clusters are none of ours.

    Everything that tests start inherits what is left. A worker of pytest-xdist inherits it from the process that
    started it, and has a home of its own all the same.
    """
    for name in [name for name in os.environ if name.startswith(CALLERS) or name == "API_TOKEN"]:
        del os.environ[name]
    home = tempfile.mkdtemp(prefix="rmhome", dir=os.environ.get(SCRATCH, "/tmp"))
    owner = os.getpid()
    atexit.register(lambda: shutil.rmtree(home, ignore_errors=True) if os.getpid() == owner else None)
    os.environ["HOME"] = home


def leave_shims() -> None:
    """Look past a version manager's `python3`: a shell script that takes five times as long as the interpreter."""
    found = shutil.which("python3")
    if found is None:
        return
    with Path(found).open("rb") as program:
        is_script = program.read(2) == b"#!"
    if is_script:
        os.environ["PATH"] = os.pathsep.join([f"{sys.base_prefix}/bin", os.environ["PATH"]])


leave_the_caller()
leave_shims()
# Threads of engines that wait for their next batch do so asleep: there are more of them than cores.
os.environ["OMP_WAIT_POLICY"] = "passive"

PYTHON = sys.executable
SLOW = ("tests/soak/", "tests/faults/", "tests/component/slurm/", "tests/component/testing/", "tests/component/docs/")
QUICK = ("tests/unit/", "tests/house/")
T = TypeVar("T")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that wait for clusters, or take minutes, come first: the last to end must not be one that began late.

    After each file that waits comes one that only computes, which takes the processor meanwhile.
    """
    files = [list(group) for _, group in groupby(items, lambda item: item.nodeid.partition("::")[0])]
    files.sort(key=lambda file: not file[0].nodeid.startswith(SLOW))
    waiting = [file for file in files if not file[0].nodeid.startswith(QUICK)]
    computing = [file for file in files if file[0].nodeid.startswith(QUICK)]
    ordered = chain.from_iterable(zip_longest(waiting, computing))
    items[:] = [item for file in ordered if file for item in file]


COLD = [PYTHON, "-m", "remuda"]


class Home:
    """One state directory, with the host and everything that its tests start.

    Args:
        root: an empty directory.
        cold: start commands and hosts as a user does, and not as forks of a process that has loaded what they need.
    """

    def __init__(self, root: Path, *, cold: bool = False) -> None:
        self.root = root
        self.cold = cold
        self.paths = StatePaths(root / "home")
        self.paths.prepare()
        self.client = HostClient(self.paths)
        temporary = root / "t"  # what is killed leaves its temporary files
        temporary.mkdir()
        self.env = {
            **os.environ,
            "REMUDA_HOME": str(self.paths.root),
            "TMPDIR": str(temporary),
            "NO_COLOR": "1",
            "COLUMNS": "200",
        }

    def run(
        self,
        *arguments: str,
        check: bool = True,
        env: Mapping[str, str] | None = None,
        timeout: float = 180,
        patience: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run one command as a user types it.

        What it says while a busy machine lets it wait for its host is left out, unless `patience` is asked about.
        """
        process = self.start(*arguments, env=env)
        with process:
            try:
                out, err = process.communicate(timeout=timeout)
            except BaseException:
                process.kill()
                raise
        done = subprocess.CompletedProcess(process.args, process.returncode, out, err if patience else at_once(err))
        if check:
            assert done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}\n{self.log()}"
        return done

    def start(
        self, *arguments: str, env: Mapping[str, str] | None = None, stdout: int | IO[str] = subprocess.PIPE
    ) -> subprocess.Popen[str]:
        """Start a command and go on."""
        given: dict[str, Any] = {
            "env": {**self.env, **(env or {})}, "cwd": self.root, "stdin": subprocess.DEVNULL,
            "stdout": stdout, "stderr": subprocess.PIPE,
        }  # fmt: skip
        if self.cold:
            return subprocess.Popen([*COLD, *arguments], text=True, **given)
        return forked.command(list(arguments), **given)

    def log(self) -> str:
        """The end of the host's log."""
        return self.paths.host_log.read_text()[-3000:] if self.paths.host_log.exists() else ""

    def view(self, name: str) -> dict[str, Any]:
        """One workload, from the host."""
        view: dict[str, Any] = self.client.get(f"/workloads/{name}")
        return view

    def task(self, name: str, task: str) -> dict[str, Any]:
        """One task, from the host."""
        return next(item for item in self.view(name)["tasks"] if item["task"] == task)

    def host_pid(self) -> int:
        """Pid of the running host."""
        return int(self.client.get("/host")["pid"])

    def kill_host(self) -> None:
        """kill -9, and wait until it is gone."""
        pid = self.host_pid()
        os.kill(counted(pid), signal.SIGKILL)
        until(lambda: not Path(f"/proc/{pid}").exists() or _is_zombie(pid), "the host is gone")

    def tokens(self) -> dict[int, str]:
        """Living processes of this home's allocations: pid -> token."""
        return {pid: token for pid, token in tokens_by_pid().items() if self._is_ours(token)}

    def _is_ours(self, token: str) -> bool:
        try:
            return allocation_dir(self.paths.workloads, token).exists()
        except ValueError:
            return False

    def swarm(self, name: str = "herd", **changes: Any) -> Path:
        """Write a swarm of engines that misbehave on demand; `engine_args` go to the engine."""
        control = self.root / f"{name}.control"
        engine_args = changes.pop("engine_args", [])
        command = [PYTHON, "-m", "tests.fakes.engine", "--host", "{host}", "--port", "{port}"]
        document = {
            "name": name,
            "model": "herd-1",
            "engine": "command",
            "command": [*command, "--model", "herd-1", "--control", str(control), *engine_args],
            "replicas": 2,
            "ready": "all",
            "wait_endpoint_s": 120,
            "watchdog": {
                # An engine that gets no processor for a while is not ill: tests of illness have limits of their own.
                "probe_interval": 0.3, "http_timeout": 30, "restart_backoff_initial": 0.1, "kill_grace_seconds": 2,
                "unhealthy_restart_after": 60, "http_path": "/health", **changes.pop("watchdog", {}),
            },
            "backend": {"type": "local"},
            **changes,
        }  # fmt: skip
        path = self.root / f"{name}.yaml"
        path.write_text(json.dumps({key: value for key, value in document.items() if value is not None}))
        return path

    def behave(self, mode: str, name: str = "herd", **more: Any) -> None:
        """Change how the running engines of a swarm behave."""
        path = self.root / f"{name}.control"
        path.with_suffix(".new").write_text(json.dumps({"mode": mode, **more}))
        path.with_suffix(".new").rename(path)

    def close(self) -> None:
        """End the host and everything that it started."""
        with suppress(Exception):
            os.kill(counted(self.host_pid()), signal.SIGKILL)
        for _ in range(400):
            pids = self.tokens()
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(counted(pid), signal.SIGKILL)
            if not pids:
                break
            time.sleep(0.05)
        shutil.rmtree(self.root, ignore_errors=True)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def has_ended(pid: int) -> bool:
    """Whether a process runs no more; whoever is to take note of that may not have done so."""
    return _is_zombie(pid)


def cpu_seconds(pid: int) -> float:
    """CPU time of a living process, of all its threads: nanoseconds from the scheduler, not clock ticks."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def at_once(told: str) -> str:
    """What a command says where its host does not keep it waiting."""
    lines = told.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("waiting for the host (pid "))


def until(ask: Callable[[], T | None], what: str, limit_s: float = 180.0) -> T:
    """Wait until `ask` says something true, and return it."""
    deadline = time.monotonic() + limit_s
    pause_s = 0.02
    while True:
        answer = ask()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"not within {limit_s} s: {what}"
        time.sleep(pause_s)
        pause_s = min(0.25, pause_s * 1.2)  # what takes long is not worth a core


@pytest.fixture
def home() -> Iterator[Home]:
    """A fresh state directory under a short path."""
    one = Home(Path(tempfile.mkdtemp(prefix="rh", dir="/tmp")))
    yield one
    one.close()


@pytest.fixture
def cold_home() -> Iterator[Home]:
    """The same where hosts start as a user's do: for tests of the start, and of what a fork would hide."""
    one = Home(Path(tempfile.mkdtemp(prefix="rh", dir="/tmp")), cold=True)
    yield one
    one.close()


@pytest.fixture(scope="module")
def shared_home() -> Iterator[Home]:
    """A state directory that the tests of one module share, with one host."""
    one = Home(Path(tempfile.mkdtemp(prefix="rh", dir="/tmp")))
    yield one
    one.close()


def _bed(*, accounting: bool) -> Iterator[SlurmBed]:
    from remuda.testing.slurm import SlurmBed

    # Sockets lie in the directory, so its path is short; it ends with this process, however that ends.
    yield from _up(SlurmBed(tempfile.mkdtemp(prefix="rmsl", dir="/tmp"), accounting=accounting, owned=True))


def _up(bed: BedT) -> Iterator[BedT]:
    try:
        try:
            bed.up()
        except RemudaError:  # once more, before all tests that want it fail
            bed.down()
            bed.up()
        yield bed
    finally:
        bed.down()


def _healthy(bed: BedT) -> Iterator[BedT]:
    """Undo drills before and after a test; a bed beyond repair is made anew."""
    for is_first in (True, False):
        try:
            bed.restore()
        except RemudaError:
            bed.down()
            bed.up()
        if is_first:
            yield bed


@pytest.fixture(scope="session")
def slurm_session() -> Iterator[SlurmBed]:
    """The bed behind `slurm`, for fixtures of a wider scope; nobody restores it between tests."""
    yield from _bed(accounting=True)


@pytest.fixture(scope="session")
def slurm_bare_session() -> Iterator[SlurmBed]:
    """The bed behind `slurm_bare`, for fixtures of a wider scope; nobody restores it between tests."""
    yield from _bed(accounting=False)


@pytest.fixture
def slurm(slurm_session: SlurmBed) -> Iterator[SlurmBed]:
    """A real Slurm with accounting: six nodes, all idle and without jobs when the test begins, whatever others did.

    One per worker, started when it is first asked for. `slurm.env()` is the environment for Slurm's commands,
    `slurm.run(...)` runs one, `slurm.crash(node)` and its like break it; nobody has to repair it. Nodes, partitions and
    accounts: `remuda.testing.slurm.topology.DEFAULT`.
    """
    yield from _healthy(slurm_session)


@pytest.fixture
def slurm_bare(slurm_bare_session: SlurmBed) -> Iterator[SlurmBed]:
    """The same without accounting: `sacct` refuses, there are no qualities of service and no accounts."""
    yield from _healthy(slurm_bare_session)


@pytest.fixture(scope="session")
def fleet_session() -> Iterator[FleetBed]:
    """The bed behind `fleet`, for fixtures of a wider scope; nobody restores it between tests."""
    from tests.fleetbed import FleetBed

    yield from _up(FleetBed(tempfile.mkdtemp(prefix="rmsl", dir="/tmp")))


@pytest.fixture
def fleet(fleet_session: FleetBed) -> Iterator[FleetBed]:
    """The same whose nodes joined by themselves: `box-1` and `box-2`, two GPUs each, in the partition `fleet`."""
    yield from _healthy(fleet_session)

"""An allocation as a backend would start it: the zipapp, a document, a run directory, and ways to wait for facts."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from remuda.base.disk.paths import StatePaths
from remuda.node.zipapp import build_zipapp
from remuda.wire.child import PORT_MARK, ChildSpec, HealthProbe, RestartRule
from remuda.wire.exit import ExitRecord
from remuda.wire.report import KEY_FILE, Report, key_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SERVER = str(Path(__file__).with_name("server.py"))
PYTHON = [sys.executable, "-I", "-S"]
PATIENCE_S = 90.0

#: A server that is slow to answer on a busy machine is not ill, and one that falls ill stays so until it is seen.
QUICK = HealthProbe(
    interval_s=0.1, timeout_s=30, startup_timeout_s=90, stall_s=0, unhealthy_restart_after_s=1000, path="/health"
)
#: For servers that shall not answer: to wait long for them would only take time.
IMPATIENT = replace(QUICK, timeout_s=0.5)
SOON = RestartRule(max_restarts=2, backoff_initial_s=0.02, backoff_max_s=0.1)
ONCE = RestartRule(policy="never")


def until(condition: Callable[[], Any], what: str = "", limit_s: float = PATIENCE_S) -> Any:
    """The condition's first true value.

    Raises:
        AssertionError: it did not come true within `limit_s`.
    """
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.005)
    raise AssertionError(what or f"waited in vain for {condition}")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1] not in (b"Z", b"X")
    except OSError:
        return False


SECRET = "the secret of the host"


class Allocation:
    """One program under test and what it leaves behind."""

    def __init__(self, home: Path, program: Path) -> None:
        self.home = home
        self.run_dir = home / "run"
        self.control = home / "control"
        self.control.write_text("ok")
        self.program = program
        self.processes: list[subprocess.Popen[str]] = []
        self.fields: dict[str, Any] = {}
        self.stdout: int | None = None
        """Where programs that are started write their standard output; None: where the tests do."""

    def server(self, **fields: Any) -> subprocess.Popen[str]:
        """Start with a child that serves as the control file says."""
        argv = [*PYTHON, SERVER, PORT_MARK, str(self.control)]
        return self.start(argv, **{"probe": QUICK, "restart": SOON, **fields})

    def document(self, argv: list[str], **fields: Any) -> Path:
        """What a program is told."""
        base: dict[str, Any] = {
            "token": "w-replica-0-a1",
            "workload": "w",
            "task": "replica/0",
            "attempt": 1,
            "run_dir": str(self.run_dir),
            "restart": ONCE,
            "kill_grace_s": 30.0,
            "report_every_s": 0.2,
            # All that choose ports on this machine do it with these: another test must not get the same one.
            "port_locks": str(StatePaths(self.home).ports),
        }
        self.fields = {**base, **fields, "argv": argv}
        self.run_dir.mkdir(exist_ok=True)
        (self.run_dir / KEY_FILE).write_text(key_for(SECRET, str(self.fields["token"])))
        document = self.home / f"spec{len(self.processes)}.json"
        document.write_text(ChildSpec(**self.fields).to_json())
        return document

    def start(self, argv: list[str], *, python: str = sys.executable, **fields: Any) -> subprocess.Popen[str]:
        return self.run(self.document(argv, **fields), python)

    def run(self, document: Path, *python: str) -> subprocess.Popen[str]:
        """Start a program, with the words of an interpreter."""
        process = subprocess.Popen(
            [*python, "-I", "-S", str(self.program), "child", str(document)],
            stdout=self.stdout,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    @property
    def process(self) -> subprocess.Popen[str]:
        return self.processes[-1]

    def report(self) -> Report | None:
        try:
            return Report.from_json((self.run_dir / "report.json").read_text())
        except FileNotFoundError:
            return None

    def state(self, wanted: str, **facts: Any) -> Report:
        """The first report of that state, and with these fields."""

        def there() -> Report | None:
            report = self.report()
            if report is None or report.state != wanted:
                return None
            return report if all(getattr(report, name) == value for name, value in facts.items()) else None

        report = until(there, f"wanted {wanted} {facts}, have {self.report()}")
        assert isinstance(report, Report)
        return report

    def counts(self, wanted: dict[str, float]) -> Report:
        """The first report of a ready server with these numbers; each look but the first tells rates, too."""

        def there() -> bool:
            report = self.state("ready")
            return {name: value for name, value in report.metrics.items() if not name.endswith("_per_s")} == wanted

        until(there, f"wanted {wanted}")
        return self.state("ready")

    def events(self) -> list[Report]:
        """Those that are written: none before the first, and no half of the last."""
        path = self.run_dir / "events.jsonl"
        whole = path.read_text().rpartition("\n")[0] if path.exists() else ""
        return [Report.from_json(line) for line in whole.splitlines()]

    def states(self) -> list[str]:
        """States so far, in order. The file of events is written after the report: this waits for the report's own."""
        until(
            lambda: (report := self.report()) is None or [report.state] == [event.state for event in self.events()[-1:]]
        )
        return [event.state for event in self.events()]

    def log(self) -> str:
        return (self.run_dir / "child.log").read_text()

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.code()

    def code(self) -> int:
        """Exit code of the program; its record must say the same."""
        code = self.process.wait(PATIENCE_S)
        record = self.record()
        assert record.code == code
        report = self.report()
        assert report is not None
        assert report.state == "exited"
        return code

    def record(self) -> ExitRecord:
        return ExitRecord.from_json((self.run_dir / "exit.json").read_text())

    def carriers(self) -> list[int]:
        """Living processes that carry this run directory in their environment."""
        mark = f"REMUDA_RUN_DIR={self.run_dir}".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def close(self) -> None:
        """End everything, also what a failed test left running."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                for pid in self.carriers():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            assert process.stderr is not None
            process.stderr.close()
            process.wait()


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_zipapp(tmp_path_factory.mktemp("program"))


@pytest.fixture
def allocation(tmp_path: Path, program: Path) -> Iterator[Allocation]:
    allocation = Allocation(tmp_path, program)
    yield allocation
    allocation.close()


@pytest.fixture
def make_allocation(tmp_path: Path, program: Path) -> Iterator[Callable[[str], Allocation]]:
    made = []

    def make(name: str) -> Allocation:
        home = tmp_path / name
        home.mkdir()
        made.append(Allocation(home, program))
        return made[-1]

    yield make
    for allocation in made:
        allocation.close()


class Host:
    """The receiving side: takes reports on a port that changes each time it is opened."""

    def __init__(self, home: Path) -> None:
        self.file = home / "host.json"
        self.lines: list[bytes] = []
        self._server: socket.socket | None = None
        self._line: socket.socket | None = None
        self._rest = b""

    def open(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.setblocking(False)
        port = self._server.getsockname()[1]
        text = json.dumps({"report_host": "127.0.0.1", "report_port": port})
        draft = self.file.with_suffix(".draft")
        draft.write_text(text)
        draft.replace(self.file)

    def close(self) -> None:
        for part in (self._line, self._server):
            if part is not None:
                part.close()
        self._server = self._line = None
        self._rest = b""

    def hang_up(self) -> None:
        assert self._line is not None
        self._line.close()
        self._line = None
        self._rest = b""

    def pump(self) -> list[bytes]:
        """All lines so far."""
        try:
            if self._line is None and self._server is not None:
                self._line, _ = self._server.accept()
                self._line.setblocking(False)
            while self._line is not None:
                data = self._line.recv(65536)
                if not data:
                    self.hang_up()
                *lines, self._rest = (self._rest + data).split(b"\n")
                self.lines += lines
        except BlockingIOError:
            pass
        return self.lines


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path)
    yield host
    host.close()


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """No test leaves a child of ours: all were waited for."""
    before = children()
    yield
    assert not children() - before


def children() -> set[str]:
    """Pids of this process's children, dead ones that nobody waited for included."""
    found: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that ends while we look
            found.update((task / "children").read_text().split())
    return found

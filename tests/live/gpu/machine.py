"""What steps of `make gpu` use of the machine: the card as the driver sees it, a recorder, the command `remuda`."""

from __future__ import annotations

import ctypes
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from remuda.enter import words
from remuda.wire.recording import Status
from remuda.wire.spool import STATUS, spools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.live.gpu.measures import Samples

FIELDS = ("index", "name", "uuid", "pci.bus_id", "driver_version", "memory.total")
BEGIN_S = 20.0


class NotPossible(Exception):
    """This machine lacks what a step needs; the message is a sentence."""


@dataclass(frozen=True)
class Card:
    """The GPU that is used; values as `nvidia-smi` prints them."""

    index: int
    name: str
    uuid: str
    address: str
    driver: str
    memory_mib: float


def cards() -> tuple[list[Card], str]:
    """GPUs of this machine, and in one sentence why there is none."""
    if shutil.which("nvidia-smi") is None:
        return [], "There is no NVIDIA GPU here: nvidia-smi is not in PATH."
    argv = ["nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], f"There is no NVIDIA GPU here: nvidia-smi does not answer ({error})."
    rows = [[part.strip() for part in line.split(",")] for line in said.stdout.splitlines()]
    found = [
        Card(int(row[0]), row[1], row[2], row[3], row[4], float(row[5]))
        for row in rows if said.returncode == 0 and len(row) == len(FIELDS) and row[0].isdigit()
    ]  # fmt: skip
    last = (said.stdout + said.stderr).strip().rpartition("\n")[2]
    return found, "" if found else f"There is no NVIDIA GPU here: nvidia-smi says «{last}»."


class Counter:
    """The card's energy counter, read by a call of its own.

    Raises:
        NotPossible: there is no driver's library, or the card has no counter.
    """

    def __init__(self, uuid: str) -> None:
        try:
            self._library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as error:
            raise NotPossible(f"the driver's library cannot be loaded: {error}") from error
        self._handle = ctypes.c_void_p()
        self._call("nvmlInit_v2")
        self._call("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(self._handle))

    def _call(self, name: str, *words: Any) -> None:
        if code := getattr(self._library, name)(*words):
            raise NotPossible(f"{name} returned {code}")

    def read(self) -> tuple[float, float]:
        """(seconds on the monotonic clock, joules)."""
        value = ctypes.c_ulonglong()
        before = time.monotonic()
        self._call("nvmlDeviceGetTotalEnergyConsumption", self._handle, ctypes.byref(value))
        return (before + time.monotonic()) / 2, value.value / 1000


class Recorder:
    """A recorder of one GPU, and what it has written; ends with the block."""

    def __init__(self, folder: Path, index: int, interval_s: float = 0.1) -> None:
        self.folder = folder
        argv = [sys.executable, *words("recorder"), str(folder), "--interval-s", f"{interval_s:g}"]
        self.process = subprocess.Popen([*argv, "--name", "gpu", "--gpus", str(index)])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def wait(self, rounds: int, meanwhile: Callable[[], object] = lambda: time.sleep(0.02)) -> None:
        """Until it has looked so often; `meanwhile` is done again and again.

        Raises:
            RuntimeError: it has nothing to record, or is too slow.
        """
        deadline = time.monotonic() + BEGIN_S
        while (status := self.status()) is None or status.rounds < rounds:
            if time.monotonic() > deadline or (status is not None and status.state in ("nothing", "ended")):
                raise RuntimeError(f"the recorder does not record: {status.reason if status else 'it says nothing'}")
            meanwhile()

    def status(self) -> Status | None:
        """What it says of itself."""
        try:
            return Status.from_json((self.folder / STATUS).read_text())
        except (OSError, ValueError):
            return None

    def cpu_s(self) -> float:
        """CPU time of it and its sampler so far."""
        pid = self.process.pid
        total = 0
        for one in (pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())):
            total += sum(map(int, Path(f"/proc/{one}/stat").read_text().rpartition(") ")[2].split()[11:15]))
        return total / os.sysconf("SC_CLK_TCK")


def recorded(folder: Path, name: str) -> Samples:
    """One value of the first GPU of a recording, in its own unit."""
    found: Samples = []
    for spool in spools(folder):
        for batch in spool.batches():
            column = batch.gpus[0].get(name, []) if batch.gpus else []
            both = zip(batch.times, column, strict=False)
            found += [(time_us / 1e6, float(value)) for time_us, value in both if value is not None]
    return found


def owners(folder: Path) -> dict[int, str]:
    """Processes that a recording has seen on GPUs: pid -> whose it is."""
    batches = [batch for spool in spools(folder) for batch in spool.batches()]
    return {one.pid: one.owner for batch in batches for one in batch.processes}


class Smi:
    """`nvidia-smi` in a loop, ten times a second, on a terminal, so that it holds nothing back; ends with the block."""

    FIELDS = ("timestamp", "power.draw.instant", "utilization.gpu", "memory.used")

    def __init__(self, card: Card) -> None:
        ours, theirs = pty.openpty()
        argv = ["nvidia-smi", f"--query-gpu={','.join(self.FIELDS)}", "--format=csv,noheader,nounits", "-lms", "100"]
        self._process = subprocess.Popen(
            [*argv, "-i", card.uuid], stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL
        )
        os.close(theirs)
        self._offset = time.time() - time.monotonic()
        self._text = bytearray()
        self._reader = threading.Thread(target=self._read, args=(ours,), daemon=True)
        self._reader.start()

    def _read(self, terminal: int) -> None:
        with suppress(OSError):  # how a terminal ends
            while piece := os.read(terminal, 1 << 16):
                self._text += piece
        os.close(terminal)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        self._process.kill()
        self._reader.join(5)

    def samples(self) -> dict[str, Samples]:
        """What it has said: a field's name -> its samples. A line that is not whole, or says [N/A], is left out."""
        return smi_samples(bytes(self._text).decode(errors="replace"), self.FIELDS, self._offset)

    def last_line(self) -> str:
        """For a sentence."""
        return bytes(self._text).decode(errors="replace").strip().rpartition("\n")[2].strip()


def smi_samples(text: str, fields: tuple[str, ...], offset: float) -> dict[str, Samples]:
    """Lines of `nvidia-smi` as samples of each field; the first is the local time, which is ahead by `offset`."""
    found: dict[str, Samples] = {name: [] for name in fields[1:]}
    for line in text.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) != len(fields):
            continue
        with suppress(ValueError):
            when = datetime.strptime(parts[0], "%Y/%m/%d %H:%M:%S.%f").timestamp() - offset  # noqa: DTZ007 - local
            for name, part in zip(fields[1:], parts[1:], strict=True):
                with suppress(ValueError):
                    found[name].append((when, float(part)))
    return found


class Remuda:
    """The command, in a state directory of its own."""

    def __init__(self, home: Path) -> None:
        self.env = {**os.environ, "REMUDA_HOME": str(home)}

    def run(self, *words: str, timeout: float = 120.0, check: bool = True, is_shown: bool = True) -> str:
        """Standard output of one command; what is shown stands in the step's log.

        Raises:
            RuntimeError: it failed; says with what.
        """
        argv = [sys.executable, "-m", "remuda", *words]
        if is_shown:
            print(f"$ remuda {' '.join(words)}", flush=True)
        done = subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=timeout, check=False)
        if is_shown or done.returncode:
            print(done.stdout + done.stderr, flush=True)
        if check and done.returncode:
            last = " / ".join(done.stderr.strip().splitlines()[-2:])
            raise RuntimeError(f"remuda {words[0]} ended with {done.returncode}: {last}")
        return done.stdout

    def view(self, name: str) -> dict[str, Any]:
        """A workload as `status --json` shows it."""
        found: dict[str, Any] = json.loads(self.run("status", name, "--json", is_shown=False))
        return found

    def until_over(self, name: str) -> dict[str, Any]:
        """Wait for its end; what it looks like then."""
        while (view := self.view(name))["phase"] not in ("DONE", "FAILED", "STOPPED", "DOWN"):
            time.sleep(0.5)
        return view


@contextmanager
def remuda(home: Path, name: str) -> Iterator[Remuda]:
    """The command; its workload and host end with the block."""
    command = Remuda(home)
    try:
        yield command
    finally:
        for words in (("logs", name), ("events", name), ("down", name), ("host", "stop")):
            with suppress(subprocess.TimeoutExpired):
                command.run(*words, timeout=20, check=False)


def sweep(mark: str) -> int:
    """Kill all processes in whose environment this text is, but for this one; how many there were."""
    count = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int(folder.name) != os.getpid() and mark.encode() in (folder / "environ").read_bytes():
                os.kill(int(folder.name), signal.SIGKILL)
                count += 1
    return count

"""The recorder beside a driver that is none: what it keeps is what was handed out, each value once, whatever dies."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.component.node.conftest import until
from tests.fakes.nvml import CLOCK, ENERGY, FIELD, FOR_EVER, GPM, LOST, MEMORY_TEMPERATURE, PCIE_RX, POWER, Driver

from remuda.wire.recording import RecordingNote, Status
from remuda.wire.spool import STATUS, Spool, spools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.component.node.conftest import Allocation

ENDLESS = "import time; time.sleep(600)"


class Recording:
    """A recorder, started as a process, and what it leaves."""

    def __init__(self, program: Path, folder: Path, driver: Driver, *words: str, **env: str) -> None:
        self.folder = folder
        command = [sys.executable, "-I", "-S", str(program), "recorder", str(folder), *words]
        self.process = subprocess.Popen(
            command, env={**os.environ, **driver.environment, **env}, stderr=subprocess.DEVNULL
        )

    def status(self) -> Status:
        try:
            return Status.from_json((self.folder / STATUS).read_text())
        except FileNotFoundError:
            return Status("", 0)

    def has(self, rounds: int) -> Status:
        until(lambda: self.status().rounds >= rounds)
        return self.status()

    def sampler(self) -> int:
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(listed[-1]) if listed else 0

    def end(self) -> int:
        self.process.terminate()
        return self.process.wait(90)

    def spool(self) -> Spool:
        (found,) = spools(self.folder)
        return found

    def column(self, name: str, gpu: int = 0) -> list[int]:
        """All that is there of a value."""
        return [
            value
            for batch in self.spool().batches()
            for value in (batch.gpus[gpu].get(name, []) if batch.gpus else [])
            if value is not None
        ]

    def notes(self, kind: str) -> list[RecordingNote]:
        return [note for batch in self.spool().batches() for note in batch.notes if note.kind == kind]


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    with Driver(tmp_path, 2, records=400_000) as made:
        for number, gpu in enumerate(made.gpus):
            gpu.seed = 24 + number
        yield made


@pytest.fixture
def record(tmp_path: Path, program: Path, driver: Driver) -> Iterator[Callable[..., Recording]]:
    made: list[Recording] = []

    def start(*words: str, **env: str) -> Recording:
        folder = tmp_path / f"recording{len(made)}"
        made.append(Recording(program, folder, driver, *words, **env))
        return made[-1]

    yield start
    for one in made:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


def test_what_is_kept_is_what_was_handed_out_each_once(record: Callable[..., Recording], driver: Driver) -> None:
    first = driver.gpus[0]
    first.gpm, first.metric[2] = 1, 33.339
    first.runs((os.getpid(), 3 << 30, 71))
    recording = record("--interval-s", "0.05", "--name", "exp1", "--token", "t")
    recording.has(40)
    assert recording.end() == 0
    header = recording.spool().header
    assert [gpu.uuid for gpu in header.gpus] == [gpu.uuid.decode() for gpu in driver.gpus]
    assert (header.name, header.token, header.driver) == ("exp1", "t", "580.95.05")
    for gpu in (0, 1):
        for name, what in (("energy", ENERGY), ("power", POWER), ("pcie_received", PCIE_RX),
                           ("memory_temperature", MEMORY_TEMPERATURE)):  # fmt: skip
            handed = [one.value for one in driver.handed(FIELD + what, gpu)]
            assert recording.column(name, gpu) == handed[1:]  # the first is a look at which fields there are
        assert recording.column("sm_clock", gpu) == [one.value for one in driver.handed(CLOCK + 1, gpu)]
    assert len(set(recording.column("energy"))) == len(recording.column("energy")) >= 40
    assert recording.column("sm_active") == [3334] * len(driver.handed(GPM + 2, 0))
    assert not recording.column("sm_active", 1)
    assert driver.called("pcie_throughput") == 0
    one = next(one for batch in recording.spool().batches() for one in batch.processes)
    assert (one.gpu, one.pid, one.memory, one.busy) == (0, os.getpid(), 3 << 30, 71)
    assert [note.text for note in recording.notes("end")] == ["it was told to end"]
    assert recording.status().state == "ended"


def test_kill_9_of_a_sampler_and_of_a_recorder_costs_a_second_and_doubles_nothing(
    record: Callable[..., Recording], driver: Driver
) -> None:
    kept, lost = record("--interval-s", "0.05"), record("--interval-s", "0.05", "--gpus", "1")
    kept.has(20)
    os.kill(kept.sampler(), signal.SIGKILL)
    before = lost.has(20)
    lost.process.kill()
    lost.process.wait()
    assert len(lost.column("energy")) >= before.rounds
    assert [gpu.index for gpu in lost.spool().header.gpus] == [1]
    assert lost.notes("end") == []
    kept.has(kept.status().rounds + 20)
    assert kept.end() == 0
    energy = kept.column("energy")
    assert energy == sorted(set(energy))
    assert set(energy) <= {one.value for one in driver.handed(FIELD + ENERGY, 0)}
    assert len(kept.notes("sampler")) == 1


def test_a_gpu_that_hangs_is_given_up_and_the_other_goes_on(record: Callable[..., Recording], driver: Driver) -> None:
    recording = record("--interval-s", "0.05")
    recording.has(10)
    driver.gpus[0].hang_ms = FOR_EVER
    status = until(lambda: (now := recording.status()).gpus and now.gpus[0]["gone"] and now)
    assert status.gpus[0]["gone"] == "the driver does not answer for it"
    assert [(fault["name"], fault["device"]) for fault in status.faults] == [("gpu-silent", "0000:01:00")]
    recording.has(status.rounds + 20)
    driver.gpus[1].hang_ms = FOR_EVER
    assert recording.process.wait(90) == 0
    assert recording.status().reason == "the driver answers for none of the GPUs any more"
    energy = recording.column("energy", 1)
    assert energy == sorted(set(energy))
    assert len(energy) >= 30


def test_a_gpu_that_is_lost_has_one_name_whatever_becomes_of_its_sampler(
    record: Callable[..., Recording], driver: Driver
) -> None:
    recording = record("--interval-s", "0.05")
    recording.has(10)
    driver.gpus[0].result = LOST
    until(lambda: recording.status().faults)
    os.kill(recording.sampler(), signal.SIGKILL)
    recording.has(recording.status().rounds + 40)
    assert recording.end() == 0
    faults = [(fault["name"], fault["device"]) for fault in recording.status().faults]
    assert faults == [("gpu-lost", "0000:01:00")]


def test_a_gpu_that_hangs_before_it_begins_does_not_cost_the_others_the_time_of_a_driver(
    record: Callable[..., Recording], driver: Driver
) -> None:
    driver.gpus[0].hang_ms = FOR_EVER
    recording = record("--interval-s", "0.05", "--begin-s", "3600")
    recording.has(10)
    assert recording.status().gpus[1]["gone"] == ""
    assert recording.end() == 0


@pytest.mark.parametrize(
    ("knob", "value", "words"),
    [
        pytest.param("init_result", 9, "the NVIDIA driver cannot be used: Driver Not Loaded", id="fails"),
        pytest.param("init_hang_ms", FOR_EVER, "the NVIDIA driver does not answer", id="hangs"),
        pytest.param("count", 0, "the driver knows no GPU on this machine", id="no GPU"),
    ],
)
def test_without_a_driver_there_is_a_sentence(
    record: Callable[..., Recording], driver: Driver, knob: str, value: int, words: str
) -> None:
    setattr(driver.machine, knob, value)
    recording = record("--begin-s", "1" if knob == "init_hang_ms" else "60")
    assert recording.process.wait(90) == 0
    assert (recording.status().state, recording.status().reason) == ("nothing", words)


def test_a_full_disk_loses_what_it_says_and_goes_on_with_room(record: Callable[..., Recording]) -> None:
    recording = record("--interval-s", "0.02")
    recording.has(20)
    held = recording.spool().folder / "open"
    resource.prlimit(recording.process.pid, resource.RLIMIT_FSIZE, (held.stat().st_size + 100, resource.RLIM_INFINITY))
    full = until(lambda: (now := recording.status()).lost > 20 and now)
    assert full.reason == "the recording cannot be written: File too large"
    resource.prlimit(recording.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    recording.has(full.rounds + 50)
    assert recording.end() == 0
    (note,) = recording.notes("room")
    assert "there is room again" in note.text
    assert len(recording.column("energy")) == recording.status().rounds
    assert recording.status().lost > 0


def test_values_that_are_not_supported_and_parts_of_a_gpu_are_missing(
    record: Callable[..., Recording], driver: Driver
) -> None:
    driver.gpus[0].lacks(POWER, ENERGY, PCIE_RX)
    driver.gpus[1].mig = 1
    driver.gpus[0].runs(*((2**22 + number, number << 20, 1) for number in range(1000)))
    recording = record("--interval-s", "0.05")
    recording.has(10)
    driver.xid(0, 31, times=4000)
    until(lambda: recording.status().faults)
    status = recording.has(recording.status().rounds + 30)
    assert [(fault["name"], fault["kind"]) for fault in status.faults] == [("xid-31", "application")]
    assert status.gpus[0]["processes"] == 1000
    assert [gpu["gone"] for gpu in status.gpus] == ["", "it is split by MIG"]
    assert status.gpus[0]["power"] > 0  # by a call of its own
    recording.end()
    assert recording.column("pcie_received") == []
    assert len(recording.column("energy")) == recording.status().rounds
    assert [gpu.is_mig for gpu in recording.spool().header.gpus] == [False, True]


# --- beside a task ---------------------------------------------------------------------------------------------------


@pytest.fixture
def with_driver(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Driver:
    for name, value in driver.environment.items():
        monkeypatch.setenv(name, value)
    return driver


def test_beside_a_task_its_own_gpus_are_recorded_and_told(allocation: Allocation, with_driver: Driver) -> None:
    env = {"CUDA_VISIBLE_DEVICES": "1"}
    allocation.start([sys.executable, "-c", ENDLESS], env=env, record_interval_s=0.1)
    report = until(lambda: (now := allocation.report()) and now.gpus and now.gpus[0].get("busy") and now)
    assert [(gpu["index"], gpu["uuid"]) for gpu in report.gpus] == [(1, with_driver.gpus[1].uuid.decode())]
    assert report.recording == "recording"
    with_driver.xid(1, 79)
    with_driver.gpus[1].result = LOST
    report = until(lambda: (now := allocation.report()) and len(now.faults) == 2 and now)
    assert sorted(fault["name"] for fault in report.faults) == ["gpu-lost", "xid-79"]
    with_driver.gpus[1].result = 0
    folder = allocation.run_dir / "recording"
    os.kill(Status.from_json((folder / STATUS).read_text()).pid, signal.SIGKILL)
    until(lambda: len(spools(folder)) == 2)
    assert allocation.stop() in (0, 85, 143)
    last = allocation.report()
    assert last is not None
    assert last.state == "exited"
    assert last.recording == "it was told to end"
    assert all(spool.header.token == "w-replica-0-a1" for spool in spools(folder))
    assert allocation.carriers() == []


def test_a_recorder_ends_in_order_behind_a_node_program_that_was_killed(
    allocation: Allocation, with_driver: Driver
) -> None:
    process = allocation.start([sys.executable, "-c", ENDLESS], record_interval_s=0.1)
    until(lambda: (now := allocation.report()) and now.recording == "recording")
    process.kill()
    folder = allocation.run_dir / "recording"
    until(lambda: Status.from_json((folder / STATUS).read_text()).state == "ended")
    (spool,) = spools(folder)
    notes = [note for batch in spool.batches() for note in batch.notes]
    assert notes[-1].text == "the program that it records for has ended"


def test_without_a_library_the_task_is_not_touched(allocation: Allocation) -> None:
    program = "import time; time.sleep(2); print('done')"
    env = {"REMUDA_NVML": "/absent/libnvidia-ml.so.1"}
    allocation.start([sys.executable, "-c", program], env=env, record_interval_s=0.1)
    assert allocation.code() == 0
    report = allocation.report()
    assert report is not None
    assert report.recording == "there is no /absent/libnvidia-ml.so.1 here, so this machine has no NVIDIA driver"
    assert (report.gpus, report.faults) == ([], [])
    assert json.loads((allocation.run_dir / "recording" / STATUS).read_text())["state"] == "nothing"


def test_a_hung_gpu_does_not_delay_the_beats_of_its_node_program(allocation: Allocation, with_driver: Driver) -> None:
    for gpu in with_driver.gpus:
        gpu.hang_ms = FOR_EVER
    allocation.start([sys.executable, "-c", ENDLESS], record_interval_s=0.1)
    until(lambda: (now := allocation.report()) and now.recording)
    report = allocation.report()
    assert report is not None
    first = report.seq
    until(lambda: (now := allocation.report()) and now.seq >= first + 5 and now.recording.startswith("start"))
    assert allocation.stop() in (0, 85, 143)

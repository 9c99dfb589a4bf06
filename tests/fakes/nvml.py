"""A driver without a GPU: `nvml.c` compiled, what it answers as knobs, and what it has handed out."""

from __future__ import annotations

import ctypes as c
import hashlib
import mmap
import os
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from remuda.base.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SOURCE: Final = Path(__file__).with_name("nvml.c")
GPUS, FIELDS, PROCESSES, METRICS, EVENTS, CLOCKS, CALLS = 64, 308, 1024, 64, 4096, 4, 64
FOR_EVER: Final = 2**32 - 1
NOT_SUPPORTED, LOST, RESET_REQUIRED = 3, 15, 16
GIB: Final = 2**30

#: Calls as `refuse`, `calls` and `Handed.what` number them, in the order of `enum call` in nvml.h.
CALL: Final = {
    name: number
    for number, name in enumerate(
        (
            *(
                "init",
                "count",
                "handle",
                "name",
                "uuid",
                "index",
                "minor",
                "pci",
                "utilization",
                "memory",
                "temperature",
            ),
            *(
                "power",
                "power_limit",
                "energy",
                "clock",
                "max_clock",
                "fields",
                "pcie_throughput",
                "nvlink_state",
                "ecc",
            ),
            *(
                "remapped",
                "processes",
                "process_utilization",
                "mig",
                "capability",
                "events",
                "gpm_support",
                "gpm_sample",
            ),
            *("gpm_metrics", "violation", "reasons", "performance"),
        )
    )
}
#: What `Handed.what` adds to the id of a field, of a GPM metric, to the type of a clock. 4000 is the memory of a
#: process, 4001 its pid << 32 | its share of the SMs.
FIELD, GPM, CLOCK, PROCESS = 1000, 2000, 3000, 4000

POWER_AVERAGE, POWER, ENERGY, MEMORY_TEMPERATURE, PCIE_TX, PCIE_RX, RECOVERY = 185, 186, 83, 82, 197, 198, 230
_ULL, _UINT = 3, 1
#: Fields that a GPU has from the beginning: type and value. All others are not supported.
_AT_FIRST: Final[Mapping[int, tuple[int, int]]] = {
    **dict.fromkeys((3, 4, 5, 6, 74, 75, 76, 77, 78, 79, 138, 139, 140, 141, PCIE_TX, PCIE_RX), (_ULL, 0)),
    **dict.fromkeys((269, 270, 271), (_ULL, 0)),
    **dict.fromkeys((142, 143, 144, 145, RECOVERY), (_UINT, 0)),
    ENERGY: (_ULL, 1_000_000),
    MEMORY_TEMPERATURE: (_UINT, 48),
    POWER_AVERAGE: (_UINT, 90_000),
    POWER: (_UINT, 90_000),
    94: (_UINT, 0),
    190: (_UINT, 700_000),
}


class Process(c.Structure):
    """A process on a GPU; `sm` and `memory` in %, `used` in bytes."""

    pid: int
    sm: int
    used: int
    _fields_ = (*((name, c.c_uint32) for name in ("pid", "sm", "memory", "instance")), ("used", c.c_uint64))


class _Wave(c.Structure):
    _fields_ = (
        *((name, c.c_uint64) for name in ("period_ns", "start_ns")),
        *((name, c.c_uint32) for name in ("high_mw", "low_mw")),
        ("base_mj", c.c_uint64),
    )


class Gpu(c.Structure):
    """One GPU of the driver: what is set here is what the next call returns."""

    uuid: bytes
    utilization: int
    temperature: int
    used: int
    """Memory in bytes, without `reserved`."""
    total: int
    mig: int
    mig_devices: int
    gpm: int
    """1: `nvmlGpmQueryDeviceSupport` says yes; the metrics are `metric[id]`."""
    seed: int
    """Not 0: power, energy, clocks, PCIe and busy change with each sample; the same seed gives the same values."""
    hang_ms: int
    """How long each call that names this GPU stays in the driver; `FOR_EVER`, until this is 0 again."""
    result: int
    """What each call that names this GPU returns: `LOST`, `RESET_REQUIRED`."""
    _fields_ = (
        ("name", c.c_char * 96),
        ("uuid", c.c_char * 96),
        ("bus", c.c_char * 32),
        *((name, c.c_uint32) for name in ("result", "hang_ms", "utilization", "memory_utilization", "temperature")),
        *((name, c.c_uint32) for name in ("limit_mw", "default_mw", "performance")),
        *((name, c.c_uint64) for name in ("total", "used", "reserved")),
        ("clock", c.c_uint32 * CLOCKS),
        ("max_clock", c.c_uint32 * CLOCKS),
        ("reasons", c.c_uint64),
        *(
            (name, c.c_uint32)
            for name in ("mig", "mig_devices", "gpm", "process_count", "major", "minor", "seed", "links")
        ),
        ("wave", _Wave),
        ("refuse", c.c_uint8 * CALLS),
        ("type", c.c_uint8 * FIELDS),
        ("code", c.c_uint8 * FIELDS),
        ("pad", c.c_uint8 * (8 - (CALLS + 2 * FIELDS) % 8)),
        ("field", c.c_uint64 * FIELDS),
        ("metric", c.c_double * METRICS),
        ("process", Process * PROCESSES),
    )

    @property
    def power(self) -> int:
        """Now, in mW; a GPU with a wave has its own."""
        return int(self.field[POWER])

    @power.setter
    def power(self, milliwatts: int) -> None:
        self.field[POWER] = self.field[POWER_AVERAGE] = milliwatts

    @property
    def energy(self) -> int:
        """Counter in mJ since the driver was loaded; a smaller one than before is a driver that was loaded again."""
        return int(self.field[ENERGY])

    @energy.setter
    def energy(self, millijoules: int) -> None:
        self.field[ENERGY] = millijoules

    def lacks(self, *fields: int, calls: Sequence[str] = (), code: int = NOT_SUPPORTED) -> None:
        """Answer these fields, and these calls, with a code instead of a value."""
        for number in fields:
            self.code[number] = code
        for name in calls:
            self.refuse[CALL[name]] = code

    def runs(self, *processes: tuple[int, int, int]) -> None:
        """Have these processes: pid, bytes, % of the SMs."""
        self.process_count = 0
        for one, (pid, used, share) in zip(self.process, processes, strict=False):
            one.pid, one.used, one.sm = pid, used, share
        self.process_count = len(processes)

    def waves(self, high_mw: int, low_mw: int, period_s: float) -> None:
        """Draw the one power in the first half of each period and the other in the second, beginning now."""
        wave = self.wave
        wave.start_ns, wave.high_mw, wave.low_mw, wave.base_mj = time.monotonic_ns(), high_mw, low_mw, self.energy
        wave.period_ns = round(period_s * 1e9)

    def rests(self) -> None:
        """End the wave: no power, and a counter that says exactly what the wave took."""
        wave, period = self.wave, self.wave.period_ns
        wave.period_ns = 0
        whole, rest = divmod(time.monotonic_ns() - wave.start_ns, period)
        high = whole * (period // 2) + min(rest, period // 2)
        low = whole * (period // 2) + max(0, rest - period // 2)
        self.energy = wave.base_mj + (high * wave.high_mw + low * wave.low_mw) // 10**9
        self.power = 0


class _Event(c.Structure):
    _fields_ = (("gpu", c.c_uint32), ("pad", c.c_uint32), ("type", c.c_uint64), ("data", c.c_uint64))


class _Handed(c.Structure):
    _fields_ = (
        ("at_ns", c.c_int64),
        *((name, c.c_uint64) for name in ("call", "value")),
        *((name, c.c_uint16) for name in ("gpu", "what")),
        ("result", c.c_uint32),
    )


class Machine(c.Structure):
    """All that the library knows."""

    count: int
    init_result: int
    init_hang_ms: int
    call_ns: int
    """CPU time that each call costs beside its own."""
    calls: Sequence[int]
    gpu: Sequence[Gpu]
    _fields_ = (
        *((name, c.c_uint32) for name in ("count", "init_result", "init_hang_ms", "wait_result")),
        *((name, c.c_uint64) for name in ("call_ns", "pcie_block_ns", "number", "handed", "room", "lost")),
        ("calls", c.c_uint64 * CALLS),
        ("events", c.c_uint64),
        ("driver", c.c_char * 80),
        ("nvml", c.c_char * 80),
        ("cuda", c.c_uint32),
        ("pad", c.c_uint32),
        ("event", _Event * EVENTS),
        ("gpu", Gpu * GPUS),
    )


@dataclass(frozen=True)
class Handed:
    """One value that the library handed out.

    Attributes:
        at_ns: CLOCK_MONOTONIC.
        call: the same number for all values of one call; rises.
        value: its bits.
        gpu: index.
        what: see `CALL`, `FIELD`, `GPM`, `CLOCK`, `PROCESS`.
        result: 0, or the code that came in place of a value.
    """

    at_ns: int
    call: int
    value: int
    gpu: int
    what: int
    result: int


def build(folder: Path | None = None) -> Path:
    """Compile the library, unless that was done before.

    Args:
        folder: where builds are kept; None, in the user's cache.

    Returns:
        The directory for LD_LIBRARY_PATH.

    Raises:
        Unavailable: no compiler, or it fails.
    """
    text = SOURCE.read_bytes() + SOURCE.with_suffix(".h").read_bytes()
    root = folder or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "remuda"
    place = root / f"nvml-{hashlib.sha256(text).hexdigest()[:12]}"
    library = place / "libnvidia-ml.so.1"
    if library.exists():
        return place
    place.mkdir(parents=True, exist_ok=True)
    made = place / f".{os.getpid()}.so"
    sizes = {"MACHINE_SIZE": c.sizeof(Machine), "GPU_SIZE": c.sizeof(Gpu), "HANDED_SIZE": c.sizeof(_Handed)}
    command = ["cc", "-O2", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-o", str(made), str(SOURCE)]
    try:
        subprocess.run(
            [*command, *(f"-D{k}={v}" for k, v in sizes.items())], check=True, capture_output=True, text=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unavailable(f"{SOURCE.name} cannot be compiled: {getattr(error, 'stderr', '') or error}") from error
    made.replace(library)
    return place


class Driver:
    """The driver of a machine with so many GPUs, for all processes with its `environment`.

    Args:
        folder: of its own; state and log lie there.
        gpus: how many.
        records: how many handed out values are kept; `lost` counts the others.
        library: what `build` returned.
    """

    def __init__(self, folder: Path, gpus: int = 8, *, records: int = 1_000_000, library: Path | None = None) -> None:
        self.folder = folder
        with suppress(FileExistsError):
            (folder / "libnvidia-ml.so.1").symlink_to((library or build()) / "libnvidia-ml.so.1")
        self._memory, self._records = (
            _mapped(folder / "nvml.state", c.sizeof(Machine)),
            _mapped(folder / "nvml.log", records * c.sizeof(_Handed)),
        )
        self.machine = Machine.from_buffer(self._memory)
        _prepare(self.machine, gpus, records)

    @property
    def environment(self) -> dict[str, str]:
        """What a process has to have when it starts: its dynamic linker looks for the library there."""
        kept = os.environ.get("LD_LIBRARY_PATH")
        return {"LD_LIBRARY_PATH": f"{self.folder}:{kept}" if kept else str(self.folder)}

    @property
    def gpus(self) -> list[Gpu]:
        """Its GPUs by index."""
        return list(self.machine.gpu[: self.machine.count])

    def xid(self, gpu: int, code: int, times: int = 1) -> None:
        """Have an XID happen on a GPU."""
        for _ in range(times):
            event = self.machine.event[self.machine.events % EVENTS]
            event.gpu, event.type, event.data = gpu, 8, code
            self.machine.events += 1

    def called(self, name: str) -> int:
        """How often a call was made, see `CALL`."""
        return int(self.machine.calls[CALL[name]])

    def handed(self, what: int | None = None, gpu: int | None = None) -> list[Handed]:
        """What was handed out so far: all, of one thing, of one GPU; in the order of time."""
        if self.machine.lost:
            raise Unavailable(f"the log has no room for {self.machine.lost} values: give the driver more records")
        kept = (_Handed * self.machine.handed).from_buffer_copy(self._records)
        made = (Handed(one.at_ns, one.call, one.value, one.gpu, one.what, one.result) for one in kept)
        return [one for one in made if what in {None, one.what} and gpu in {None, one.gpu} and one.at_ns]

    def close(self) -> None:
        """Let go of the files, so that their folder can be removed."""
        self._records.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _mapped(path: Path, size: int) -> mmap.mmap:
    with path.open("w+b") as file:
        file.truncate(size)
        return mmap.mmap(file.fileno(), size)


def _prepare(machine: Machine, gpus: int, records: int) -> None:
    """Give all knobs their first values: idle H100s, by name."""
    machine.driver, machine.nvml, machine.cuda = b"580.95.05", b"13.580.95.05", 13000
    machine.pcie_block_ns, machine.room = 20_000_000, records
    for number in range(gpus):
        gpu = machine.gpu[number]
        gpu.name, gpu.bus = b"NVIDIA H100 80GB HBM3", f"00000000:{number + 1:02X}:00.0".encode()
        gpu.uuid = f"GPU-{number:08x}-cafe-4bad-8000-{number:012x}".encode()
        gpu.total, gpu.reserved, gpu.temperature = 80 * GIB, GIB // 2, 35
        gpu.limit_mw, gpu.default_mw, gpu.major, gpu.minor, gpu.links = 700_000, 700_000, 9, 0, 18
        for clock, (now, most) in enumerate(((345, 1980), (345, 1980), (2619, 2619), (765, 1545))):
            gpu.clock[clock], gpu.max_clock[clock] = now, most
        gpu.lacks(*(number for number in range(FIELDS) if number not in _AT_FIRST))
        for field, (type_, value) in _AT_FIRST.items():
            gpu.type[field], gpu.field[field] = type_, value
    machine.count = gpus

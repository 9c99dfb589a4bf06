"""What a recording of GPUs tells, and in which units: nouns and the table of values. On disk they are a `wire.spool`.

Python 3.9, standard library only.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Optional

from remuda.wire.fields import known, read

VERSION = 1
GAUGE, COUNTER, BITS = "gauge", "counter", "bits"
"""Kinds of values: true at that moment · rises by what happened, from any start, and begins anew when the driver is
loaded · a set of bits."""

Column = list[Optional[int]]


class Value(NamedTuple):
    """One thing that is recorded of a GPU, as a whole number; missing where the driver does not tell."""

    name: str
    unit: str
    """Of the stored number; `0.01 %`: 10000 is all."""
    kind: str
    about: str
    dcgm: str = ""
    """What DCGM calls it, where it has the same unit or a simple multiple of it."""
    is_slow: bool = False
    """Looked at once a second, however often the others are."""


#: In the order of a spool's columns; new ones are added at the end, and a header lists its own.
VALUES: tuple[Value, ...] = (
    Value("busy", "%", GAUGE, "share of the driver's last window in which a kernel ran", "DCGM_FI_DEV_GPU_UTIL"),
    Value("memory_busy", "%", GAUGE, "share in which memory was read or written", "DCGM_FI_DEV_MEM_COPY_UTIL"),
    Value("memory", "B", GAUGE, "memory in use", "DCGM_FI_DEV_FB_USED"),
    Value("power", "mW", GAUGE, "power now", "DCGM_FI_DEV_POWER_USAGE"),
    Value("temperature", "°C", GAUGE, "of the GPU", "DCGM_FI_DEV_GPU_TEMP"),
    Value("memory_temperature", "°C", GAUGE, "of its memory", "DCGM_FI_DEV_MEMORY_TEMP"),
    Value("sm_clock", "MHz", GAUGE, "clock of the multiprocessors", "DCGM_FI_DEV_SM_CLOCK"),
    Value("memory_clock", "MHz", GAUGE, "clock of the memory", "DCGM_FI_DEV_MEM_CLOCK", is_slow=True),
    Value(
        "limits", "", BITS, "why clocks are lowered now, see `LIMITS`", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", is_slow=True
    ),
    Value("energy", "mJ", COUNTER, "energy used", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"),
    Value("pcie_sent", "B", COUNTER, "bytes sent over PCIe", "DCGM_FI_PROF_PCIE_TX_BYTES"),
    Value("pcie_received", "B", COUNTER, "bytes received over PCIe", "DCGM_FI_PROF_PCIE_RX_BYTES"),
    Value("nvlink_sent", "KiB", COUNTER, "data sent over all NVLinks"),
    Value("nvlink_received", "KiB", COUNTER, "data received over all NVLinks"),
    Value("power_limited", "ns", COUNTER, "time with clocks lowered by the power limit"),
    Value("heat_limited", "ns", COUNTER, "time with clocks lowered by heat"),
    Value("power_limit", "mW", GAUGE, "power limit in force", "DCGM_FI_DEV_ENFORCED_POWER_LIMIT", is_slow=True),
    Value("ecc_corrected", "", COUNTER, "memory errors corrected", "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", is_slow=True),
    Value("ecc_uncorrected", "", COUNTER, "not corrected", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", is_slow=True),
    Value("sm_active", "0.01 %", GAUGE, "share of multiprocessors with work", "DCGM_FI_PROF_SM_ACTIVE", is_slow=True),
    Value("sm_occupancy", "0.01 %", GAUGE, "share of their warps", "DCGM_FI_PROF_SM_OCCUPANCY", is_slow=True),
    Value("tensor_active", "0.01 %", GAUGE, "tensor cores", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", is_slow=True),
    Value("dram_active", "0.01 %", GAUGE, "bandwidth of the memory", "DCGM_FI_PROF_DRAM_ACTIVE", is_slow=True),
    Value("fp64_active", "0.01 %", GAUGE, "64-bit arithmetic", "DCGM_FI_PROF_PIPE_FP64_ACTIVE", is_slow=True),
    Value("fp32_active", "0.01 %", GAUGE, "32-bit arithmetic", "DCGM_FI_PROF_PIPE_FP32_ACTIVE", is_slow=True),
    Value("fp16_active", "0.01 %", GAUGE, "16-bit arithmetic", "DCGM_FI_PROF_PIPE_FP16_ACTIVE", is_slow=True),
)

#: Bits of `limits`, as the driver has them.
LIMITS: dict[int, str] = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "power limit",
    0x8: "hardware slowdown",
    0x10: "synchronous boost",
    0x20: "heat",
    0x40: "heat (hardware)",
    0x80: "power brake",
    0x100: "display clocks",
}
TASK, CONTAINER = "task:", "container:"
"""Before whose a process is."""
LIMITS_POWER, LIMITS_HEAT = 0x4 | 0x80, 0x20 | 0x40


@dataclass(frozen=True)
class Gpu:
    """One GPU of a recording. Its index is the driver's, which is not always CUDA's."""

    index: int
    uuid: str
    name: str = ""
    pci: str = ""
    """`0000:3b:00`, as faults name it."""
    memory_bytes: int = 0
    is_mig: bool = False
    """It is split by MIG: listed, not sampled."""


@dataclass(frozen=True)
class Header:
    """What a spool is of."""

    boot: str
    """Id of the machine's boot: times of the same one are comparable."""
    machine: str
    """Id of the machine, empty where it has none."""
    node: str
    wall_ns: int
    """Of the start, since the epoch."""
    monotonic_ns: int
    """Of the start."""
    interval_us: int
    """Between two rounds."""
    gpus: tuple[Gpu, ...]
    values: tuple[str, ...] = tuple(value.name for value in VALUES)
    token: str = ""
    """Of the task that it is recorded beside; empty without one."""
    name: str = ""
    """That its user gave it."""
    driver: str = ""
    """Version of the driver."""

    def to_json(self) -> str:
        """The file's text."""
        return json.dumps({"version": VERSION, **asdict(self)}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Header:
        """Read the file; fields of newer programs are ignored.

        Raises:
            ValueError: not a header, or of another version of the format.
        """
        data: Any = json.loads(text)
        if not isinstance(data, dict) or data.get("version") != VERSION:
            raise ValueError(f"not the header of a recording of version {VERSION}")
        try:
            gpus = tuple(Gpu(**known(Gpu, gpu)) for gpu in data["gpus"])
            return cls(**{**known(cls, data), "gpus": gpus, "values": tuple(data["values"])})
        except (TypeError, KeyError) as error:
            raise ValueError(f"not the header of a recording: {error}") from error


class GpuProcess(NamedTuple):
    """One process on one GPU in one round."""

    round: int
    """Place of the round in the batch, from 0."""
    gpu: int
    """Place of the GPU in the header."""
    pid: int
    memory: int | None = None
    """Bytes that it holds on the GPU."""
    busy: int | None = None
    """Its share of the multiprocessors' time, %; `memory_busy`: of the memory's."""
    memory_busy: int | None = None
    name: str = ""
    owner: str = ""
    """`task:TOKEN`, `container:ID`, or empty: unknown."""


class RecordingNote(NamedTuple):
    """Something that happened while it was recorded."""

    at_us: int
    """On the node's monotonic clock."""
    kind: str
    """`start`, `gap`, `gpu` (one was given up), `sampler` (started again), `fault`, `room`, `clock` or `end`."""
    text: str


@dataclass
class Batch:
    """Rounds that belong together: one second's, or one minute's."""

    first: int
    """Number of the first round."""
    end: int
    """One more than that of the last. Notes alone take a number, too, so that each batch has its own."""
    times: list[int] = field(default_factory=list)
    """Of each round: µs on the node's monotonic clock."""
    clock: Column = field(default_factory=list)
    """Of each round: µs from the monotonic clock to the wall clock, where it was looked at; signed."""
    gpus: list[dict[str, Column]] = field(default_factory=list)
    """Of each GPU of the header: a column of each value; one that is missing throughout is not there."""
    processes: list[GpuProcess] = field(default_factory=list)
    notes: list[RecordingNote] = field(default_factory=list)


class Status(NamedTuple):
    """What the recorder says of itself now, replaced whole about once a second."""

    state: str
    """`starting`, `recording`, `nothing` (there is nothing to record, see `reason`) or `ended`."""
    at: float
    """Seconds since the epoch."""
    reason: str = ""
    """One sentence: why there is nothing, why it ended, or what its user should know while it records."""
    spool: str = ""
    """Name of its folder."""
    pid: int = 0
    rounds: int = 0
    lost: int = 0
    """Rounds that could not be written."""
    missed: int = 0
    """Rounds that were due and not looked at."""
    size_bytes: int = 0
    thinned: int = 0
    """Minutes of which one round a second is left."""
    gpus: tuple[dict[str, Any], ...] = ()
    """Of each: `index`, `uuid`, `name`, `memory_bytes`, `processes` (a count), `gone` (why it is not sampled, else
    empty), and the newest of each value by its name, None where missing."""
    faults: tuple[dict[str, Any], ...] = ()
    """`wire.fault.Fault`s, oldest first, at most 20."""

    def to_json(self) -> str:
        """The file's text."""
        return json.dumps(self._asdict(), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Status:
        """Read the file; fields of newer programs are ignored.

        Raises:
            ValueError: not a status.
        """
        status = read(cls, text, "the status of a recorder")
        if not isinstance(status.state, str):
            raise ValueError("not the status of a recorder")  # noqa: TRY004 - callers catch ValueError
        return status

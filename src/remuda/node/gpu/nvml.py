"""The driver's own library, called as cheaply as Python can: pointers bound once, answers into one reused struct.

Each answer has its own return code. `nvmlDeviceGetPcieThroughput` is never called: it measures for 20 ms; PCIe has
counters. A call on a GPU that hangs does not return: whoever uses this is a process that may be killed.
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import Any, Callable, NamedTuple

from remuda.node.gpu import decoding
from remuda.wire.recording import Gpu

LIBRARY = "libnvidia-ml.so.1"
VARIABLE = "REMUDA_NVML"
"""Path of another library to use, for tests."""
OK, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, TOO_SMALL, LOST, RESET_REQUIRED = 0, 3, 4, 6, 7, 15, 16
MISSING = -1
"""In place of a return code: the library has no such function."""
ALL_LINKS = 0xFFFFFFFF
SM_CLOCK, MEMORY_CLOCK = 1, 2
#: (name, id, scope) of what is asked for in one call; those of `SLOW` once a second.
FAST: tuple[tuple[str, int, int], ...] = (
    ("power", 186, 0),
    ("memory_temperature", 82, 0),
    ("energy", 83, 0),
    ("pcie_sent", 197, 0),
    ("pcie_received", 198, 0),
    ("nvlink_sent", 138, ALL_LINKS),
    ("nvlink_received", 139, ALL_LINKS),
    ("power_limited", 74, 0),
    ("heat_limited", 75, 0),
)
SLOW: tuple[tuple[str, int, int], ...] = (
    ("ecc_corrected", 3, 0),
    ("ecc_uncorrected", 4, 0),
    ("remapped_uncorrected", 143, 0),
    ("remap_pending", 144, 0),
    ("remap_failed", 145, 0),
    ("recovery", 230, 0),
)
#: (name, id) of what GPM measures between two of its samples, in %.
GPM: tuple[tuple[str, int], ...] = (
    ("sm_active", 2),
    ("sm_occupancy", 3),
    ("tensor_active", 5),
    ("dram_active", 10),
    ("fp64_active", 11),
    ("fp32_active", 12),
    ("fp16_active", 13),
)
_XID, _VERSION_2 = 8, 2 << 24


class Failed(Exception):
    """A call that cannot be done without has failed; the message is a sentence."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class _Field(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("id", "scope")),
        *((name, ctypes.c_int64) for name in ("at", "latency")),
        *((name, ctypes.c_uint32) for name in ("type", "result")),
        ("value", ctypes.c_uint64),
    )


class _RoundAnswers(ctypes.Structure):
    """What one round of one GPU fills; `_ANSWERS` reads it."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("busy", "memory_busy", "temperature", "sm_clock", "version", "pad")),
        *((name, ctypes.c_uint64) for name in ("total", "reserved", "free", "used")),
        *((name, ctypes.c_uint64) for name in ("energy", "reasons")),
        *((name, ctypes.c_uint32) for name in ("power", "memory_clock", "power_limit", "pad2")),
        ("fast", _Field * len(FAST)),
        ("slow", _Field * len(SLOW)),
    )


_PLAIN = struct.Struct("=4I 32x Q 2Q 3I 4x")
_FAST = struct.Struct("=" + "24x 2I Q" * len(FAST))
_SLOW = struct.Struct("=" + "24x 2I Q" * len(SLOW))
#: Places in what `_PLAIN` reads.
_PLACES = {
    name: place
    for place, name in enumerate(
        ("busy", "memory_busy", "temperature", "sm_clock", "memory", "energy", "limits", "power", "memory_clock",
         "power_limit")
    )
}  # fmt: skip


class _ProcessInfo(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint32),
        ("used", ctypes.c_uint64),
        ("instance", ctypes.c_uint32),
        ("compute", ctypes.c_uint32),
    )


class _ProcessShare(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint32),
        ("at", ctypes.c_uint64),
        *((name, ctypes.c_uint32) for name in ("sm", "memory", "encoder", "decoder")),
    )


class _Event(ctypes.Structure):
    _fields_ = (
        ("device", ctypes.c_void_p),
        *((name, ctypes.c_uint64) for name in ("type", "data")),
        *((name, ctypes.c_uint32) for name in ("instance", "compute")),
    )


class _Metric(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("id", "result")),
        ("value", ctypes.c_double),
        ("names", ctypes.c_char_p * 3),
    )


class _Metrics(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("version", "count")),
        *((name, ctypes.c_void_p) for name in ("before", "after")),
        ("metrics", _Metric * 333),  # as many as the newest driver knows
    )


class _Support(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("is_supported", ctypes.c_uint32))


class Nvml:
    """The library, begun.

    Raises:
        Failed: it is not there, or the driver is not.
    """

    def __init__(self, path: str = "") -> None:
        path = path or os.environ.get(VARIABLE) or LIBRARY
        try:
            self.library = ctypes.CDLL(path)
        except OSError:
            raise Failed(f"there is no {path} here, so this machine has no NVIDIA driver", MISSING) from None
        code = self.call("nvmlInit_v2")
        if code:
            raise Failed(f"the NVIDIA driver cannot be used: {self.words(code)}", code)

    def function(self, name: str) -> Callable[..., int] | None:
        """A function of the library, None where it has none of that name."""
        return getattr(self.library, name, None)

    def call(self, name: str, *arguments: Any) -> int:
        """Return code of one call."""
        found = self.function(name)
        return MISSING if found is None else int(found(*arguments))

    def words(self, code: int) -> str:
        """What a return code says."""
        if code == MISSING:
            return "its library is too old"
        tell = self.library.nvmlErrorString
        tell.restype = ctypes.c_char_p
        return (tell(code) or b"").decode(errors="replace") or f"code {code}"

    def driver(self) -> str:
        """Version of the driver."""
        text = ctypes.create_string_buffer(96)
        return text.value.decode(errors="replace") if not self.call("nvmlSystemGetDriverVersion", text, 96) else ""

    def count(self) -> int:
        """How many GPUs the driver knows.

        Raises:
            Failed: it does not say.
        """
        count = ctypes.c_uint32()
        code = self.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        if code:
            raise Failed(f"the NVIDIA driver does not say how many GPUs there are: {self.words(code)}", code)
        return count.value

    def open(self, index: int) -> tuple[ctypes.c_void_p, int]:
        """Handle of a GPU, and the return code."""
        handle = ctypes.c_void_p()
        return handle, self.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint32(index), ctypes.byref(handle))

    def describe(self, index: int, handle: ctypes.c_void_p) -> Gpu:
        """Who a GPU is."""
        current, pending = ctypes.c_uint32(), ctypes.c_uint32()
        self.call("nvmlDeviceGetMigMode", handle, ctypes.byref(current), ctypes.byref(pending))
        memory = (ctypes.c_uint64 * 3)()
        self.call("nvmlDeviceGetMemoryInfo", handle, memory)
        # The text stands behind the old one of 16 bytes and five numbers.
        address = ctypes.create_string_buffer(256)
        self.call("nvmlDeviceGetPciInfo_v3", handle, address)
        bus = address.raw[36:68].partition(b"\0")[0].decode(errors="replace")
        uuid = self._text("nvmlDeviceGetUUID", handle)
        name = self._text("nvmlDeviceGetName", handle)
        return Gpu(index, uuid, name, decoding.pci(bus), int(memory[0]), bool(current.value))

    def _text(self, function: str, handle: ctypes.c_void_p) -> str:
        text = ctypes.create_string_buffer(128)
        return "" if self.call(function, handle, text, 128) else text.value.decode(errors="replace")


class Row(NamedTuple):
    """Answers of one GPU in one round, as they came; `Device.values` reads them."""

    codes: tuple[int, ...]
    plain: tuple[int, ...]
    fields: tuple[int, ...]
    """Type, return code, value of each."""


class Device:
    """One GPU, ready to be asked again and again.

    Args:
        nvml: the library.
        handle: of the GPU.
    """

    def __init__(self, nvml: Nvml, handle: ctypes.c_void_p) -> None:
        self.handle = handle
        self.code = OK
        """The last return code that says that the GPU is gone; it stays."""
        self._nvml = nvml
        self._answers = _RoundAnswers(version=40 | _VERSION_2)
        for fields, asked in ((self._answers.fast, FAST), (self._answers.slow, SLOW)):
            for one, (_, number, scope) in zip(fields, asked):
                one.id, one.scope = number, scope
        self._buffer = memoryview(self._answers).cast("B")
        at = _RoundAnswers
        self._at_fast, self._at_slow = at.fast.offset, at.slow.offset
        self._fast = self._bound(
            ("nvmlDeviceGetUtilizationRates", ("busy", "memory_busy"), (self._by(at.busy.offset),)),
            ("nvmlDeviceGetMemoryInfo_v2", ("memory",), (self._by(at.version.offset),)),
            ("nvmlDeviceGetTemperature", ("temperature",), (ctypes.c_uint32(0), self._by(at.temperature.offset))),
            ("nvmlDeviceGetClockInfo", ("sm_clock",), (ctypes.c_uint32(SM_CLOCK), self._by(at.sm_clock.offset))),
            ("nvmlDeviceGetFieldValues", (), (ctypes.c_int(len(FAST)), self._by(at.fast.offset))),
        )
        reasons = "nvmlDeviceGetCurrentClocksEventReasons"
        if nvml.function(reasons) is None:
            reasons = "nvmlDeviceGetCurrentClocksThrottleReasons"
        self._slow = self._bound(
            ("nvmlDeviceGetClockInfo", ("memory_clock",), (ctypes.c_uint32(MEMORY_CLOCK),
                                                            self._by(at.memory_clock.offset))),
            (reasons, ("limits",), (self._by(at.reasons.offset),)),
            ("nvmlDeviceGetEnforcedPowerLimit", ("power_limit",), (self._by(at.power_limit.offset),)),
            ("nvmlDeviceGetFieldValues", (), (ctypes.c_int(len(SLOW)), self._by(at.slow.offset))),
        )  # fmt: skip
        self._replace_fields()
        self._gpm = Gpm.of(nvml, handle)
        self._processes = (_ProcessInfo * 64)()
        self._shares = (_ProcessShare * 64)()
        self._shares_seen = 0

    def _by(self, offset: int) -> Any:
        return ctypes.byref(self._answers, offset)

    def _bound(self, *calls: tuple[str, tuple[str, ...], tuple[Any, ...]]) -> list[tuple[Any, tuple[str, ...], Any]]:
        found = []
        for name, values, arguments in calls:
            function = self._nvml.function(name)
            if function is not None:
                found.append((function, values, (self.handle, *arguments)))
        return found

    def _replace_fields(self) -> None:
        """Ask for power and energy by calls of their own where they are no fields."""
        row = self.look()
        results = row.fields[1::3]
        for name, function, offset in (
            ("power", "nvmlDeviceGetPowerUsage", _RoundAnswers.power.offset),
            ("energy", "nvmlDeviceGetTotalEnergyConsumption", _RoundAnswers.energy.offset),
        ):
            place = next(place for place, field in enumerate(FAST) if field[0] == name)
            if results[place] != OK:
                self._fast += self._bound((function, (name,), (self._by(offset),)))

    def look(self) -> Row:
        """Ask for everything that is asked for in each round."""
        codes = tuple([function(*arguments) for function, _, arguments in self._fast])
        return Row(codes, _PLAIN.unpack_from(self._buffer), _FAST.unpack_from(self._buffer, self._at_fast))

    def values(self, row: Row) -> dict[str, int]:
        """What `look` found, without what is missing."""
        return self._read(row, self._fast, FAST)

    def look_slowly(self) -> dict[str, int]:
        """What is asked for once a second, without what is missing; with the names of `SLOW` that are no values."""
        codes = tuple([function(*arguments) for function, _, arguments in self._slow])
        row = Row(codes, _PLAIN.unpack_from(self._buffer), _SLOW.unpack_from(self._buffer, self._at_slow))
        found = self._read(row, self._slow, SLOW)
        if self._gpm is not None:
            found.update(self._gpm.look())
        return found

    def _read(self, row: Row, calls: list[Any], asked: tuple[tuple[str, int, int], ...]) -> dict[str, int]:
        found: dict[str, int] = {}
        for code, (_, names, _) in zip(row.codes, calls):
            if code == OK:
                if names:
                    found.update((name, row.plain[_PLACES[name]]) for name in names)
                else:
                    self._read_fields(row.fields, asked, found)
            elif code in (LOST, RESET_REQUIRED):
                self.code = code
        return found

    @staticmethod
    def _read_fields(fields: tuple[int, ...], asked: tuple[tuple[str, int, int], ...], found: dict[str, int]) -> None:
        for place, (name, _, _) in enumerate(asked):
            kind, result, raw = fields[3 * place : 3 * place + 3]
            value = decoding.number(kind, raw) if result == OK else None
            if value is not None:
                found[name] = value

    def processes(self) -> dict[int, tuple[int | None, int | None, int | None]]:
        """Pid -> memory in bytes, share of the SMs and of the memory in %, of all that compute on it."""
        memory = self._fill("nvmlDeviceGetComputeRunningProcesses_v3")
        shares = self._fill_shares()
        found: dict[int, tuple[int | None, int | None, int | None]] = {}
        for one in memory:
            busy, memory_busy = shares.get(one.pid, (None, None))
            found[one.pid] = (decoding.size(one.used), busy, memory_busy)
        return found

    def _fill(self, function: str) -> list[_ProcessInfo]:
        count = ctypes.c_uint32()
        for _ in range(4):
            count.value = len(self._processes)
            code = self._nvml.call(function, self.handle, ctypes.byref(count), self._processes)
            if code != TOO_SMALL:
                return [] if code else list(self._processes[: min(count.value, len(self._processes))])
            self._processes = (_ProcessInfo * (count.value + count.value // 4 + 16))()
        return []

    def _fill_shares(self) -> dict[int, tuple[int, int]]:
        """Mean of what the driver has measured since it was last asked."""
        count = ctypes.c_uint32()
        seen = ctypes.c_uint64(self._shares_seen)
        for _ in range(4):
            count.value = len(self._shares)
            code = self._nvml.call(
                "nvmlDeviceGetProcessUtilization", self.handle, self._shares, ctypes.byref(count), seen
            )
            if code != TOO_SMALL:
                break
            self._shares = (_ProcessShare * (count.value + count.value // 4 + 16))()
        if code:
            return {}
        found: dict[int, list[_ProcessShare]] = {}
        for one in self._shares[: min(count.value, len(self._shares))]:
            if one.at:
                found.setdefault(one.pid, []).append(one)
                self._shares_seen = max(self._shares_seen, one.at)
        return {
            pid: (round(sum(one.sm for one in ones) / len(ones)), round(sum(one.memory for one in ones) / len(ones)))
            for pid, ones in found.items()
        }


class Gpm:
    """The counters of multiprocessors and pipes, from Hopper on: what ran between one look and the one before."""

    def __init__(self, nvml: Nvml, handle: ctypes.c_void_p) -> None:
        self._nvml, self._handle = nvml, handle
        self._samples = [ctypes.c_void_p(), ctypes.c_void_p()]
        for sample in self._samples:
            nvml.call("nvmlGpmSampleAlloc", ctypes.byref(sample))
        self._metrics = _Metrics(version=1, count=len(GPM))
        for metric, (_, number) in zip(self._metrics.metrics, GPM):
            metric.id = number
        self._has_before = not nvml.call("nvmlGpmSampleGet", handle, self._samples[0])

    @classmethod
    def of(cls, nvml: Nvml, handle: ctypes.c_void_p) -> Gpm | None:
        """Of a GPU that has them, else None."""
        support = _Support(version=1)
        code = nvml.call("nvmlGpmQueryDeviceSupport", handle, ctypes.byref(support))
        return cls(nvml, handle) if not code and support.is_supported else None

    def look(self) -> dict[str, int]:
        """What there is since the last look."""
        before, after = self._samples
        if self._nvml.call("nvmlGpmSampleGet", self._handle, after):
            return {}
        had, self._has_before = self._has_before, True
        self._samples = [after, before]
        self._metrics.before, self._metrics.after = before, after
        if not had or self._nvml.call("nvmlGpmMetricsGet", ctypes.byref(self._metrics)):
            return {}
        found = {}
        for metric, (name, _) in zip(self._metrics.metrics, GPM):
            value = decoding.share(metric.value) if metric.result == OK else None
            if value is not None:
                found[name] = value
        return found


class Xids:
    """Errors that the driver tells of as they happen.

    Args:
        nvml: the library.
        handles: of the GPUs that are listened to.
    """

    def __init__(self, nvml: Nvml, handles: list[ctypes.c_void_p]) -> None:
        self._wait = nvml.function("nvmlEventSetWait_v2")
        self._set = ctypes.c_void_p()
        self._places = {handle.value: place for place, handle in enumerate(handles)}
        if self._wait is None or nvml.call("nvmlEventSetCreate", ctypes.byref(self._set)):
            self._wait = None
            return
        for handle in handles:
            nvml.call("nvmlDeviceRegisterEvents", handle, ctypes.c_uint64(_XID), self._set)

    def wait(self, timeout_ms: int) -> tuple[int, int] | None:
        """The next: place of the GPU (-1: none of these) and number; None when there was none in time, or is never."""
        event = _Event()
        if self._wait is None or self._wait(self._set, ctypes.byref(event), ctypes.c_uint32(timeout_ms)):
            return None
        return (self._places.get(event.device, -1), int(event.data)) if event.type == _XID else None

"""What the driver says of each GPU, asked through `nvidia-ml-py`, NVIDIA's own binding.

Each answer fails for itself, and is missing then. `nvmlDeviceGetPcieThroughput` is never called: it measures for 20 ms;
PCIe has counters. A call on a GPU that hangs does not return: whoever uses this is a process that may be killed.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, Callable

import pynvml
from pynvml import NVMLError

from remuda.node.gpu import decoding
from remuda.wire.recording import Gpu

LIBRARY = "libnvidia-ml.so.1"
VARIABLE = "REMUDA_NVML"
"""Path of another library to use, for tests."""
NO_PERMISSION: int = pynvml.NVML_ERROR_NO_PERMISSION
ALL_LINKS = 0xFFFFFFFF
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


class Failed(Exception):
    """A call that cannot be done without has failed; the message is a sentence, the code what the driver returned."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class Nvml:
    """The library, begun.

    Raises:
        Failed: it is not there, or the driver is not.
    """

    def __init__(self, path: str = "") -> None:
        path = path or os.environ.get(VARIABLE) or LIBRARY
        try:
            pynvml.nvmlLib = ctypes.CDLL(path)
            pynvml.nvmlInit()
        except OSError:
            raise Failed(f"there is no {path} here, so this machine has no NVIDIA driver") from None
        except NVMLError as error:
            raise Failed(f"the NVIDIA driver cannot be used: {error}") from None

    def driver(self) -> str:
        """Version of the driver; empty where it does not say."""
        return str(_or(pynvml.nvmlSystemGetDriverVersion, ""))

    def count(self) -> int:
        """How many GPUs the driver knows.

        Raises:
            Failed: it does not say.
        """
        try:
            return int(pynvml.nvmlDeviceGetCount())
        except NVMLError as error:
            raise Failed(f"the NVIDIA driver does not say how many GPUs there are: {error}") from None

    def open(self, index: int) -> Any:
        """Handle of a GPU.

        Raises:
            Failed: it does not answer, or this process may not use it; the message is the driver's.
        """
        try:
            return pynvml.nvmlDeviceGetHandleByIndex(index)
        except NVMLError as error:
            raise Failed(str(error), error.value) from None

    def describe(self, index: int, handle: Any) -> Gpu:
        """Who a GPU is."""
        mig, _ = _or(pynvml.nvmlDeviceGetMigMode, (0, 0), handle)
        memory = _or(pynvml.nvmlDeviceGetMemoryInfo, None, handle)
        address = _or(pynvml.nvmlDeviceGetPciInfo, None, handle)
        bus = address.busId if address is not None else ""
        bus = bus.decode(errors="replace") if isinstance(bus, bytes) else bus
        uuid, name = _or(pynvml.nvmlDeviceGetUUID, "", handle), _or(pynvml.nvmlDeviceGetName, "", handle)
        return Gpu(index, uuid, name, decoding.pci(bus), int(memory.total) if memory is not None else 0, bool(mig))


def _or(function: Callable[..., Any], default: Any, *arguments: Any) -> Any:
    """What a call answers, or `default`."""
    try:
        return function(*arguments)
    except NVMLError:
        return default


class Device:
    """One GPU, ready to be asked again and again.

    Args:
        handle: of the GPU.
    """

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.code = 0
        """The last return code that says that the GPU is gone; it stays."""
        self._shares_seen = 0
        self._reasons = pynvml.nvmlDeviceGetCurrentClocksEventReasons
        if self._ask(self._reasons) is None:
            self._reasons = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons
        # Power and energy have calls of their own on GPUs where they are no fields.
        fields = self._fields(FAST)
        self._instead = [
            (name, function)
            for name, function in (
                ("power", pynvml.nvmlDeviceGetPowerUsage), ("energy", pynvml.nvmlDeviceGetTotalEnergyConsumption),
            )
            if name not in fields
        ]  # fmt: skip
        self._gpm = Gpm.of(handle)

    def _ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What one call answers, None where it does not."""
        try:
            return function(self.handle, *arguments)
        except NVMLError as error:
            if error.value in (decoding.LOST, decoding.RESET_REQUIRED):
                self.code = error.value
            return None

    def _fields(self, asked: tuple[tuple[str, int, int], ...]) -> dict[str, int]:
        answers = self._ask(pynvml.nvmlDeviceGetFieldValues, [(number, scope) for _, number, scope in asked]) or ()
        found = {}
        for (name, _, _), answer in zip(asked, answers):
            value = None if answer.nvmlReturn else decoding.number(answer.valueType, answer.value.ullVal)
            if value is not None:
                found[name] = value
        return found

    def look(self) -> dict[str, int]:
        """What is asked for in each round, without what is missing."""
        found = self._fields(FAST)
        busy = self._ask(pynvml.nvmlDeviceGetUtilizationRates)
        if busy is not None:
            found["busy"], found["memory_busy"] = busy.gpu, busy.memory
        memory = self._ask(pynvml.nvmlDeviceGetMemoryInfo, pynvml.nvmlMemory_v2)
        if memory is not None:
            found["memory"] = memory.used
        calls = (
            ("temperature", pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU),
            ("sm_clock", pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM),
            *self._instead,
        )
        return found | self._present(calls)

    def look_slowly(self) -> dict[str, int]:
        """What is asked for once a second, without what is missing; with the names of `SLOW` that are no values."""
        calls = (
            ("memory_clock", pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_MEM),
            ("limits", self._reasons),
            ("power_limit", pynvml.nvmlDeviceGetEnforcedPowerLimit),
        )
        found = self._fields(SLOW) | self._present(calls)
        return found if self._gpm is None else found | self._gpm.look()

    def _present(self, calls: tuple[Any, ...]) -> dict[str, int]:
        answers = ((name, self._ask(function, *arguments)) for name, function, *arguments in calls)
        return {name: int(answer) for name, answer in answers if answer is not None}

    def processes(self) -> dict[int, tuple[int | None, int | None, int | None]]:
        """Pid -> memory in bytes, share of the SMs and of the memory in %, of all that compute on it."""
        shares = self._shares()
        return {
            one.pid: (one.usedGpuMemory, *shares.get(one.pid, (None, None)))
            for one in self._ask(pynvml.nvmlDeviceGetComputeRunningProcesses_v3) or ()
        }

    def _shares(self) -> dict[int, tuple[int, int]]:
        """Mean of what the driver has measured since it was last asked."""
        found: dict[int, list[Any]] = {}
        for one in self._ask(pynvml.nvmlDeviceGetProcessUtilization, self._shares_seen) or ():
            if one.timeStamp:
                found.setdefault(one.pid, []).append(one)
                self._shares_seen = max(self._shares_seen, one.timeStamp)
        return {
            pid: (
                round(sum(one.smUtil for one in ones) / len(ones)),
                round(sum(one.memUtil for one in ones) / len(ones)),
            )
            for pid, ones in found.items()
        }


class Gpm:
    """The counters of multiprocessors and pipes, from Hopper on: what ran between one look and the one before."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._samples = [pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()]
        self._metrics = pynvml.c_nvmlGpmMetricsGet_t(version=pynvml.NVML_GPM_METRICS_GET_VERSION, numMetrics=len(GPM))
        for metric, (_, number) in zip(self._metrics.metrics, GPM):
            metric.metricId = number
        self._has_before = _or(pynvml.nvmlGpmSampleGet, None, handle, self._samples[0]) is not None

    @classmethod
    def of(cls, handle: Any) -> Gpm | None:
        """Of a GPU that has them, else None."""
        support = _or(pynvml.nvmlGpmQueryDeviceSupport, None, handle)
        return cls(handle) if support is not None and support.isSupportedDevice else None

    def look(self) -> dict[str, int]:
        """What there is since the last look."""
        before, after = self._samples
        if _or(pynvml.nvmlGpmSampleGet, None, self._handle, after) is None:
            return {}
        had, self._has_before = self._has_before, True
        self._samples = [after, before]
        self._metrics.sample1, self._metrics.sample2 = before, after
        if not had or _or(pynvml.nvmlGpmMetricsGet, None, self._metrics) is None:
            return {}
        found = {}
        for metric, (name, _) in zip(self._metrics.metrics, GPM):
            value = None if metric.nvmlReturn else decoding.share(metric.value)
            if value is not None:
                found[name] = value
        return found


class Xids:
    """Errors that the driver tells of as they happen.

    Args:
        handles: of the GPUs that are listened to.
    """

    def __init__(self, handles: list[Any]) -> None:
        self._places = {_address(handle): place for place, handle in enumerate(handles)}
        self._set = _or(pynvml.nvmlEventSetCreate, None)
        for handle in handles if self._set is not None else ():
            _or(pynvml.nvmlDeviceRegisterEvents, None, handle, pynvml.nvmlEventTypeXidCriticalError, self._set)

    def wait(self, timeout_ms: int) -> tuple[int, int] | None:
        """The next: place of the GPU (-1: none of these) and number; None when there was none in time, or is never."""
        event = None if self._set is None else _or(pynvml.nvmlEventSetWait_v2, None, self._set, timeout_ms)
        if event is None or event.eventType != pynvml.nvmlEventTypeXidCriticalError:
            return None
        return self._places.get(_address(event.device), -1), int(event.eventData)


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value

"""Uses each visible GPU once through the CUDA driver: memory is taken, filled, copied back, compared and given back.

This runs in a process of its own, because a broken driver may crash or hang it. What it finds it prints at once, one
JSON object a line, so that the last line tells how far it came. Only the driver's library is needed (`libcuda.so.1`,
found as the loader finds it); its functions are those of the CUDA driver API.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

LIBRARY = "libcuda.so.1"
BLOCK_BYTES = 1 << 20
FILL = 0xA5


class _Failed(Exception):
    """A function of the driver returned an error code."""

    def __init__(self, function: str, code: int) -> None:
        super().__init__(function)
        self.function = function
        self.code = code


class CudaDriver:
    """The library, called with checks.

    Raises:
        OSError: it is not here.
    """

    def __init__(self) -> None:
        self._library = ctypes.CDLL(LIBRARY)

    def call(self, function: str, *arguments: Any) -> None:
        """Call; an error code, or a function that is missing (code -1), raises `_Failed`."""
        try:
            found = getattr(self._library, function)
        except AttributeError:
            raise _Failed(function, -1) from None
        code = int(found(*arguments))
        if code:
            raise _Failed(function, code)


def main() -> int:
    """Look, print what is found, and end with 0 whatever that is."""
    try:
        driver = CudaDriver()
    except OSError as error:
        _tell({"step": "library", "missing": str(error)})
        return 0
    try:
        count = _count(driver)
    except _Failed as failed:
        _tell({"step": "init", "function": failed.function, "code": failed.code})
        return 0
    for index in range(count):
        _tell({"step": "device", "index": index})
        _tell({"step": "done", **_device(driver, index)})
    _tell({"step": "end"})
    return 0


def _count(driver: CudaDriver) -> int:
    driver.call("cuInit", ctypes.c_uint(0))
    version, count = ctypes.c_int(), ctypes.c_int()
    driver.call("cuDriverGetVersion", ctypes.byref(version))
    driver.call("cuDeviceGetCount", ctypes.byref(count))
    _tell({"step": "count", "count": count.value, "driver": version.value})
    return count.value


def _device(driver: CudaDriver, index: int) -> dict[str, Any]:
    found: dict[str, Any] = {"index": index, "name": "", "address": "", "ok": False, "error": "", "code": 0}
    try:
        device = ctypes.c_int()
        driver.call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(index))
        text = ctypes.create_string_buffer(100)
        driver.call("cuDeviceGetName", text, ctypes.c_int(100), device)
        found["name"] = text.value.decode("utf-8", "replace")
        driver.call("cuDeviceGetPCIBusId", text, ctypes.c_int(100), device)
        found["address"] = text.value.decode("utf-8", "replace")
        wrong = _use(driver, device)
        found["ok"] = wrong == 0
        if wrong:
            found["error"] = f"{wrong} of {BLOCK_BYTES} bytes came back wrong"
    except _Failed as failed:
        found["error"] = f"{failed.function} returned {failed.code}"
        found["code"] = failed.code
    return found


def _use(driver: CudaDriver, device: ctypes.c_int) -> int:
    """How many bytes came back from the GPU other than they were written."""
    context, block = ctypes.c_void_p(), ctypes.c_uint64()
    driver.call("cuCtxCreate_v2", ctypes.byref(context), ctypes.c_uint(0), device)
    size = ctypes.c_size_t(BLOCK_BYTES)
    driver.call("cuMemAlloc_v2", ctypes.byref(block), size)
    driver.call("cuMemsetD8_v2", block, ctypes.c_ubyte(FILL), size)
    back = ctypes.create_string_buffer(BLOCK_BYTES)
    driver.call("cuMemcpyDtoH_v2", back, block, size)
    driver.call("cuMemFree_v2", block)
    driver.call("cuCtxDestroy_v2", context)
    return BLOCK_BYTES - back.raw.count(bytes([FILL]))


def _tell(found: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()

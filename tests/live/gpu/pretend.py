"""A fake GPU for tests of `make gpu`: libraries of the driver, and `nvidia-smi`, which this file is as a program."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fakes.nvml import Driver

ROOT = Path(__file__).parents[3]
BUS = "00000000:3A:00.0"


def driver(folder: Path) -> Driver:
    """A driver with one GPU, in a folder of its own; it has to be closed."""
    from tests.fakes.nvml import Driver

    made = Driver(folder, 1, records=4_000_000)
    made.gpus[0].bus = BUS.encode()
    source = ROOT / "tests/component/node/libcuda.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(folder / "libcuda.so.1"), str(source)], check=True)
    smi = folder / "nvidia-smi"
    smi.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" "$@"\n')
    smi.chmod(0o755)
    return made


def environment(made: Driver) -> dict[str, str]:
    """For processes that shall see it."""
    path = f"{made.folder}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, **made.environment, "PATH": path, "PYTHONPATH": str(ROOT)}


def main(words: list[str]) -> None:
    """Answer as `nvidia-smi --query-gpu=… --format=csv,noheader,nounits [-lms N]` does."""
    query = next((word.partition("=")[2] for word in words if word.startswith("--query-gpu=")), "")
    if not query:
        return
    library, handle = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
    library.nvmlInit_v2()
    library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle))

    def asked(name: str, kind: Any) -> Any:
        value = kind()
        getattr(library, name)(handle, ctypes.byref(value))
        return value

    def text(name: str) -> str:
        into = ctypes.create_string_buffer(96)
        getattr(library, name)(handle, into, 96)
        return into.value.decode()

    known: dict[str, Callable[[], str]] = {
        "index": lambda: "0", "name": lambda: text("nvmlDeviceGetName"), "uuid": lambda: text("nvmlDeviceGetUUID"),
        "pci.bus_id": lambda: BUS, "driver_version": lambda: "580.95.05", "memory.total": lambda: "81559",
        "timestamp": lambda: datetime.now().strftime("%Y/%m/%d %H:%M:%S.%f")[:-3],  # noqa: DTZ005 - as the real one
        "power.draw.instant": lambda: f"{asked('nvmlDeviceGetPowerUsage', ctypes.c_uint).value / 1000:.2f}",
        "utilization.gpu": lambda: str(asked("nvmlDeviceGetUtilizationRates", ctypes.c_uint * 2)[0]),
        "memory.used": lambda: "0",
    }  # fmt: skip
    pause = float(words[words.index("-lms") + 1]) / 1000 if "-lms" in words else 0.0
    while True:
        print(", ".join(known[name]() for name in query.split(",")), flush=True)
        if not pause:
            return
        time.sleep(pause)


if __name__ == "__main__":
    main(sys.argv[1:])

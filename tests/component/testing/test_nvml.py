"""The driver that is none: it answers as the real one does, and knows what it said."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.fakes.nvml import CALL, ENERGY, FIELD, LOST, POWER, Driver

if TYPE_CHECKING:
    from pathlib import Path

#: Asks for five fields of GPU 0, then for GPU 1; prints code, type and the eight bytes of each.
CLIENT = """
import ctypes as c
class Field(c.Structure):
    _fields_ = [("id", c.c_uint), ("scope", c.c_uint), ("at", c.c_int64), ("took", c.c_int64), ("type", c.c_uint),
                ("result", c.c_uint), ("value", c.c_uint64)]
nvml = c.CDLL("libnvidia-ml.so.1")
print(nvml.nvmlInit_v2())
gpu = c.c_void_p()
nvml.nvmlDeviceGetHandleByIndex_v2(0, c.byref(gpu))
fields = (Field * 4)()
for field, number in zip(fields, (186, 83, 82, 300)):
    field.id = number
print(nvml.nvmlDeviceGetFieldValues(gpu, 4, fields))
for field in fields:
    print(field.result, field.type, f"{field.value:016x}")
print(nvml.nvmlDeviceGetHandleByIndex_v2(1, c.byref(gpu)), nvml.nvmlDeviceGetHandleByIndex_v2(2, c.byref(gpu)))
"""


def asked(driver: Driver) -> list[list[str]]:
    told = subprocess.check_output([sys.executable, "-c", CLIENT], env=os.environ | driver.environment, text=True)
    return [line.split() for line in told.splitlines()]


def test_what_it_hands_out_is_what_it_was_told_and_in_its_log(tmp_path: Path) -> None:
    with Driver(tmp_path, 2) as driver:
        driver.gpus[0].power, driver.gpus[0].energy = 301_234, 2**40
        driver.gpus[0].lacks(82)
        driver.gpus[1].result = LOST
        init, whole, power, energy, memory, unknown, handles = asked(driver)
        assert (init, whole, handles) == (["0"], ["0"], [str(LOST), "2"])
        assert power == ["0", "1", f"a5a5a5a5{301_234:08x}"], "a value of four bytes leaves the other four as they were"
        assert energy == ["0", "3", f"{2**40:016x}"]
        assert (memory[0], unknown[0]) == ("3", "3")
        said = [(one.what, one.result, one.value) for one in driver.handed(gpu=0)]
        assert said == [
            (FIELD + POWER, 0, 301_234),
            (FIELD + ENERGY, 0, 2**40),
            (FIELD + 82, 3, 0),
            (FIELD + 300, 3, 0),
        ]
        assert [one.result for one in driver.handed(CALL["handle"])] == [LOST]
        assert driver.called("fields") == 1


def test_a_wave_has_taken_what_its_counter_says(tmp_path: Path) -> None:
    with Driver(tmp_path, 1) as driver:
        gpu = driver.gpus[0]
        gpu.waves(300_000, 0, period_s=0.02)
        before, after = (int(asked(driver)[3][2], 16) for _ in range(2))
        gpu.rests()
        assert 1_000_000 < before <= after <= gpu.energy
        assert int(asked(driver)[3][2], 16) == gpu.energy
    assert ctypes.sizeof(gpu) % 8 == 0

"""What a recording costs: a look at 8 GPUs beside bare calls of pynvml and nvitop, CPU and memory, bytes a GPU-sample.

All on a driver that is none, so that its own time is next to nothing; on a real one its time is added to each alike (an
H100's is 5 ms a look). `nvitop` is compared with where it is installed. python benchmarks/bench_recording.py [seconds]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.fakes.nvml import Driver

from remuda.wire.recording import Status
from remuda.wire.spool import STATUS, spools

GPUS, LOOKS = 8, 400
TIMED = """
import json, time
def timed(look):
    for _ in range(20):
        look()
    best = 1e9
    for _ in range(5):
        begin = time.thread_time()
        for _ in range({looks}):
            look()
        best = min(best, (time.thread_time() - begin) / {looks})
    print(json.dumps(best * 1e6))
"""
OURS = """
from remuda.node.gpu import nvml
library = nvml.Nvml()
devices = [nvml.Device(library.open(index)) for index in range({gpus})]
timed(lambda: [device.look() for device in devices])
"""
PYNVML = """
import pynvml as n
n.nvmlInit()
handles = [n.nvmlDeviceGetHandleByIndex(index) for index in range({gpus})]
fields = [186, 82, 83, 197, 198, (138, 0xFFFFFFFF), (139, 0xFFFFFFFF), 74, 75]
def look():
    for handle in handles:
        n.nvmlDeviceGetUtilizationRates(handle); n.nvmlDeviceGetMemoryInfo(handle)
        n.nvmlDeviceGetTemperature(handle, 0); n.nvmlDeviceGetClockInfo(handle, 1)
        n.nvmlDeviceGetFieldValues(handle, fields)
timed(look)
"""
NVITOP = """
from nvitop import Device
devices = Device.all()
def look():
    for device in devices:
        device.utilization_rates(); device.memory_info(); device.temperature(); device.sm_clock()
        device.power_usage(); device.total_energy_consumption() if hasattr(device, "total_energy_consumption") else None
timed(look)
"""


def of_a_look(code: str, env: dict[str, str]) -> float | None:
    """CPU of one look at all GPUs, µs; None where its library is not installed."""
    text = (TIMED + code).replace("{looks}", str(LOOKS)).replace("{gpus}", str(GPUS))
    done = subprocess.run([sys.executable, "-c", text], env=env, capture_output=True, text=True, check=False)
    return float(json.loads(done.stdout)) if done.returncode == 0 else None


def tree(pid: int) -> tuple[float, float]:
    """CPU seconds and MiB of memory of a process and its children."""
    pids = [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
    cpu = memory = 0.0
    for one in pids:
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(") ")[2].split()
        cpu += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
        rollup = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
        memory += next(int(line.split()[1]) for line in rollup if line.startswith("Pss:")) / 1024
    return cpu, memory


def main(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        driver = Driver(Path(folder), GPUS, records=6_000_000)
        for number, gpu in enumerate(driver.gpus):
            gpu.seed = 24 + number
        env = {**os.environ, **driver.environment}
        ours = of_a_look(OURS, env)
        assert ours is not None
        print(f"one look at {GPUS} GPUs: ours {ours:.1f} µs")
        for name, code in (("pynvml", PYNVML), ("nvitop", NVITOP)):
            theirs = of_a_look(code, env)
            print(f"  {name}: " + (f"{theirs:.1f} µs, {theirs / ours:.1f} times" if theirs else "not installed"))
        target = Path(folder) / "recording"
        process = subprocess.Popen([sys.executable, "-m", "remuda.node", "recorder", str(target)], env=env)
        while not (target / STATUS).exists() or Status.from_json((target / STATUS).read_text()).rounds < 20:
            time.sleep(0.1)
        before, _ = tree(process.pid)
        begin = time.monotonic()
        time.sleep(seconds)
        after, memory = tree(process.pid)
        share = (after - before) / (time.monotonic() - begin)
        print(f"{GPUS} GPUs at 10 Hz for {seconds:g} s: {share:.2%} of a core, {memory:.0f} MiB")
        process.terminate()
        process.wait()
        (spool,) = spools(target)
        samples = GPUS * sum(len(batch.times) for batch in spool.batches())
        size = sum(path.stat().st_size for path in spool.folder.glob("blocks-*"))
        print(f"{size / samples:.1f} bytes a GPU-sample, {samples} of them")
        driver.close()


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 65.0)

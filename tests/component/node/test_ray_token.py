"""Real Ray under the first node of a replica: who has its token may run programs, and nobody else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.component.node.conftest import until
from tests.component.node.test_spread import First

from remuda.node import records
from remuda.plan.placing.spanning import ADDRESS, ASK, RAY
from remuda.wire.spread import DASHBOARD_MARK, HEAD_MARK, HEAD_PORT_MARK, OWN_MARK, SCRATCH_MARK

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(1800)]
SERVER = """
import os, ray, time
ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False)
print("works at", os.environ["RAY_ADDRESS"], flush=True)
time.sleep(9000)
"""
INTRUDER = """
import os, sys
os.environ["RAY_AUTH_MODE"] = sys.argv[2]
os.environ["RAY_AUTH_TOKEN"] = "0" * 64
import ray
ray.init(address=sys.argv[1], log_to_driver=False)
print(ray.get(ray.remote(os.getpid).remote()))
"""


def words_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended
        return b""


def test_ray_asks_everybody_for_the_token(tmp_path: Path, program: Path) -> None:
    each = ("--num-gpus=2", "--num-cpus=1")
    start = [sys.executable, *RAY]
    first = First(
        tmp_path, program, [sys.executable, "-c", SERVER], few=4096, gpus=4, env={"RAY_ADDRESS": ADDRESS},
        member=[*start, f"--address={ADDRESS}", f"--node-ip-address={OWN_MARK}", *each],
        head=[*start, "--head", f"--node-ip-address={HEAD_MARK}", f"--port={HEAD_PORT_MARK}",
              "--dashboard-host=127.0.0.1", f"--dashboard-port={DASHBOARD_MARK}", f"--temp-dir={SCRATCH_MARK}", *each],
        ask=[sys.executable, "-c", ASK, ADDRESS, "2", "4", "1"],
    )  # fmt: skip
    try:
        said = until(lambda: (text := first.log.read_text()) and "works at " in text and text, "Ray serves", 420)
        address = said.partition("works at ")[2].split()[0]
        intruders = [
            subprocess.Popen([sys.executable, "-c", INTRUDER, address, mode], stdout=subprocess.PIPE, text=True)
            for mode in ("disabled", "token")
        ]
        assert [intruder.communicate(timeout=400)[0] for intruder in intruders] == ["", ""]
        assert 0 not in [intruder.returncode for intruder in intruders]
        assert records.warning(first.run_dir) == ""
        environments = [_environment(path) for path in Path("/proc").glob("[0-9]*/environ")]
        tokens = {
            entry.partition(b"=")[2]
            for environment in environments
            for entry in environment.split(b"\0")
            if entry.startswith(b"RAY_AUTH_TOKEN=") and address.encode() in environment
        }
        assert len(tokens) == 1
        token = tokens.pop()
        shown = b"".join(words_of(int(path.name)) for path in Path("/proc").glob("[0-9]*"))
        assert token not in shown
        assert token not in first.log.read_bytes()
    finally:
        first.process.terminate()
        first.process.wait(200)
        first.close()


def _environment(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # another's, or it has ended
        return b""

"""A run fills the disk that the state directory is on: it can be ended, and hosts can be stopped and started."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.conftest import PYTHON

PROGRAM = Path(__file__).parent / "programs" / "full_disk.py"


def test_a_run_that_fills_the_disk_is_ended_and_hosts_come_and_go() -> None:
    disk = tempfile.mkdtemp(prefix="rd", dir="/tmp")
    own = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    try:
        done = subprocess.run(
            [*own, PYTHON, str(PROGRAM), disk], capture_output=True, text=True, timeout=540, check=False
        )
    finally:
        shutil.rmtree(disk)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    said = {item["command"]: item["out"] for item in told["said"]}
    failed = [item for item in told["said"] if item["rc"]]
    assert failed == [], told["log"]
    assert "fill is stopped" in said["stop fill"]
    assert said["phase"] == "DOWN"
    assert not any("Traceback" in item["out"] for item in told["said"])

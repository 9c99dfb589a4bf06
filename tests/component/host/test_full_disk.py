"""A run fills the disk that the state directory is on: it can be ended, and hosts can be stopped and started."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.conftest import PYTHON

OWN = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
PROGRAM = Path(__file__).parent / "programs" / "full_disk.py"


def test_a_run_that_fills_the_disk_is_ended_and_hosts_come_and_go() -> None:
    disk = tempfile.mkdtemp(prefix="rd", dir="/tmp")
    try:
        done = subprocess.run(
            [*OWN, PYTHON, str(PROGRAM), disk], capture_output=True, text=True, timeout=540, check=False
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


def refused(folder: Path, options: str, line: str) -> subprocess.CompletedProcess[str]:
    """A line of shell in a folder whose disk takes nothing."""
    disk = folder / "disk"
    disk.mkdir()
    env = {**os.environ, "REMUDA_HOME": str(folder / "home"), "DISK": str(disk), "PYTHON": PYTHON}
    mounted = f'mount -t tmpfs -o "{options},mode=700" tmpfs "$DISK" && cd "$DISK" && {{ {line} }}'
    return subprocess.run([*OWN, "sh", "-c", mounted], capture_output=True, text=True, check=False, env=env)


def test_a_host_whose_directory_is_on_a_full_disk_says_so(tmp_path: Path) -> None:
    fill = 'head -c 99999 /dev/zero > fill 2> /dev/null; REMUDA_HOME="$DISK/h"'
    done = refused(tmp_path, "size=64k", f'{fill} "$PYTHON" -m remuda nodes;')
    assert (done.returncode, done.stdout) == (5, "")
    said = [line for line in done.stderr.splitlines() if not line.startswith("waiting for the host")]
    assert said[0] == f"error: the host did not start: no space is left for {tmp_path}/disk/h"


def test_the_demo_in_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    done = refused(tmp_path, "ro,size=64k", '"$PYTHON" -m remuda demo --random;')
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: demo-output: Read-only file system\n"

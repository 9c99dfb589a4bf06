"""Runs a gang with real torch and torchft: `python tests/live/run_gang_torch.py`, which is `make gang-torch`.

It makes an environment of its own, `.venv-torch` (about 1 GB, a minute the first time; torch's wheels for CPUs must be
where pip finds packages), and in it: `gang_torch.py` (one process a copy, torchft's DiLoCo over the store) and
`gang_sharded.py` (two copies of two processes each, by torchrun and gloo).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".venv-torch"
#: torchft's own list of what it needs, which would bring another torch, is passed over.
PACKAGES = ("torch==2.13.0", "numpy", "obstore", "opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http")
WITHOUT_NEEDS = ("torchft==0.2.0",)


def environment() -> Path:
    """Interpreter of the environment."""
    python, stamp = FOLDER / "bin" / "python", FOLDER / ".installed"
    wanted = "\n".join(PACKAGES + WITHOUT_NEEDS)
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "venv", str(FOLDER)], check=True)
    subprocess.run([*pip, *PACKAGES], check=True)
    subprocess.run([*pip, "--no-deps", *WITHOUT_NEEDS], check=True)
    stamp.write_text(wanted)
    return python


def main() -> int:
    """0 where all is as it should be."""
    python = environment()
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
    subprocess.run([str(python), "-m", "tests.live.gang_torch"], check=True, env=env, cwd=ROOT)
    with tempfile.TemporaryDirectory() as folder:
        env |= {"REMUDA_RENDEZVOUS": f"file://{folder}/store", "RUN_ID": "run", "REPLICA_COUNT": "2", "OUT": folder}
        argv = [str(python), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        copies = [
            subprocess.Popen([*argv, "-m", "tests.live.gang_sharded"], env={**env, "REPLICA_RANK": str(rank)}, cwd=ROOT)
            for rank in range(2)
        ]
        codes = [copy.wait(timeout=600) for copy in copies]
        same = len({path.read_bytes() for path in Path(folder).glob("*.weights")}) == 2  # A module plain, one sharded.
    print("two copies of two processes:", "as one process" if same and codes == [0, 0] else f"ended with {codes}")
    return 0 if same and codes == [0, 0] else 1


if __name__ == "__main__":
    sys.exit(main())

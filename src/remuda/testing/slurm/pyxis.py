"""The plugin of `pyxis.c`, compiled for the Slurm of this machine: real `srun` takes the options of Pyxis."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("pyxis.c")
LIBRARY: Final = "pyxis.so"


def plugstack(folder: Path) -> str:
    """`plugstack.conf`: where the library could not be compiled Slurm goes on without it."""
    return f"optional {folder / LIBRARY}\n"


def build(folder: Path) -> bool:
    """Compile it into a folder; whether that could be done."""
    try:
        said = subprocess.run(["slurmctld", "-V"], check=True, capture_output=True, text=True).stdout
        major, minor, micro = map(int, re.findall(r"\d+", said)[:3])
        version = major << 16 | minor << 8 | micro
        words = ["cc", "-shared", "-fPIC", "-O1", f"-DVERSION={version}", "-o", str(folder / LIBRARY), str(SOURCE)]
        subprocess.run(words, check=True, capture_output=True)
    except (OSError, ValueError, subprocess.CalledProcessError):
        return False
    return True

"""What a carried job runs first: asks this machine's client for its files, and becomes the node program.

A client that is not there is waited for: it comes back. Standard library only; started by its path.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import sys
import time
from typing import Any

WAIT_S = 600.0
"""For a client, and for a head that answers it."""
AGAIN_S = 0.5
CANNOT_START = 82
"""As `wire.exit` has it."""


def main(path: str) -> int:
    """Ask at this socket; returns only where that leads to nothing."""
    asked = {"token": os.environ.get("REMUDA_TOKEN", ""), "job": os.environ.get("SLURM_JOB_ID", "")}
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        with socket.socket(socket.AF_UNIX) as line:
            said = _ask(line, path, asked)
            if "document" in said:
                _hold(said["folder"])
                line.close()
                os.execv(  # noqa: S606 - by its path
                    sys.executable, [sys.executable, "-I", "-S", said["program"], "child", said["document"]]
                )
            if "error" in said:
                break
        time.sleep(AGAIN_S)
    return CANNOT_START


def _ask(line: socket.socket, path: str, asked: dict[str, str]) -> dict[str, Any]:
    """What the client answers; nothing where it does not."""
    try:
        line.connect(path)
        line.sendall(json.dumps(asked).encode() + b"\n")
        with line.makefile("rb") as file:
            said = json.loads(file.readline())
    except (OSError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}


def _hold(folder: str) -> None:
    """Have the allocation's lock for as long as its node program lives, and its words in `node.log`."""
    lock = os.open(f"{folder}/.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.set_inheritable(lock, True)
    log = os.open(f"{folder}/node.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

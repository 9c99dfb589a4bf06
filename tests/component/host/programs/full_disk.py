"""A disk of ten megabytes that a run fills, and goes on filling; in a mount namespace of its own.

    unshare --mount python full_disk.py DIRECTORY

Prints what each command answered, as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

DISK = Path(sys.argv[1])
FILL = """
import os, time
out = os.open("fill", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
while True:
    try:
        os.write(out, b"x" * 4096)
    except OSError:
        time.sleep(0.01)
"""
said: list[dict[str, Any]] = []


def remuda(*words: str) -> str:
    command = [sys.executable, "-m", "remuda", *words]
    done = subprocess.run(command, cwd=DISK, env=ENV, capture_output=True, text=True, timeout=120, check=False)
    said.append({"command": " ".join(words), "rc": done.returncode, "out": done.stdout + done.stderr})
    return done.stdout


def until(what: str, is_so: Any) -> None:
    deadline = time.monotonic() + 120
    while not is_so():
        if time.monotonic() > deadline:
            said.append({"command": what, "rc": 1, "out": "not within two minutes"})
            return
        time.sleep(0.05)


def host() -> int:
    return int(json.loads(remuda("host", "status", "--json"))["pid"])


def is_full() -> bool:
    return os.statvfs(DISK).f_bavail == 0


def fillers() -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):
            if entry.readlink() == DISK and b"fill.py" in (entry.parent / "cmdline").read_bytes():
                found.append(int(entry.parent.name))
    return found


def kill_host() -> None:
    pid = host()
    os.kill(pid, signal.SIGKILL)
    until("the host is gone", lambda: has_ended(pid))


def has_ended(pid: int) -> bool:
    """Whether it is gone; who is to take note of that may be slow."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def fill_up() -> bool:
    """Take what the end of the run and the host have given back; whether nothing is left."""
    with suppress(OSError), (DISK / "fill").open("ab", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass
    return is_full()


subprocess.run(["mount", "-t", "tmpfs", "-o", "size=10m,mode=700", "tmpfs", str(DISK)], check=True)
ENV = {name: text for name, text in os.environ.items() if not name.startswith("REMUDA_")}
ENV |= {"REMUDA_HOME": str(DISK / "h"), "NO_COLOR": "1", "COLUMNS": "200"}
(DISK / "fill.py").write_text(FILL)
(DISK / "fill.sh").write_text(f"#!/bin/sh\nexec {sys.executable} fill.py\n")
(DISK / "short.sh").write_text("#!/bin/sh\nexit 0\n")
try:
    remuda("host", "start")
    until("there is room", (DISK / "h" / "remuda.db-room").exists)
    remuda("run", "fill.sh", "--name", "fill", "--backend", "local")
    until("it is full", is_full)
    remuda("status", "fill")
    remuda("host", "stop")
    remuda("host", "start")
    kill_host()
    remuda("host", "start")
    remuda("stop", "fill")
    until("nobody fills it", lambda: not fillers())
    until("it is full again", fill_up)
    kill_host()
    remuda("host", "start")
    view = json.loads(remuda("status", "fill", "--json"))
    said.append({"command": "phase", "rc": 0, "out": str(view.get("phase"))})
    (DISK / "fill").unlink()
    remuda("run", "short.sh", "--name", "short", "--backend", "local", "--wait")
finally:
    with suppress(Exception):
        os.kill(host(), signal.SIGKILL)
    for pid in fillers():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    log = (DISK / "h" / "host.log").read_text()
    print(json.dumps({"said": said, "log": log}))

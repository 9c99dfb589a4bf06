"""Find and end the processes of an allocation, surely the right ones."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from remuda.wire.process import ProcessId, is_alive

_MARK = b"\0REMUDA_TOKEN="


def tokens_by_pid() -> dict[int, str]:
    """Allocation token of every living process of this user that carries one in its environment.

    Cost: one small file read per process of the user.
    """
    found: dict[int, str] = {}
    me = os.getuid()
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            # The superuser can read everybody's.
            if entry.stat().st_uid != me:
                continue
            environ = Path(entry.path, "environ").read_bytes()
        except OSError:
            continue
        _, is_marked, rest = (b"\0" + environ).partition(_MARK)
        if is_marked:
            found[int(entry.name)] = os.fsdecode(rest.partition(b"\0")[0])
    return found


def signal_process(process: ProcessId, number: int) -> bool:
    """Send a signal to exactly this process; False when it lives no more.

    The descriptor is opened before the identity is checked, so a reused pid is never hit.
    """
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    except (AttributeError, OSError):
        return _signal_pid(process, number)
    try:
        if not is_alive(process):
            return False
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def _signal_pid(process: ProcessId, number: int) -> bool:
    """Where the kernel has no process descriptors."""
    if not is_alive(process):
        return False
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        return False
    return True


def kill_token(token: str, found: dict[int, str]) -> list[int]:
    """SIGKILL every process of `found` that carries `token`; returns their pids."""
    pids = [pid for pid, carried in found.items() if carried == token]
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return pids

"""What a host that starts is doing, in a small file that it writes for those who wait for it."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from remuda.base.disk.files import write_atomic

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.base.disk.paths import StatePaths


def _file(paths: StatePaths) -> Path:
    # Beside the lock: each machine has its own.
    return paths.host_lock.with_suffix(".starting")


def say(paths: StatePaths, stage: str) -> None:
    """This process is a host that starts, and does this now. A full disk does not keep it from starting."""
    with suppress(OSError):
        write_atomic(_file(paths), json.dumps({"pid": os.getpid(), "stage": stage}), mode=0o600, sync=False)


def over(paths: StatePaths) -> None:
    """It has started, or never will."""
    if told(paths)[0] == os.getpid():
        with suppress(OSError):
            _file(paths).unlink()


def told(paths: StatePaths) -> tuple[int, str]:
    """Who starts on this machine, and what it does; 0 and nothing where nobody has said so."""
    try:
        data = json.loads(_file(paths).read_text())
        return int(data["pid"]), str(data["stage"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0, ""

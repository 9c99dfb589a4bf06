"""What recordings say of a workload's GPUs, for `status` and `explain`: read from files, in the user's process."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from remuda.base.disk.paths import state_paths
from remuda.base.errors import RemudaError
from remuda.base.extras import BATCH
from remuda.base.units import show_energy
from remuda.client.recordings import profiler

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_MOST_BYTES: Final = 64 << 20
"""Larger recordings are for `profiler analyze`."""
_HOUR_S: Final = 3600.0


def folders(name: str) -> list[Path]:
    """Recordings of a workload: its own, or those beside its tasks."""
    paths = state_paths()
    own = paths.recordings / name
    return [own] if own.is_dir() else profiler.beside(paths.workloads, name)


def sentences(name: str) -> list[str]:
    """What stands out in the last hour of its GPUs, a heading first; empty where nothing was recorded."""
    found = folders(name)
    if not found:
        return []
    parts = [one for folder in found for one in profiler.parts(folder)]
    told = [f"  {words}" for words in dict.fromkeys(map(_trouble, parts)) if words]
    if _size(found) > _MOST_BYTES:
        told.append(f"  the recording is large: remuda profiler analyze {name}")
    else:
        told += [f"  {words}" for words in _facts(name, found)]
    shared = [words for folder in found if profiler.is_fresh(profiler.status_of(folder)) for words in _shared(folder)]
    told += [f"  {words}" for words in dict.fromkeys(shared)]
    return ["its GPUs:", *told] if told else []


def _facts(name: str, found: Sequence[Path]) -> list[str]:
    try:
        from remuda import profile

        recorded = profile.read(*found, name=name, last_s=_HOUR_S, attempt_of=profiler.attempt_of)
    except ImportError:
        return [f"recordings cannot be read without pyarrow: {BATCH}"]
    except RemudaError:
        return []  # nothing was recorded yet, and the recorder has said why
    is_long = recorded.end_us - recorded.begin_us > 0.999 * _HOUR_S * 1e6
    is_now = time.time() - recorded.end_us / 1e6 < _HOUR_S
    span = ("the last hour" if is_now else "its last hour") if is_long else ""
    return profile.facts(profile.analyse(recorded), span)


def _trouble(folder: Path) -> str:
    """What the recorder wants its user to know."""
    status = profiler.status_of(folder)
    return status.reason if status is not None and status.state in ("nothing", "recording") else ""


def _shared(folder: Path) -> list[str]:
    """GPUs on which somebody else is, too, now."""
    task = profiler.task_of(folder)
    status = profiler.status_of(folder)
    users = profiler.users(folder)
    return [
        f"GPU {gpu['index']} is shared with {', '.join(others)}"
        for gpu in (status.gpus if status is not None else ())
        if (others := [user for user in users.get(str(gpu["uuid"]), ()) if user != task])
        and folder.name == profiler.BESIDE
    ]


def _size(found: Sequence[Path]) -> int:
    return sum(path.stat().st_size for folder in found for path in folder.rglob("*") if path.is_file())


def energy(view: Mapping[str, Any]) -> str:
    """What a workload's GPUs used over all of its attempts; empty before its end, and where that is not known."""
    found = folders(view["name"]) if view["phase"] in ("DONE", "FAILED", "STOPPED", "DOWN") else []
    if not found or _size(found) > _MOST_BYTES:
        return ""
    try:
        from remuda import profile

        joules = profile.analyse(profile.read(*found, processes=False)).joules
    except (ImportError, RemudaError):
        return ""
    return "" if joules is None else show_energy(joules)

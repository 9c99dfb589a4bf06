"""GPUs as a recorder sees them now, in lines with bars. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from remuda.base.pages.charts import bar
from remuda.base.units import show_count, show_counted, show_duration, show_size
from remuda.client.recordings.profiler import FRESH_S

if TYPE_CHECKING:
    from remuda.client.recordings.profiler import Live

_GIB: Final = 1 << 30


def lines(live: Live, now: float) -> list[str]:
    """A recording in lines: one for it, and one for each GPU.

    Args:
        live: as the recorder told last.
        now: seconds since the epoch.
    """
    status = live.status
    late = now - status.at
    state = status.state if late < FRESH_S else f"silent for {show_duration(late)}"
    facts = [state, show_counted(status.rounds, "sample"), show_size(status.size_bytes)]
    facts += [f"{show_count(status.missed)} missed"] if status.missed else []
    facts += [f"{show_count(status.lost)} not written"] if status.lost else []
    facts += [f"thinned to 1 Hz: {show_counted(status.thinned, 'minute')}"] if status.thinned else []
    where = f" on {live.node}" if live.node else ""
    head = [f"{live.name}{where}: {', '.join(facts)}", *([f"  {status.reason}"] if status.reason else [])]
    return [*head, *(line(gpu, live.users.get(str(gpu.get("uuid")), ())) for gpu in status.gpus)]


def line(gpu: dict[str, Any], users: tuple[str, ...] = ()) -> str:
    """One GPU; what the driver does not tell is `-`."""
    if gpu.get("gone"):
        return f"  GPU {gpu['index']}  {gpu['gone']}"
    busy, used, total = gpu.get("busy"), gpu.get("memory"), gpu.get("memory_bytes") or 0
    shown = [
        f"  GPU {gpu['index']}",
        f"▕{bar((busy or 0) / 100)}▏" + ("   -" if busy is None else f"{busy:3d}%"),
        f"▕{bar(used / total if used is not None and total else 0)}▏" + _memory(used, total),
        _number(gpu.get("power"), 1000, "W", 4),
        _number(gpu.get("temperature"), 1, "°C", 3),
    ]
    count = int(gpu.get("processes") or 0)
    names = ", ".join(users) or (show_counted(count, "process").replace("processs", "processes") if count else "")
    return "  ".join([*shown, names]).rstrip()


def _memory(used: int | None, total: int) -> str:
    return "      -" if used is None else f"{used / _GIB:5.1f} of {total / _GIB:.0f} GiB"


def _number(value: int | None, per: int, unit: str, width: int) -> str:
    return f"{'-':>{width}} {unit}" if value is None else f"{value / per:{width}.0f} {unit}"

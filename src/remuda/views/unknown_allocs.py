"""What ran from this state directory and is in its database no more: that was lost, or is an older copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.base.units import show_counted

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from remuda.base.disk.paths import StatePaths


def forgotten(paths: StatePaths, known: Container[str]) -> list[str]:
    """Names of workloads of which there are directories of attempts, and that are not `known`."""
    try:
        folders = [entry for entry in paths.workloads.iterdir() if entry.name not in known]
    except OSError:
        return []
    return sorted(one.name for one in folders if one.name[0] != "." and any(one.glob("*-*/attempt-*")))


def sentence(names: Sequence[str]) -> str:
    """What is the matter."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    what = show_counted(len(names), "workload", "that has", "that have")
    return f"the database does not know {what} run directories here: {', '.join(names[:5])}{more}"


def note(names: Sequence[str]) -> str:
    """The same with what to type; empty without names."""
    if not names:
        return ""
    return f"{sentence(names)}; remuda doctor shows what of them goes on, and remuda doctor --clean ends it"

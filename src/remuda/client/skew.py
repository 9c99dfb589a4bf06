"""A command and a host of different versions: which is older, and what to type. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple


class Skew(NamedTuple):
    """What there is to say of it."""

    sentence: str
    hint: str

    def __str__(self) -> str:
        return f"{self.sentence}; {self.hint}"


def skew(mine: str, hosts: str) -> Skew | None:
    """What to say where this command's version is not the host's; None where they are the same, or one is not known."""
    if not mine or not hosts or mine == hosts:
        return None
    if _parts(mine) < _parts(hosts):
        return Skew(
            f"the host is remuda {hosts}, which is newer than this command ({mine})",
            f"use remuda {hosts} here too: pip install 'remuda=={hosts}'",
        )
    return Skew(
        f"the host still runs remuda {hosts}, which is older than this command ({mine})",
        "type `remuda host stop`, then the command again: workloads go on running, and a new host adopts them",
    )


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0]))

"""Which allocations share one `sbatch`: the tasks of a group are one array, under one name. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.backends.base import read_token
from remuda.backends.slurm.hostlist import compress_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from remuda.backends.base import Rendered

_ARRAY = "--array="
_ARRAY_NATIVE = re.compile(r"^(\d+)_(\d+)$")


@dataclass(frozen=True)
class Call:
    """One `sbatch`, and the allocations that it makes."""

    argv: tuple[str, ...]
    tokens: tuple[str, ...]
    indices: tuple[int, ...] = ()
    """Of the array, in the order of `tokens`; empty: a single job."""

    def native(self, job_id: str, position: int) -> str:
        """Slurm's id of one of the allocations."""
        return f"{job_id}_{self.indices[position]}" if self.indices else job_id


def array_name(token: str) -> str:
    """Name of the array that an allocation is a task of: its token with `a` in place of the index."""
    parts = read_token(token)
    return f"{parts.workload}.{parts.group}.a.{parts.attempt}.{parts.uid}"


def array_index(token: str) -> int:
    """Its index in that array."""
    return read_token(token).index


def merge(rendered: Sequence[Rendered]) -> tuple[Call, ...]:
    """The calls that submit `rendered`, in order of their first member: those that differ in the index only are one."""
    shares: dict[tuple[str, ...], list[Rendered]] = {}
    for item in rendered:
        is_array = any(word.startswith(_ARRAY) for word in item.argv)
        key = tuple(_ARRAY if word.startswith(_ARRAY) else word for word in item.argv)
        shares.setdefault(key if is_array else (*key, item.token), []).append(item)
    return tuple(_call(items) for items in shares.values())


def _call(items: Sequence[Rendered]) -> Call:
    first = items[0]
    tokens = tuple(item.token for item in items)
    if not any(word.startswith(_ARRAY) for word in first.argv):
        return Call(first.argv, tokens)
    indices = tuple(array_index(token) for token in tokens)
    array = f"{_ARRAY}{compress_numbers(indices)}"
    return Call(tuple(array if word.startswith(_ARRAY) else word for word in first.argv), tokens, indices)


def compress_ids(natives: Iterable[str]) -> list[str]:
    """Job ids as scontrol takes them, tasks of one array together: `12`, `13_[0-7,9]`."""
    singles: set[int] = set()
    arrays: dict[int, set[int]] = {}
    for native in natives:
        match = _ARRAY_NATIVE.match(native)
        if match:
            arrays.setdefault(int(match[1]), set()).add(int(match[2]))
        elif native.isdigit():
            singles.add(int(native))
    return [*map(str, sorted(singles)), *(f"{job}_[{compress_numbers(arrays[job])}]" for job in sorted(arrays))]

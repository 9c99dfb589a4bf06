"""Which allocations share one `sbatch`, under which name: the tasks of a group, and runs of one command. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from remuda.backends.base import Rendered, read_token
from remuda.base.hostlist import compress_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ARRAY = "--array="
_ARRAY_NATIVE = re.compile(r"^(\d+)_(\d+)$")
_BATCH = re.compile(r"^([a-z0-9]+)-([1-9][0-9]{0,6})$")

BATCHES = ".batch"
"""Beside the run directories: what the runs of one command share. No workload can be called like this."""


@dataclass(frozen=True)
class Call:
    """One `sbatch`, and the allocations that it makes."""

    argv: tuple[str, ...]
    tokens: tuple[str, ...]
    indices: tuple[int, ...] = ()
    """Of the array, in the order of `tokens`; empty: a single job."""
    is_batch: bool = False
    """It is an array, and its allocations could be submitted one by one as well."""

    @property
    def is_of_runs(self) -> bool:
        """Whether its allocations belong to different workloads."""
        return batch_of(read_token(self.tokens[0]).uid) is not None

    def native(self, job_id: str, position: int) -> str:
        """Slurm's id of one of the allocations."""
        return f"{job_id}_{self.indices[position]}" if self.indices else job_id


def batch_of(uid: str) -> tuple[str, int] | None:
    """Batch and index of a workload that was asked for together with others (`BATCH-INDEX`); None for others."""
    match = _BATCH.match(uid)
    return (match[1], int(match[2])) if match else None


def batch_uid(batch: str, index: int) -> str:
    """The uid of the `index`-th workload, from 1, of a batch."""
    return f"{batch}-{index}"


def array_name(token: str) -> str:
    """Name of the array that an allocation may be a task of.

    Of a group: its token with `a` in place of the index. Of the runs of one command, a name that they share.
    """
    parts = read_token(token)
    batch = batch_of(parts.uid)
    if batch is not None:
        return f"runs.{parts.group}.b.{parts.attempt}.{batch[0]}"
    return f"{parts.workload}.{parts.group}.a.{parts.attempt}.{parts.uid}"


def array_index(token: str) -> int:
    """Its index in that array."""
    parts = read_token(token)
    batch = batch_of(parts.uid)
    return batch[1] if batch is not None else parts.index


def merge(rendered: Sequence[Rendered]) -> tuple[Call, ...]:
    """The calls that submit `rendered`, by their first member: one for a pack, and for what differs in the index."""
    shares: dict[tuple[str, ...], list[Rendered]] = {}
    for item in rendered:
        argv = item.together.argv if item.together is not None else item.argv
        is_array = any(word.startswith(_ARRAY) for word in argv)
        key = tuple(_ARRAY if word.startswith(_ARRAY) else word for word in argv)
        own = (item.pack,) if item.pack else key if is_array else (*key, item.token)
        shares.setdefault(own, []).append(item)
    return tuple(_call(items) for items in shares.values())


def _call(items: Sequence[Rendered]) -> Call:
    first = items[0]
    tokens = tuple(item.token for item in items)
    is_batch = first.together is not None and len(items) > 1
    argv = first.together.argv if first.together is not None and is_batch else first.argv
    if not any(word.startswith(_ARRAY) for word in argv):
        return Call(argv, tokens)
    indices = tuple(array_index(token) for token in tokens)
    array = f"{_ARRAY}{compress_numbers(indices)}"
    return Call(tuple(array if word.startswith(_ARRAY) else word for word in argv), tokens, indices, is_batch)


def one_by_one(rendered: Sequence[Rendered]) -> tuple[Call, ...]:
    """The calls that submit `rendered` where they cannot be sent together."""
    return merge([replace(item, together=None) for item in rendered])


def in_calls(rendered: Sequence[Rendered]) -> list[Rendered]:
    """`rendered` as it is sent: allocations that one call makes together are one item, named after their array."""
    items = {item.token: item for item in rendered}
    made = []
    for call in merge(rendered):
        name = array_name(call.tokens[0]) if call.indices else items[call.tokens[0]].pack or call.tokens[0]
        files = {path: text for token in call.tokens for path, text in files_of(items[token], call).items()}
        made.append(Rendered(name, call.argv, files))
    return made


def files_of(item: Rendered, call: Call) -> dict[str, str]:
    """What is written for an allocation before `call` is made."""
    return dict(item.together.files if item.together is not None and call.is_batch else item.files)


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

"""The process that asks the driver: round after round on an absolute schedule, each second's rounds to its parent.

A call on a GPU that hangs never comes back, and cannot be interrupted: so this is a process of its own, says in shared
memory which GPU it is about to ask, and is killed by whoever sees that it does not go on. Its standard output carries
records as `wire.spool` has them: first a HELLO, then a FRAME a second.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import signal
import struct
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

from remuda.node.gpu import faults, nvml
from remuda.node.gpu.owners import Owners
from remuda.node.gpu.visible import chosen
from remuda.wire.recording import VALUES, Batch, Gpu, GpuProcess, RecordingNote
from remuda.wire.spool import frame, record

if TYPE_CHECKING:
    from remuda.wire.fault import Fault

HELLO = 16
"""Kind of a record, JSON: `gpus` of the recording and the `driver`'s version, or `nothing`: a sentence."""
PROGRESS = struct.Struct("<qi")
"""Shared memory: µs on the monotonic clock of the last sign of life, and the index of the GPU that is asked, or -1."""
NOBODY = -1
NAMES = tuple(value.name for value in VALUES)
_FAST = tuple(value.name for value in VALUES if not value.is_slow)
_SLOW = tuple(value.name for value in VALUES if value.is_slow)
MAX_XIDS = 20
"""Events that are taken in in one second; a storm of them repeats itself."""


class Order(NamedTuple):
    """What the process is to do, as JSON on its command line."""

    interval_us: int
    visible: dict[str, str]
    """Variables that say which GPUs; empty: all."""
    only: list[int]
    """Indices of the GPUs of the recording, in its order, where that has begun; it is what counts then."""
    skipped: list[int]
    """Indices of those that do not answer."""
    progress: int
    """Descriptor of the shared memory."""
    parent: int
    names: dict[str, str]
    """PCI addresses of the GPUs of the recording by their indices: one that is lost is called so still."""


class Heartbeat:
    """The sign of life, on both sides."""

    def __init__(self, descriptor: int) -> None:
        self._shared = mmap.mmap(descriptor, PROGRESS.size)

    def tell(self, index: int) -> None:
        """About to ask this GPU, or `NOBODY`."""
        PROGRESS.pack_into(self._shared, 0, time.monotonic_ns() // 1000, index)

    def read(self) -> tuple[int, int]:
        """When it was told, and of whom."""
        at, index = PROGRESS.unpack_from(self._shared)
        return int(at), int(index)


class SampleRound(NamedTuple):
    """What one round brought."""

    at: int
    fast: list[dict[str, int]]
    """Of each GPU."""
    slow: list[dict[str, int]] | None
    """Of each GPU, in the one round of a second."""


class Sampler:
    """Asks until it is told to end.

    Args:
        order: see there.
        progress: see there.
    """

    def __init__(self, order: Order, progress: Heartbeat) -> None:
        self._order, self._progress = order, progress
        self._owners = Owners()
        self._number = 0
        self.is_ended = False
        self._told: set[tuple[str, str]] = set()
        self._early: list[Fault] = []
        """What was seen before the first round."""

    def begin(self) -> dict[str, Any]:
        """Find the GPUs: what HELLO says."""
        self._progress.tell(NOBODY)
        try:
            library = nvml.Nvml()
            count = library.count()
        except nvml.Failed as failed:
            return {"nothing": str(failed)}
        gpus, handles, refused = self._open(library, count)
        picked, why = chosen(list(gpus.values()), self._order.visible)
        if self._order.only:
            picked = [gpus.get(index, Gpu(index, "")) for index in self._order.only]
        self._gpus = picked
        self._devices: list[nvml.Device | None] = []
        for gpu in self._gpus:
            self._progress.tell(gpu.index)
            handle = None if gpu.is_mig else handles.get(gpu.index)
            self._devices.append(None if handle is None else nvml.Device(handle))
        self._progress.tell(NOBODY)
        self._asked = [place for place, device in enumerate(self._devices) if device is not None]
        if not self._asked:
            mig = any(gpu.is_mig for gpu in self._gpus)
            words = "they are split by MIG, whose parts the driver does not measure" if mig else ""
            why = "; ".join(refused) or why or words or "the driver knows no GPU on this machine"
            return {"nothing": why, "gpus": [asdict(gpu) for gpu in self._gpus]}
        self._xids = nvml.Xids([handles[self._gpus[place].index] for place in self._asked])
        return {"gpus": [asdict(gpu) for gpu in self._gpus], "driver": library.driver(), "refused": refused}

    def _open(self, library: nvml.Nvml, count: int) -> tuple[dict[int, Gpu], dict[int, Any], list[str]]:
        """By index: GPUs that this process may use, and handles of those that answer; and what others say, in words.

        One that is not asked, or does not answer, holds its place in the order that CUDA's numbers follow.
        """
        gpus: dict[int, Gpu] = {}
        handles: dict[int, Any] = {}
        refused: list[str] = []
        for index in range(count):
            gpus[index] = Gpu(index, "", pci=self._order.names.get(str(index), ""))
            if index in self._order.skipped:
                continue
            self._progress.tell(index)
            try:
                handles[index] = library.open(index)
            except nvml.Failed as failed:
                if failed.code == nvml.NO_PERMISSION:
                    del gpus[index]
                else:
                    refused.append(f"GPU {index}: {failed}")
                    self._early += faults.of_code(gpus[index], failed.code, time.time())
            else:
                gpus[index] = library.describe(index, handles[index])
        return gpus, handles, refused

    def run(self) -> None:
        """Ask, until `is_ended`."""
        step = self._order.interval_us / 1e6
        due = time.monotonic()
        rounds: list[SampleRound] = []
        second = int(due)
        while not self.is_ended:
            rounds.append(self._round(is_slow=not rounds))
            due += step
            now = time.monotonic()
            if now > due + step:  # rounds that were missed are not caught up with
                due += step * int((now - due) / step)
            if int(due) > second or len(rounds) >= 1000:
                self._send(rounds)
                rounds, second = [], int(due)
                if os.getppid() != self._order.parent:
                    return
            self._sleep(due, step)
        self._send(rounds)

    def _sleep(self, until: float, step: float) -> None:
        """Wait for the next round, and say at least once a second that it is waited for."""
        while not self.is_ended:
            left = until - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, 1.0))
            if step > 1.0:
                self._progress.tell(NOBODY)

    def _round(self, *, is_slow: bool) -> SampleRound:
        fast: list[dict[str, int]] = []
        slow: list[dict[str, int]] = []
        at = time.monotonic_ns() // 1000
        for gpu, device in zip(self._gpus, self._devices):
            if device is not None:
                self._progress.tell(gpu.index)
            fast.append({} if device is None else device.look())
        for gpu, device in zip(self._gpus, self._devices) if is_slow else ():
            self._progress.tell(gpu.index)
            slow.append({} if device is None else device.look_slowly())
        self._progress.tell(NOBODY)
        return SampleRound(at, fast, slow if is_slow else None)

    def _send(self, rounds: list[SampleRound]) -> None:
        if not rounds:
            return
        count = len(rounds)
        offset = time.time_ns() // 1000 - time.monotonic_ns() // 1000
        batch = Batch(self._number, self._number + count, [one.at for one in rounds], [offset, *[None] * (count - 1)])
        batch.gpus += [_columns(place, rounds) for place in range(len(self._devices))]
        batch.processes = self._processes()
        batch.notes = self._faults(rounds)
        self._number += count
        _put(frame(batch, NAMES))

    def _processes(self) -> list[GpuProcess]:
        found = []
        for place in self._asked:
            device = self._devices[place]
            self._progress.tell(self._gpus[place].index)
            if device is not None:
                found += [(place, pid, shares) for pid, shares in device.processes().items()]
        self._progress.tell(NOBODY)
        owners = self._owners.of({pid for _, pid, _ in found})
        return [GpuProcess(0, place, pid, *shares, *owners[pid]) for place, pid, shares in found]

    def _faults(self, rounds: list[SampleRound]) -> list[RecordingNote]:
        now = time.time()
        found, self._early = self._early, []
        slow = rounds[0].slow or []
        for place, (gpu, device) in enumerate(zip(self._gpus, self._devices)):
            if device is not None:
                found += faults.of_code(gpu, device.code, now)
                found += faults.of_values(gpu, slow[place] if slow else {}, now)
        for _ in range(MAX_XIDS):
            event = self._xids.wait(0)
            if event is None:
                break
            if event[0] >= 0:
                found.append(faults.of_xid(self._gpus[self._asked[event[0]]], event[1], now))
        new = []
        for fault in found:  # each once, as it stays true until the end
            if (fault.name, fault.device) not in self._told:
                self._told.add((fault.name, fault.device))
                new.append(RecordingNote(time.monotonic_ns() // 1000, "fault", json.dumps(fault.to_dict())))
        return new


def _columns(place: int, rounds: list[SampleRound]) -> dict[str, list[int | None]]:
    """Values of one GPU over time, by name; without those that no round has."""
    columns = {name: [one.fast[place].get(name) for one in rounds] for name in _FAST}
    if rounds[0].slow is not None:
        found = rounds[0].slow[place]
        columns.update((name, [found.get(name), *[None] * (len(rounds) - 1)]) for name in _SLOW)
    return {name: column for name, column in columns.items() if column.count(None) < len(column)}


def _put(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def main(text: str) -> int:
    """Do what an order says, until SIGTERM or the end of the parent."""
    order = Order(**json.loads(text))
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: not without its parent
    if os.getppid() != order.parent:
        return 1
    sampler = Sampler(order, Heartbeat(order.progress))

    def end(_number: int, _frame: Any) -> None:
        sampler.is_ended = True

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's to pass on
    hello = sampler.begin()
    _put(record(HELLO, json.dumps(hello).encode()))
    if "nothing" not in hello:
        sampler.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

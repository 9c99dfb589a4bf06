"""Records what GPUs do until it is told to end: `recorder FOLDER --interval-s 0.1 [--gpus 0,1]`, and see `main`.

A process of its own beside what it records. It holds no handle of the driver: the sampler does, which may hang. It ends
with SIGTERM, with whoever started it, or when there is nothing (any more) to record; its exit code is 0 then, and
`status.json` in FOLDER says why.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda.node import private
from remuda.node.child.signals import ENDING, Signals
from remuda.node.gpu import faults
from remuda.node.gpu.visible import NAMES as VISIBLE
from remuda.node.recorder.sampler_watch import (
    BEGIN_S,
    MAX_DEATHS,
    MAX_STUCK,
    Died,
    Frame,
    Hello,
    SamplerSilent,
    Sampling,
)
from remuda.node.recorder.spooling import LATE_MINUTES, MAX_BYTES, Spooling, new_folder
from remuda.node.script.scan import Faults
from remuda.wire.fault import Fault
from remuda.wire.process import boot_id
from remuda.wire.recording import Gpu, Header, RecordingNote, Status
from remuda.wire.spool import STATUS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.wire.recording import Batch

CLOCK_STEP_US = 500_000
"""A wall clock that moves by more than this from one second to the next was set."""
LOOK_S = 0.25


class Recorder:
    """One recording, from its first round to its last word.

    Args:
        folder: of the recording.
        interval_s: between rounds.
        environ: which GPUs, see `visible`.
        name: given by the user.
        token: of the task beside it.
        node: as its cluster calls the machine; empty: by its own name.
        max_bytes: bound of the spool.
        begin_s: how long the driver may take to begin.
    """

    def __init__(
        self,
        folder: Path,
        interval_s: float,
        environ: Mapping[str, str],
        *,
        name: str = "",
        token: str = "",
        node: str = "",
        max_bytes: int = MAX_BYTES,
        begin_s: float = BEGIN_S,
    ) -> None:
        self._folder, self._name, self._token, self._max = folder, name, token, max_bytes
        self._node = node or os.uname().nodename
        self._interval_us = max(1000, round(interval_s * 1e6))
        visible = {key: environ[key] for key in VISIBLE if key in environ}
        self._sampling = Sampling(self._interval_us, visible, begin_s)
        self._spool: Spooling | None = None
        self._gpus: tuple[Gpu, ...] = ()
        self._gone: dict[int, str] = {}
        self._faults = Faults()
        self._rounds = self._missed = self._deaths = 0
        self._last_at = 0
        self._offset: int | None = None
        self._latest: list[dict[str, Any]] = []
        self._trouble = ""
        self.reason = ""
        """Why it is over; empty while it is not."""
        self._state = "starting"
        self._pending: list[RecordingNote] = []
        """Notes from before there was a spool, or room."""
        self._start_at = 0.0

    def run(self, signals: Signals) -> None:
        """Record until the end."""
        parent = os.getppid()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._tell()
        self._start()
        while not self.reason:
            pipe = self._sampling.pipe
            signals.wait(LOOK_S * 1000, *([pipe] if pipe >= 0 else ()))
            self._take(self._sampling.events())
            if any(number in ENDING for number in signals.take()):
                self.reason = self.reason or "it was told to end"
            elif os.getppid() != parent:
                self.reason = self.reason or "the program that it records for has ended"
            if not self.reason and self._start_at and time.monotonic() >= self._start_at:
                self._start()
        self._finish()

    def _start(self) -> None:
        self._start_at = 0.0
        try:
            self._sampling.start()
        except OSError as error:
            self._again(f"the sampler cannot be started: {error}")

    def _take(self, events: list[Hello | Frame | SamplerSilent | Died]) -> None:
        for event in events:
            if isinstance(event, Frame):
                self._frame(event.payload)
            elif isinstance(event, Hello):
                self._hello(event.told)
            elif isinstance(event, SamplerSilent):
                self._silent(event)
            else:
                self._again(f"the sampler ended with code {event.code}")

    def _hello(self, told: dict[str, Any]) -> None:
        if "nothing" in told:
            self.reason = str(told["nothing"])
            return
        for words in told.get("refused", ()):
            self._note("gpu", str(words))
        if self._spool is not None:
            return
        self._gpus = tuple(Gpu(**gpu) for gpu in told["gpus"])
        self._gone.update({gpu.index: "it is split by MIG" for gpu in self._gpus if gpu.is_mig})
        self._gone.update({gpu.index: "the driver does not open it" for gpu in self._gpus if not gpu.uuid})
        self._sampling.only = [gpu.index for gpu in self._gpus]
        self._sampling.names = {str(gpu.index): gpu.pci for gpu in self._gpus}
        header = Header(
            boot=boot_id(),
            machine=_first_line("/etc/machine-id"),
            node=self._node,
            wall_ns=time.time_ns(),
            monotonic_ns=time.monotonic_ns(),
            interval_us=self._interval_us,
            gpus=self._gpus,
            token=self._token,
            name=self._name,
            driver=str(told.get("driver", "")),
        )
        try:
            self._spool = Spooling(new_folder(self._folder), header, self._max)
        except OSError as error:
            self.reason = f"the recording cannot be written: {error}"
            return
        self._state = "recording"
        self._note("start", f"a round every {self._interval_us / 1000:g} ms")
        self._tell()

    def _frame(self, payload: bytes) -> None:
        if self._spool is None:
            return
        self._deaths = 0
        batch = self._spool.add(payload)
        if batch is not None:
            self._look_at(batch)
            self._rounds += len(batch.times)
            if self._trouble:
                self._note("room", f"there is room again; {self._spool.lost} rounds could not be written")
            self._trouble = ""
            pending, self._pending = self._pending, []
            for note in pending:
                self._spool.note(note)
        elif not self._trouble:
            self._trouble = f"the recording cannot be written: {self._spool.trouble}"
        self._tell()

    def _look_at(self, batch: Batch) -> None:
        if self._last_at and batch.times:
            missing = round((batch.times[0] - self._last_at) / self._interval_us) - 1
            inside = round((batch.times[-1] - batch.times[0]) / self._interval_us) + 1 - len(batch.times)
            self._missed += max(0, missing) + max(0, inside)
            if missing > 2 + 1_000_000 // self._interval_us:
                seconds = (batch.times[0] - self._last_at) / 1e6
                self._note("gap", f"nothing was looked at for {seconds:.1f} s", self._last_at)
        self._last_at = batch.times[-1] if batch.times else self._last_at
        offset = next((value for value in batch.clock if value is not None), None)
        if offset is not None and self._offset is not None and abs(offset - self._offset) > CLOCK_STEP_US:
            self._note("clock", f"the wall clock was set by {(offset - self._offset) / 1e6:+.3f} s")
        self._offset = self._offset if offset is None else offset
        for note in batch.notes:
            if note.kind == "fault":
                self._faults.add([Fault.from_dict(json.loads(note.text))])
        self._latest = [
            {
                **{
                    name: next((one for one in reversed(column) if one is not None), None)
                    for name, column in gpu.items()
                },
                "processes": sum(one.gpu == place for one in batch.processes),
            }
            for place, gpu in enumerate(batch.gpus)
        ]

    def _silent(self, event: SamplerSilent) -> None:
        now = time.time()
        gpu = next((gpu for gpu in self._gpus if gpu.index == event.gpu), Gpu(event.gpu, ""))
        if event.gpu >= 0:
            self._sampling.skipped.append(event.gpu)
            self._gone[event.gpu] = "the driver does not answer for it"
            self._note("gpu", f"the driver does not answer for GPU {event.gpu}: the others go on without it")
            for fault in self._faults.add([faults.of_silence(gpu, now)]):
                self._note("fault", json.dumps(fault.to_dict()))
            self._deaths = 0
        if self._sampling.stuck >= MAX_STUCK:
            self.reason = f"{MAX_STUCK} samplers hang in the driver and cannot be killed"
        elif self._gpus and all(gpu.index in self._gone for gpu in self._gpus):
            self.reason = "the driver answers for none of the GPUs any more"
        elif event.gpu < 0 and self._spool is None:
            self.reason = "the NVIDIA driver does not answer"
        else:
            self._again("the sampler gave no sign of life and was killed")

    def _again(self, why: str) -> None:
        self._deaths += 1
        if self._deaths > MAX_DEATHS:
            self.reason = f"{why}, {self._deaths} times without a round"
            return
        self._note("sampler", f"{why}; it is started again")
        self._start_at = time.monotonic() + (0.0 if self._deaths == 1 else min(30.0, 0.5 * 2**self._deaths))
        self._tell()

    def _note(self, kind: str, text: str, at_us: int = 0) -> None:
        note = RecordingNote(at_us or time.monotonic_ns() // 1000, kind, text)
        self._pending = [*self._pending[-99:], note]

    def _finish(self) -> None:
        for event in self._sampling.end():
            if isinstance(event, Frame):
                self._frame(event.payload)
        if self._spool is None:
            self._state = "nothing" if not self.reason.startswith("it was told") else "ended"
        else:
            self._state = "ended"
            for note in self._pending:
                self._spool.note(note)
            self._spool.close(RecordingNote(time.monotonic_ns() // 1000, "end", self.reason))
        self._tell()

    def _tell(self) -> None:
        spool = self._spool
        gpus = []
        for place, gpu in enumerate(self._gpus):
            latest = self._latest[place] if place < len(self._latest) else {}
            known = {"index": gpu.index, "uuid": gpu.uuid, "name": gpu.name, "memory_bytes": gpu.memory_bytes}
            gpus.append({**known, "gone": self._gone.get(gpu.index, ""), **latest})
        thinned = spool.thinned if spool is not None else 0
        bound = f"it is at its bound of {self._max >> 20} MiB, and its oldest {thinned} minutes have one round a second"
        status = Status(
            self._state,
            time.time(),
            self.reason or self._trouble or self._late() or self._some_gone() or (bound if thinned else ""),
            spool.folder.name if spool is not None else "",
            os.getpid(),
            self._rounds,
            spool.lost if spool is not None else 0,
            self._missed,
            spool.size_bytes if spool is not None else 0,
            thinned,
            tuple(gpus),
            tuple(fault.to_dict() for fault in self._faults.all),
        )
        with suppress(OSError):
            private.write_whole(self._folder / STATUS, status.to_json())

    def _late(self) -> str:
        why = self._spool.late if self._spool is not None else ""
        return f"minutes cannot be closed, and are lost after {LATE_MINUTES}: {why}" if why else ""

    def _some_gone(self) -> str:
        return "; ".join(f"GPU {index}: {why}" for index, why in sorted(self._gone.items()))


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").partition("\n")[0].strip()
    except OSError:
        return ""


def main(arguments: list[str]) -> int:
    """Record, as the command line says."""
    parser = argparse.ArgumentParser(prog="remuda-node recorder")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--interval-s", type=float, default=0.1)
    parser.add_argument("--gpus", help="indices, UUIDs or all; without it what CUDA_VISIBLE_DEVICES says, else all")
    parser.add_argument("--node", default="")
    parser.add_argument("--name", default="")
    parser.add_argument("--token", default="")
    parser.add_argument("--max-bytes", type=int, default=MAX_BYTES)
    parser.add_argument("--begin-s", type=float, default=BEGIN_S)
    said = parser.parse_args(arguments)
    signals = Signals()
    named = {"CUDA_VISIBLE_DEVICES": said.gpus} if said.gpus != "all" else {}
    environ = named if said.gpus is not None else os.environ
    recorder = Recorder(
        said.folder, said.interval_s, environ,
        name=said.name, token=said.token, node=said.node, max_bytes=said.max_bytes, begin_s=said.begin_s,
    )  # fmt: skip
    recorder.run(signals)
    os.write(2, f"remuda-node: recording: {recorder.reason}\n".encode(errors="replace"))
    return 0

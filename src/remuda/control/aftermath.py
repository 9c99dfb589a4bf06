"""What is written down once something is over, for those who read files: a job's fate, and that a swarm was taken down.

A driver writes its own end. The supervisor knows of the ends that no driver lived to write: given up, cancelled.
"""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from remuda.base.errors import RemudaError
from remuda.base.files import write_atomic
from remuda.batch.address import DOWN
from remuda.control.jobs import DONE, FAILED, OUTCOME, STOPPED, JobFolder
from remuda.supervise.summary import summarise

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from remuda.backends.base import TaskKey
    from remuda.base.paths import StatePaths
    from remuda.supervise.model import Task, Want

_LOG = logging.getLogger("remuda.control.aftermath")
_WORDS: Final = {"DONE": DONE, "FAILED": FAILED, "STOPPED": STOPPED, "DOWN": STOPPED}


def fate_of(want: Want, tasks: Mapping[TaskKey, Task]) -> dict[str, Any] | None:
    """State and reason of a job that is over, None for one that is not. Pure."""
    summary = summarise(want, tasks)
    state = _WORDS.get(summary.phase)
    if state is None:
        return None
    reason = summary.reason.partition(": ")[2] or summary.reason
    if summary.phase == "DOWN":
        reason = "cancelled"
    return {"state": state, "reason": reason}


class Aftermath:
    """Writes down what is over, beside the loop, which never waits for it.

    Args:
        paths: of the state directory.
        why_down: reason why a workload of that name was taken down.
    """

    def __init__(self, paths: StatePaths, why_down: Callable[[str], str]) -> None:
        self._paths = paths
        self._why_down = why_down
        self._marks: dict[str, tuple[object, ...]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._in_order = asyncio.Lock()

    async def step(self, want: Want, tasks: Mapping[TaskKey, Task]) -> float | None:
        """Note what has changed; the files follow."""
        workload = want.workload
        if not workload.kind.traits.has_outcome and workload.endpoint is None:
            return None
        fate = fate_of(want, tasks) if workload.kind.traits.has_outcome else None
        mark = (workload.uid, want.generation, want.running, str(fate))
        if self._marks.get(workload.name) == mark:
            return None
        self._marks[workload.name] = mark
        if fate is not None:
            self._start(_write_outcome, JobFolder(self._paths, workload.name), fate)
        elif not workload.kind.traits.has_outcome:
            self._start(_mark_down, Path(workload.run_dir), None if want.running else self._reason(workload.name))
        return None

    def _reason(self, name: str) -> str:
        """Why it was taken down; empty when somebody just did."""
        note = self._why_down(name)
        return "" if note == "taken down" else note

    async def close(self) -> None:
        """Write what is left."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, write: Callable[..., None], *arguments: object) -> None:
        task = asyncio.create_task(self._write(write, *arguments), name="aftermath")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write(self, write: Callable[..., None], *arguments: object) -> None:
        async with self._in_order:
            try:
                await asyncio.to_thread(write, *arguments)
            except (OSError, RemudaError) as error:
                _LOG.warning("what is over cannot be written down: %s", error)


def _write_outcome(folder: JobFolder, fate: dict[str, Any]) -> None:
    """What the driver itself has written is truer. A batch that is done has written it, or it is not seen yet."""
    is_batch = folder.read("job.json").get("kind", "batch") == "batch"
    if not folder.path.is_dir() or (fate["state"] == DONE and is_batch):
        return
    if not folder.read(OUTCOME).get("state"):
        folder.write(OUTCOME, fate)


def _mark_down(run_dir: Path, reason: str | None) -> None:
    """Say beside the endpoint's file that nobody will answer there any more, or take that back."""
    mark = run_dir / DOWN
    if reason is None:
        mark.unlink(missing_ok=True)
    elif run_dir.is_dir():
        write_atomic(mark, json.dumps({"reason": reason}) + "\n", mode=0o600, sync=False)

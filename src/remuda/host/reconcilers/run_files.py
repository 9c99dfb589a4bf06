"""The files at the top of a run's directory, named and filled as users of Shepherd know them; `docs/runs.md` has them.

Those of the current attempt are links. The others are written here, beside the loop, which never waits for them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda.backends.base import TaskKey
from remuda.backends.rundir import allocation_dir
from remuda.base.disk.files import write_atomic
from remuda.base.errors import RemudaError
from remuda.plan.run import KEEP, MODE, SOURCE
from remuda.specs.places import is_here
from remuda.supervise.model import Allocation, Cause, Phase, Task, Want
from remuda.supervise.reconciler import Due, Moment, Reconciler, Turns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from remuda.plan.model import Workload
    from remuda.supervise.records import StoreJournal

_LOG = logging.getLogger("remuda.host.reconcilers.run_files")
LINKS = {"heartbeat": "heartbeat", "progress.json": "progress.json", "slurm.out": "child.log", "slurm.err": "child.err"}
"""Name at the top -> file of the current attempt."""
_FINAL = {Phase.DONE: "completed", Phase.FAILED: "failed", Phase.STOPPED: "stopped"}
_TAIL_BYTES = 8192
_LINES = 1000
_MANY = 50
_MANY_WAIT_S = 2.0
"""So long the files of many runs that change at once wait for what comes next: the supervisor is busy then."""


@dataclass(frozen=True)
class WrittenFrom:
    """What the files were written from."""

    want: Want
    task: Task | None

    def mark(self) -> tuple[object, ...]:
        """What makes them out of date when it changes."""
        want, task = self.want, self.task
        known = (task.phase, task.attempt, task.token, task.requeues) if task else ()
        return (want.workload.uid, want.running, want.paused, want.restart_mark, *known)


class RunFiles(Reconciler[str, WrittenFrom]):
    """Keeps the files of all runs up to date, in a thread of its own."""

    def __init__(self, journal: StoreJournal) -> None:
        self._journal = journal
        self._marks: dict[str, tuple[object, ...]] = {}
        self._pending: dict[str, WrittenFrom] = {}
        self.turns: Turns = Turns(self._turn, "run files", is_finished=True)

    def due(self, at: Moment) -> Due[str, WrittenFrom]:
        """Runs whose files are out of date."""
        workload, name = at.want.workload, at.want.workload.name
        if not workload.is_its_task:
            return Due()
        seen = WrittenFrom(at.want, at.tasks.get(TaskKey(name, workload.groups[0].name, 0)))
        return Due({} if self._marks.get(name) == seen.mark() else {name: seen})

    def act(self, actions: Mapping[str, WrittenFrom]) -> None:
        """Note what changed; the files follow soon."""
        self._marks |= {name: seen.mark() for name, seen in actions.items()}
        self._pending |= actions
        self.turns.wake()

    async def _turn(self) -> None:
        if len(self._pending) > _MANY:
            await self.turns.rest(_MANY_WAIT_S)
        batch, self._pending = list(self._pending.values()), {}
        await asyncio.to_thread(self._write_all, batch)

    def _write_all(self, batch: Sequence[WrittenFrom]) -> None:
        for seen in batch:
            name = seen.want.workload.name
            try:
                write(seen, self._journal)
            except (OSError, RemudaError) as error:
                _LOG.warning("the files of run %s cannot be written: %s", name, error)


def write(seen: WrittenFrom, journal: StoreJournal) -> None:
    """Bring all files of one run up to date.

    Raises:
        OSError: its directory cannot be written.
        RemudaError: the story cannot be read.
    """
    workload, task = seen.want.workload, seen.task
    folder = Path(workload.run_dir)
    if not folder.is_dir():
        return
    _write_json(folder / "meta.json", meta(workload), once=True)
    _write_json(folder / "control.json", control(seen.want), once=True)
    if task is not None and task.token:
        _link(folder, allocation_dir(folder.parent, task.token))
    _append_story(folder, workload.name, journal)
    ends = [end for end in journal.allocations(workload.name) if end.ended_at and end.token.endswith(workload.uid)]
    bad = [end for end in ends if end.cause is not Cause.NONE]
    if bad:
        _write_json(folder / "failure.json", _end_of(bad[-1]))
    _append_bad_nodes(folder, [end for end in ends if end.cause is Cause.NODE])
    _write_ends(folder, task)


def meta(workload: Workload) -> dict[str, Any]:
    """`meta.json`: what the run was asked to be, in Shepherd's fields. Durations in seconds."""
    group = workload.groups[0]
    watch = group.watch
    replace, nodes, failover = group.replace, group.nodes, group.failover
    data: dict[str, Any] = {
        "run_id": workload.name,
        "run_mode": workload.labels.get(MODE, "run_once"),
        "sbatch_script": workload.labels.get(SOURCE, ""),
        "sbatch_args": workload.place.get("args", []),
        "max_retries": replace.max_failures - 1,
        "keep_alive_sec": _whole(float(workload.labels.get(KEEP, 0))),
        "heartbeat_interval_sec": _whole(watch.heartbeat_interval_s if watch else 0.0),
        "heartbeat_grace_sec": _whole(watch.heartbeat_grace_s if watch else 0.0),
        "progress_stall_sec": _whole(watch.progress_stall_s if watch else 0.0),
        "backoff_base_sec": _whole(replace.backoff_initial_s),
        "backoff_max_sec": _whole(replace.backoff_max_s),
        "blacklist_ttl_sec": _whole(nodes.ttl_s),
        "blacklist_limit": nodes.limit,
        "blacklist_enabled": nodes.exclude,
        "keep_alive_until": replace.until,
        "uid": workload.uid,
        "backend": workload.backend,
        "script_copy": group.command.argv[0],
        "script_args": list(group.command.argv[1:]),
        "workdir": group.command.cwd,
    }
    if group.pools:
        data["partition_fallback"] = {
            "partitions": [pool.name for pool in group.pools],
            "retry_per_partition": failover.retry_per_pool,
            "reset_to_preferred_sec": _whole(failover.reset_to_preferred_s),
        }
    return data


def _whole(seconds: float) -> float:
    """Without a fraction where there is none, as other programs expect seconds."""
    return int(seconds) if seconds.is_integer() else seconds


def control(want: Want) -> dict[str, Any]:
    """`control.json`: what the user wants of it now."""
    return {"paused": want.paused, "stop": not want.running, "restart": want.restart_mark}


def _job_id(item: Task | Allocation) -> str:
    return "" if is_here(item.backend) else item.native


def _end_of(end: Allocation) -> dict[str, Any]:
    return {
        "at": end.ended_at, "attempt": end.attempt, "cause": end.cause.value, "reason": end.reason, "node": end.node,
        "job_id": _job_id(end), "exit_code": end.exit_code, "signal": end.signal, "pool": end.pool,
    }  # fmt: skip


def _write_ends(folder: Path, task: Task | None) -> None:
    """`final.json` when it reached its goal, `ended.json` when it ended at all; neither while it goes on."""
    phase = task.phase if task is not None else None
    for name, wanted in (("final.json", (Phase.DONE,)), ("ended.json", tuple(_FINAL))):
        path = folder / name
        if task is None or phase not in wanted:
            path.unlink(missing_ok=True)
            continue
        _write_json(path, {
            "at": task.since, "state": _FINAL[task.phase], "reason": task.reason, "cause": task.cause.value,
            "attempt": task.attempt, "exit_code": task.exit_code, "node": task.node, "job_id": _job_id(task),
        })  # fmt: skip


def _write_json(path: Path, data: Mapping[str, Any], *, once: bool = False) -> None:
    """Replace a file; with `once` only when it says something else."""
    text = json.dumps(data, indent=1) + "\n"
    if once and path.is_file() and path.read_text() == text:
        return
    write_atomic(path, text, mode=0o600, sync=False)


def _link(folder: Path, attempt: Path) -> None:
    for name, target in LINKS.items():
        path = folder / name
        wanted = os.path.relpath(attempt / target, folder)
        with suppress(OSError):
            if path.readlink() == Path(wanted):
                continue
        draft = folder / f".{name}.draft"
        draft.unlink(missing_ok=True)
        draft.symlink_to(wanted)
        draft.replace(path)


def _append_story(folder: Path, name: str, journal: StoreJournal) -> None:
    """`events.log`: one JSON object a line, `id` rising."""
    path = folder / "events.log"
    last = int(_last_line(path).get("id", 0))
    while lines := journal.store.events(name, limit=_LINES, after_id=last):
        said = [
            {"id": line.id, "at": line.at, "kind": line.kind, "attempt": line.attempt, "phase": line.phase,
             "reason": line.reason}
            for line in lines
        ]  # fmt: skip
        _append(path, said)
        last = lines[-1].id


def _append_bad_nodes(folder: Path, ends: Sequence[Allocation]) -> None:
    """`badnode_events.log`: attempts that ended by a fault of their node."""
    path = folder / "badnode_events.log"
    last = float(_last_line(path).get("at", 0.0))
    _append(path, [_end_of(end) for end in ends if end.ended_at > last])


def _append(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    if lines:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a", encoding="utf-8") as file:
            file.write("".join(json.dumps(line) + "\n" for line in lines))


def _last_line(path: Path) -> dict[str, Any]:
    """The last whole line of a log, empty where there is none."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            lines = file.read().splitlines()
    except FileNotFoundError:
        return {}
    for line in reversed(lines):
        with suppress(ValueError):
            data = json.loads(line)
            if isinstance(data, dict):
                return data
    return {}

"""Folders of jobs: what the process of a job needs and says, as files. What is known of a job is a row."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda.base.disk.files import read_whole, write_atomic
from remuda.base.errors import Conflict, NotFound, Unwritable
from remuda.base.ids import SUFFIX_LENGTH, check_name, new_suffix, slug
from remuda.base.text import brief, did_you_mean
from remuda.supervise.jobs import ELSEWHERE, GONE, HERE, JobSeen
from remuda.wire.process import ProcessId, boot_id, is_alive

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from remuda.base.disk.paths import StatePaths
    from remuda.batch.request import JobRequest
    from remuda.store.rows import JobRow

META = "job.json"
"""What a job is, as its folder says it."""
OUTCOME = "outcome.json"
"""File in a job's folder: what came of it. Whoever ends the job writes it, once it is over."""
OWNER = "owner.json"
"""The process that asks its rows, or did. It is touched as long as that lives."""


def _refused(path: Path, error: OSError) -> Unwritable:
    hint = "make room and type the same command again; the rows written so far are kept"
    return Unwritable(f"{path} cannot be written: {error.strerror}", hint=hint)


def new_id(output: str) -> str:
    """A name for a job that writes `output`."""
    return f"{slug(Path(output).stem or 'job')[:30]}-{new_suffix()}"


def described(kind: str, what: str, swarm: str, backend: str = "", request: JobRequest | None = None) -> dict[str, Any]:
    """What a job is, as its folder says it; without a backend it runs in the process of its command."""
    return {
        "kind": kind, "what": what, "swarm": swarm, "detached": bool(backend), "backend": backend,
        "input": request.input if request else "", "output": request.output if request else "",
        "progress": str(request.checkpoint_path() / "progress.json") if request else "",
    }  # fmt: skip


class JobFolder:
    """The files of one job."""

    def __init__(self, paths: StatePaths, job_id: str) -> None:
        self.id = job_id
        self.paths = paths
        self.path = paths.jobs / job_id

    def begin(self, kind: str, what: str, swarm: str, backend: str = "", request: JobRequest | None = None) -> None:
        """Remember a new job; without a backend it runs in this process. See `create`."""
        self.create(described(kind, what, swarm, backend, request))

    def create(self, meta: Mapping[str, Any]) -> None:
        """Remember a new job.

        Raises:
            Conflict: there is a job of that id.
            Unwritable: the disk refuses.
        """
        check_name(self.id)
        try:
            self.paths.folder(self.paths.jobs)
            self.path.mkdir(mode=0o700)
        except FileExistsError:
            raise Conflict(f"there is a job {self.id!r} already", hint="choose another --job-id") from None
        except OSError as error:
            raise _refused(self.path, error) from error
        try:
            self.write(META, {"created_at": time.time(), **meta})
        except Unwritable:
            shutil.rmtree(self.path, ignore_errors=True)
            raise

    def write(self, name: str, data: Mapping[str, Any]) -> None:
        """Write one of its JSON files, whole.

        Raises:
            Unwritable: the disk refuses.
        """
        try:
            write_atomic(self.path / name, json.dumps(data, indent=1), mode=0o600)
        except OSError as error:
            raise _refused(self.path, error) from error

    def read(self, name: str) -> dict[str, Any]:
        """One of its JSON files; empty when it is not there. Its path may lead anywhere: to a pipe, or a terabyte."""
        path = self.path / name
        try:
            data = json.loads(read_whole(path, 64 << 20)) if path.is_file() else None
        except (OSError, ValueError):
            return {}
        return data if isinstance(data, dict) else {}

    def owner(self) -> ProcessId | None:
        """The process that runs it, or did; None when there was none."""
        try:
            return ProcessId(**self.read(OWNER))
        except TypeError:
            return None

    def changed_at(self, name: str) -> float:
        """When one of its files was written, seconds since the epoch; 0 when it is not there."""
        try:
            return (self.path / name).stat().st_mtime
        except OSError:
            return 0.0

    def look(self) -> JobSeen | None:
        """What its files show; None when it is no folder of a job."""
        if not (self.path / META).exists():
            return None
        meta, owner = self.read(META), self.owner()
        file = str(meta.get("progress") or "")
        heard_at = max(self.changed_at(OWNER), self.changed_at(file) if file else 0.0)
        return JobSeen(
            self.id, meta, self.read(OUTCOME), self.changed_at(OUTCOME), self.read(file) if file else {}, heard_at,
            _life(owner) if owner else GONE, owner.pid if owner else 0,
        )  # fmt: skip


def _life(owner: ProcessId) -> str:
    if is_alive(owner):
        return HERE
    return GONE if owner.boot == boot_id() or owner.node == os.uname().nodename else ELSEWHERE


def folders(paths: StatePaths) -> frozenset[str]:
    """Names of all folders of jobs.

    Raises:
        OSError: they cannot be listed.
    """
    return frozenset(os.listdir(paths.jobs)) if paths.jobs.is_dir() else frozenset()  # noqa: PTH208 - only names


def find(rows: Mapping[str, JobRow], job_id: str, known: Iterable[str]) -> JobRow:
    """One job, by its id; by the name that its id was made of, the newest.

    Raises:
        NotFound: there is none; the nearest `known` is in the hint.
    """
    named = [row for row in rows.values() if row.id == job_id or row.id[:-SUFFIX_LENGTH] == f"{job_id}-"]
    if not named:
        hint = did_you_mean(job_id, known, "`remuda job list` shows what there is", most=3)
        raise NotFound(f"there is no job {brief(job_id)!r}", hint=hint)
    return max(named, key=lambda row: (row.id == job_id, row.created_at))

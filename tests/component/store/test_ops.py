"""Status, copies, pruning, compacting."""

from __future__ import annotations

import stat
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from remuda.base.errors import Conflict, Fenced, InputError, NotFound, RemudaError
from remuda.store import ops
from remuda.store.engine import open_store
from remuda.store.rows import AllocationRow, Evidence, StoryLine, TaskRow, WorkloadRow
from remuda.store.tables import REVISION

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from remuda.store.database import Store

WORKLOAD = WorkloadRow("w", "u", "swarm", "local", "{}")
TASK = TaskRow("w", "replica", 0, "local", "ready", token="t3")


@pytest.fixture
def filled(store: Store, fence: int) -> Store:
    store.add_workloads(fence, [WORKLOAD])
    events = [StoryLine(at=float(n), workload=name, reason="x" * 500) for n in range(100) for name in ("w", "gone")]
    ends = (("t1", 10.0), ("t2", 60.0), ("t3", 0.0), ("t4", 0.0))
    allocations = [
        AllocationRow(f"{token}{suffix}", name, "replica", 0, 1, "local", submitted_at=5.0, ended_at=end)
        for token, end in ends
        for name, suffix in (("w", ""), ("gone", "-gone"))
    ]
    store.record(fence, tasks=[TASK], events=events, allocations=allocations)
    store.add_evidence(fence, [Evidence("n", 1.0, "xid", expires_at=at) for at in (10.0, 90.0)])
    return store


def test_status(filled: Store) -> None:
    status = ops.status(filled)
    assert (status.revision, status.newest_revision, status.where) == (REVISION, REVISION, filled.address.shown)
    rows = {"workload": 1, "task": 1, "allocation": 8, "event": 200, "node_evidence": 2}
    assert status.counts == {**rows, "job": 0, "campaign": 0, "campaign_row": 0}
    assert status.size_bytes > 50_000
    assert (status.dialect, status.journal_mode) in {("sqlite", "wal"), ("postgresql", "")}


def test_pruning_forgets_what_is_old_and_not_in_use(filled: Store, fence: int) -> None:
    pruned = ops.prune(filled, fence, before=50.0, keep=1000)
    assert pruned == ops.Pruned(events=50, allocations=5, evidence=1)
    assert len(filled.events("w", limit=1000)) == 100
    assert [event.at for event in filled.events("gone", limit=1000)] == [float(n) for n in range(50, 100)]
    assert [item.token for item in filled.allocations("w")] == ["t2", "t3", "t4"]
    assert filled.allocations("gone") == []
    assert [item.expires_at for item in filled.evidence(0.0)] == [90.0]


@pytest.mark.parametrize(
    ("before", "keep", "left"), [(50.0, 70, 70), (50.0, 10, 50), (1000.0, 10, 10), (1000.0, 0, 0), (0.0, 0, 100)]
)
def test_pruning_keeps_the_newest_of_what_lives(filled: Store, fence: int, before: float, keep: int, left: int) -> None:
    ops.prune(filled, fence, before=before, keep=keep)
    assert [event.at for event in filled.events("w", limit=1000)] == [float(n) for n in range(100 - left, 100)]


def test_pruning_needs_the_lease(filled: Store, fence: int) -> None:
    with pytest.raises(Fenced):
        ops.prune(filled, fence + 1, before=1000.0)


@pytest.fixture
def file_store(tmp_path: Path) -> Store:
    with open_store(tmp_path / "remuda.db") as store:
        with store.changing() as connection:
            connection.exec_driver_sql("UPDATE lease SET fence = 1, owner = 'test'")
        store.add_workloads(1, [WORKLOAD])
    return store


def test_a_copy_is_made_in_use_and_is_one_moment(tmp_path: Path, file_store: Store) -> None:
    rows = [replace(TASK, idx=idx, reason="z" * 200) for idx in range(500)]
    stop = threading.Event()

    def write() -> None:
        for turn in range(10_000):
            file_store.record(1, tasks=[replace(row, attempt=turn) for row in rows])
            if stop.is_set():
                return

    file_store.record(1, tasks=rows)
    writer = threading.Thread(target=write)
    writer.start()
    try:
        copies = [tmp_path / f"copy{turn}.db" for turn in range(5)]
        sizes = [ops.backup(file_store, copy) for copy in copies]
    finally:
        stop.set()
        writer.join()
        file_store.close()
    for copy, size in zip(copies, sizes, strict=True):
        assert copy.stat().st_size == size
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
        with open_store(copy) as store:
            tasks = store.tasks()
            assert len(tasks) == 500
            assert len({task.attempt for task in tasks}) == 1
    assert not list(tmp_path.glob(".*partial*"))


def test_a_copy_never_overwrites(tmp_path: Path, file_store: Store) -> None:
    (tmp_path / "copy.db").write_text("precious")
    with pytest.raises(Conflict, match="exists already"):
        ops.backup(file_store, tmp_path / "copy.db")
    assert (tmp_path / "copy.db").read_text() == "precious"
    with pytest.raises(InputError, match="cannot be written"):
        ops.backup(file_store, tmp_path / "nowhere" / "copy.db")


def test_a_server_is_copied_with_its_own_tools(postgres_url: str, tmp_path: Path) -> None:
    with open_store(postgres_url) as store, pytest.raises(InputError, match="is not a file") as caught:
        ops.backup(store, tmp_path / "copy.db")
    assert "pg_dump" in caught.value.hint


def test_a_copy_takes_the_place_of_a_damaged_file(tmp_path: Path, file_store: Store) -> None:
    path = tmp_path / "remuda.db"
    copy = tmp_path / "copy.db"
    ops.backup(file_store, copy)
    file_store.close()
    path.write_bytes(b"damage" * 1000)
    path.with_name("remuda.db-wal").write_bytes(b"old journal")
    aside = ops.restore(path, copy)
    assert aside is not None
    assert aside.read_bytes() == b"damage" * 1000
    assert aside.with_name(f"{aside.name}-wal").read_bytes() == b"old journal"
    with open_store(path) as store:
        assert store.workloads() == [WORKLOAD]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_copy_is_brought_to_a_new_place(tmp_path: Path, file_store: Store) -> None:
    ops.backup(file_store, tmp_path / "copy.db")
    assert ops.restore(tmp_path / "new" / "remuda.db", tmp_path / "copy.db") is None
    with open_store(tmp_path / "new" / "remuda.db") as store:
        assert store.workloads() == [WORKLOAD]


def _absent(folder: Path) -> Path:
    return folder / "absent.db"


def _damaged(folder: Path) -> Path:
    (folder / "bad.db").write_bytes(b"no" * 5000)
    return folder / "bad.db"


def _foreign(folder: Path) -> Path:
    (folder / "empty.db").write_bytes(b"")
    return folder / "empty.db"


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (_absent, NotFound, "no file"),
        (_damaged, RemudaError, "is damaged or is not a database"),
        (_foreign, RemudaError, "is not a database of remuda"),
    ],
)
def test_a_bad_copy_changes_nothing(
    tmp_path: Path, file_store: Store, make: Callable[[Path], Path], error: type[RemudaError], message: str
) -> None:
    with pytest.raises(error, match=message):
        ops.restore(tmp_path / "remuda.db", make(tmp_path))
    with open_store(tmp_path / "remuda.db") as store:
        assert store.workloads() == [WORKLOAD]

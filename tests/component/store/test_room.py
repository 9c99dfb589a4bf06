"""What ends can be recorded on a full disk, by this process and by the next; and a file that is gone is noticed."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest
from tests.component.store.test_faults import file_size_limit

from remuda.base.errors import Unwritable
from remuda.store import lease as leases
from remuda.store import ops
from remuda.store.engine import open_store
from remuda.store.room import keep, let_go, log_kept
from remuda.store.rows import StoryLine, WorkloadRow
from remuda.wire.process import identify

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.store.database import Store

WORKLOAD = WorkloadRow("w", "u", "run", "local", "{}")


def held(store: Store) -> int:
    lease = leases.acquire(store, identify(os.getpid()), ttl_s=3600, now=time.time(), alive=lambda _: False)
    assert isinstance(lease, leases.Lease)
    return lease.fence


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def end_many(store: Store, fence: int, count: int) -> None:
    """So many ends, on a disk that gives no page more; what the log holds is written down now and then."""
    path = store.address.path
    assert path is not None
    with store.engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    with file_size_limit(max(path.stat().st_size, beside(path, "-wal").stat().st_size, 4096)):
        for number in range(count):
            store.record(fence, events=[StoryLine(float(number), "w", reason="it has ended " * 20)])
            if number % 20 == 0:
                keep(store)


@pytest.mark.parametrize("has_room", [True, False])
def test_with_room_ends_are_recorded_on_a_full_disk(tmp_path: Path, has_room: bool) -> None:
    with open_store(tmp_path / "remuda.db") as store:
        fence = held(store)
        if not has_room:
            store.record(fence, events=[StoryLine(0.0, "w")])
            with pytest.raises(Unwritable):
                end_many(store, fence, 1000)
            return
        keep(store)
        end_many(store, fence, 1000)
        assert len(store.events("w", limit=5000)) == 1000


def test_room_is_made_once_and_again_when_it_is_used(tmp_path: Path) -> None:
    path = tmp_path / "remuda.db"
    with open_store(path) as store:
        fence = held(store)
        keep(store)
        size = path.stat().st_size
        assert size > 512 * 1024
        keep(store)
        assert path.stat().st_size == size
        store.record(fence, events=[StoryLine(1.0, "w", reason="x" * 400_000)])
        keep(store)
        assert path.stat().st_size > size
        with store.reading() as connection:
            assert not connection.exec_driver_sql("SELECT 1 FROM sqlite_master WHERE name = 'remuda_room'").first()


def test_the_log_is_written_into_the_file(tmp_path: Path) -> None:
    """What lies in the log alone is lost with it."""
    path = tmp_path / "remuda.db"
    with open_store(path) as store:
        store.add_workloads(held(store), [WORKLOAD])
        keep(store)
        (tmp_path / "copy.db").write_bytes(path.read_bytes())
    with open_store(tmp_path / "copy.db") as copy:
        assert copy.workload("w") == WORKLOAD


def test_the_next_process_begins_with_the_log_of_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "remuda.db"
    with open_store(path) as store, log_kept(store):
        store.add_workloads(held(store), [WORKLOAD])
        keep(store)
        length = beside(path, "-wal").stat().st_size
        inode = beside(path, "-wal").stat().st_ino
    assert not beside(path, "-wal").exists()
    assert beside(path, "-spare").stat().st_size == length
    with open_store(path) as store, open_store(path) as other, log_kept(store):
        assert (store.workload("w"), other.workload("w")) == (WORKLOAD, WORKLOAD)
        assert beside(path, "-wal").stat().st_ino == inode
        other.record(held(store), events=[StoryLine(1.0, "w")])
    assert not beside(path, "-spare").exists(), "it was in use by another"
    with open_store(path) as store:
        assert len(store.events("w")) == 1
        assert ops.status(store).counts["workload"] == 1


def test_old_words_of_a_log_that_is_kept_come_back_never(tmp_path: Path) -> None:
    path = tmp_path / "remuda.db"
    with open_store(path) as store, log_kept(store):
        store.add_workloads(held(store), [WORKLOAD])
    spare = beside(path, "-spare").read_bytes()
    with open_store(path) as store:  # closed without keeping it
        store.remove_workload(held(store), "w")
    beside(path, "-spare").write_bytes(spare)
    with open_store(path) as store:
        assert store.workloads() == []


def test_bricks_are_let_go_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "remuda.db"
    assert not let_go(path)
    with open_store(path) as store:
        keep(store)
    gone = 0
    while let_go(path):
        gone += 1
    assert gone == 8
    with open_store(path) as store:
        keep(store)
    assert let_go(path)


@pytest.mark.parametrize("what", ["", "-wal"])
@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_files_that_are_gone_are_noticed_before_something_is_lost_in_them(tmp_path: Path, what: str, how: str) -> None:
    path = tmp_path / "remuda.db"
    with open_store(path) as store:
        fence = held(store)
        store.add_workloads(fence, [WORKLOAD])
        file, aside = beside(path, what), tmp_path / "aside"
        file.rename(aside)
        if how == "replaced":
            file.write_bytes(b"another's")
        for _ in range(2):
            with pytest.raises(Unwritable, match="was removed or replaced while it was in use") as caught:
                store.record(fence, events=[StoryLine(1.0, "w")])
            assert "remuda db backup FILE" in caught.value.hint
        with pytest.raises(Unwritable):
            keep(store)
        assert store.workload("w") == WORKLOAD, "what it knows can be read"
        ops.backup(store, tmp_path / "saved.db")
        aside.replace(file)
        store.record(fence, events=[StoryLine(1.0, "w")])
    with open_store(tmp_path / "saved.db") as saved:
        assert saved.workload("w") == WORKLOAD

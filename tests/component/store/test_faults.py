"""Killed writers, full disks, damaged files, locks, lost servers: nothing is half written and the error says what."""

from __future__ import annotations

import random
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from remuda.base.errors import RemudaError, Unavailable
from remuda.store import engine
from remuda.store.engine import open_store
from remuda.store.rows import TaskRow, WorkloadRow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from remuda.store.database import Store

PROGRAMS = Path(__file__).parent / "programs"
WORKLOAD = WorkloadRow("w", "u", "swarm", "local", "{}")


@pytest.mark.real
def test_a_killed_writer_leaves_whole_transactions(where: str) -> None:
    seeds = random.Random(7)
    last = 0
    for turn in range(5):
        command = [sys.executable, str(PROGRAMS / "holder.py"), where]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            fence = int(writer.stdout.readline())
            assert fence == turn + 1, "each takes over from its killed predecessor at once"
            writer.stdout.readline()
            time.sleep(seeds.uniform(0.0, 0.15))
            writer.send_signal(signal.SIGKILL)
            rest = writer.stdout.read().splitlines()
        if "://" in where:
            until_alone(where)  # the server may be at the last batch still
        last = max([last, *(int(line) for line in rest if line)])
        with open_store(where) as store:
            attempts = {task.attempt for task in store.tasks()}
            events = [event.attempt for event in store.events("w", limit=1_000_000)]
            assert len(attempts) == 1, "a batch is written whole"
            written = attempts.pop()
            assert written >= last, "what was reported as committed is there"
            assert events == [number for number in range(1, written + 1) for _ in range(20)]


@contextmanager
def file_size_limit(limit_bytes: int) -> Iterator[None]:
    """Writes beyond this size fail in this process, as on a full disk or an exhausted quota."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.fixture
def file_store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "remuda.db") as store, store.changing() as connection:
        connection.exec_driver_sql("UPDATE lease SET fence = 1, owner = 'test'")
    with open_store(tmp_path / "remuda.db") as store:
        store.add_workloads(1, [WORKLOAD])
        yield store


BIG = [TaskRow("w", "replica", idx, "local", "ready", reason="x" * 1000) for idx in range(2000)]


def test_a_failing_write_is_said_and_changes_nothing(file_store: Store) -> None:
    path = file_store.address.path
    with file_size_limit(300_000), pytest.raises(RemudaError, match=f"database {path} cannot be written or read"):
        file_store.record(1, tasks=BIG)
    assert file_store.tasks() == []
    file_store.record(1, tasks=BIG)
    assert len(file_store.tasks()) == len(BIG)


def test_a_full_disk_is_said_and_changes_nothing(file_store: Store) -> None:
    with file_store.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 100")  # SQLite answers as it does to ENOSPC
    with pytest.raises(RemudaError, match=f"no space left for database {file_store.address.path}") as caught:
        file_store.record(1, tasks=BIG)
    assert "free some space" in caught.value.hint
    assert file_store.tasks() == []


def test_a_damaged_page_is_said_with_the_file_and_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / "remuda.db"
    with open_store(path) as store:
        with store.changing() as connection:
            connection.exec_driver_sql("UPDATE lease SET fence = 1, owner = 'test'")
        store.add_workloads(1, [WORKLOAD])
        store.record(1, tasks=BIG)
    with path.open("r+b") as file:
        file.seek(8 * 4096)
        file.write(random.Random(1).randbytes(path.stat().st_size - 16 * 4096))
    with pytest.raises(RemudaError, match=f"database {path} is damaged") as caught, open_store(path) as store:
        store.tasks()
    assert "remuda db restore" in caught.value.hint


def test_a_lock_held_for_too_long_is_said(file_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file_store.address.path
    assert path is not None
    monkeypatch.setattr(engine, "BUSY_TIMEOUT_S", 0.05)
    with closing(sqlite3.connect(path, isolation_level=None)) as other, open_store(path) as store:
        other.execute("BEGIN IMMEDIATE")
        assert store.workload("w") == WORKLOAD, "readers do not wait"
        with pytest.raises(Unavailable, match="stayed locked by another process"):
            store.record(1, tasks=BIG[:1])
        other.execute("ROLLBACK")
        store.record(1, tasks=BIG[:1])


def test_a_read_only_file_is_said(tmp_path: Path) -> None:
    path = tmp_path / "remuda.db"
    open_store(path).close()
    with open_store(path) as store:
        with store.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA query_only = ON")
        with pytest.raises(RemudaError, match="is read-only"), store.changing() as connection:
            connection.exec_driver_sql("UPDATE lease SET fence = 1")


OTHERS = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


def drop_connections(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"SELECT pg_terminate_backend(pid) {OTHERS}".encode())
    until_alone(url)


def until_alone(url: str) -> None:
    """Until the server has ended all connections to this database: it does so in its own time."""
    deadline = time.monotonic() + 120
    with psycopg.connect(url, autocommit=True) as admin:
        while admin.execute(f"SELECT pid {OTHERS} AND backend_type = 'client backend'".encode()).fetchall():
            assert time.monotonic() < deadline, "somebody is still connected"
            time.sleep(0.01)


def test_a_server_that_dropped_the_connection_is_asked_again(postgres_url: str) -> None:
    with open_store(postgres_url) as store:
        assert store.workloads() == []
        drop_connections(postgres_url)
        assert store.workloads() == []


def test_a_connection_lost_in_a_transaction_changes_nothing(postgres_url: str) -> None:
    def change(store: Store) -> None:
        with store.changing() as connection:
            connection.exec_driver_sql("UPDATE lease SET fence = 9")
            drop_connections(postgres_url)
            connection.exec_driver_sql("UPDATE lease SET fence = 10")

    with open_store(postgres_url) as store:
        with pytest.raises(Unavailable, match="does not answer"):
            change(store)
        with store.reading() as connection:
            assert connection.exec_driver_sql("SELECT fence FROM lease").scalar() == 0

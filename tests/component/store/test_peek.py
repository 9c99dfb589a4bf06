"""A look from beside: into a database in use, one that is newer, damaged, missing, or somebody else's."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from remuda.store.engine import open_store
from remuda.store.lease import Lease, acquire
from remuda.store.peek import peek, peek_jobs
from remuda.store.rows import JobRow, WorkloadRow
from remuda.store.tables import REVISION
from remuda.wire.process import ProcessId

if TYPE_CHECKING:
    from pathlib import Path

OWNER = ProcessId(77, "1", "b", "login1")


def filled(path: Path) -> None:
    with open_store(path) as store:
        lease = acquire(store, OWNER, 20.0, 1000.0)
        assert isinstance(lease, Lease)
        row = WorkloadRow(
            name="herd", uid="k3f9a1xq", kind="swarm", backend="slurm", plan="{}", spec="", running=True, generation=1,
            created_at=1.0, changed_at=1.0,
        )  # fmt: skip
        store.add_workloads(lease.fence, [row])


def test_what_there_is(tmp_path: Path) -> None:
    path = tmp_path / "remuda.db"
    filled(path)
    before = path.read_bytes()
    seen = peek(path)
    assert (seen.workloads, seen.backends, seen.tasks) == ({"herd": ("k3f9a1xq", True)}, frozenset({"slurm"}), {})
    assert (seen.revision, seen.problem, seen.lease_node, seen.lease_pid) == (REVISION, "", "login1", 77)
    assert seen.lease_until == 1020.0
    assert path.read_bytes() == before


def test_while_somebody_writes(tmp_path: Path) -> None:
    path = tmp_path / "remuda.db"
    filled(path)
    with open_store(path) as store, store.changing() as connection:
        connection.exec_driver_sql("UPDATE workload SET running = 0")
        assert peek(path).workloads == {"herd": ("k3f9a1xq", True)}


def test_a_newer_one_is_read_as_far_as_it_is_known(tmp_path: Path) -> None:
    path = tmp_path / "remuda.db"
    filled(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("ALTER TABLE workload ADD COLUMN mood TEXT")
        connection.execute("UPDATE remuda_revision SET version_num = '9999'")
    seen = peek(path)
    assert (seen.revision, seen.problem) == ("9999", "")
    assert seen.workloads == {"herd": ("k3f9a1xq", True)}
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("ALTER TABLE workload RENAME COLUMN uid TO identity")
    assert peek(path).problem == "it has no workload.uid"
    assert peek(path).workloads is None


def test_what_is_no_database_of_ours(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(b"not a database at all, and long enough to be looked at as one" * 50)
    assert peek(damaged).problem == f"database {damaged} is damaged or is not a database"
    assert "remuda db restore" in peek(damaged).hint
    foreign = tmp_path / "foreign.db"
    with closing(sqlite3.connect(foreign)) as connection, connection:
        connection.execute("CREATE TABLE x (y)")
    assert peek(foreign).problem == "it holds none of remuda's tables"
    assert not peek(tmp_path / "none.db").exists
    assert not (tmp_path / "none.db").exists()


def test_jobs_as_the_last_host_recorded_them(where: str, tmp_path: Path) -> None:
    rows = [
        JobRow("out-a", state="DONE", detached=True, done=7, total=9, rate=0.5, told='{"done": 7}', reason="it's %s"),
        JobRow("other", state="RUNNING", created_at=1.25),
    ]
    assert peek_jobs(tmp_path / "none.db") == []
    with open_store(where) as store:
        lease = acquire(store, OWNER, 20.0, 1000.0)
        assert isinstance(lease, Lease)
        store.record_jobs(lease.fence, rows)
        assert sorted(peek_jobs(where), key=lambda row: row.id) == rows[::-1]
        assert peek_jobs(where, "out") == rows[:1]
        assert peek_jobs(where, "it's") == []
        short = {row.id: row for row in peek_jobs(where, brief=("DONE",))}
        assert (short["other"], short["out-a"].state, short["out-a"].told) == (rows[1], "DONE", "{}")
        with store.changing() as connection:
            connection.exec_driver_sql("DROP TABLE job")
    assert peek_jobs(where) == [], "a version before it has none"

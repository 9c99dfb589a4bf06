"""Old databases are brought up to date on open, new ones are left alone."""

from __future__ import annotations

import hashlib
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from remuda.base.errors import Conflict, InputError
from remuda.store import migrate, ops
from remuda.store.engine import open_store
from remuda.store.tables import METADATA, REVISION, VERSION_TABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.store.database import Store

PROGRAMS = Path(__file__).parent / "programs"
OLD = Path(__file__).parents[2] / "cases" / "store" / "revision_0001.sql"


def make_old(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(OLD.read_text())


def set_revision(store: Store, revision: str) -> None:
    with store.changing() as connection:
        connection.exec_driver_sql(f"UPDATE {VERSION_TABLE} SET version_num = '{revision}'")


def test_the_migrations_make_the_schema_in_force(store: Store) -> None:
    with store.reading() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "version_table": VERSION_TABLE})
        assert compare_metadata(context, METADATA) == []


def test_revisions_are_numbered_without_branches() -> None:
    config = Config()
    config.set_main_option("script_location", str(migrate.FOLDER))
    script = ScriptDirectory.from_config(config)
    numbers = [item.revision for item in script.walk_revisions()][::-1]
    assert numbers == [f"{number:04}" for number in range(1, len(numbers) + 1)]
    assert numbers[-1] == REVISION
    assert all(Path(item.path).name.startswith(f"v{item.revision}_") for item in script.walk_revisions())


def test_an_old_database_migrates_on_open_and_keeps_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "remuda.db"
    make_old(path)
    with open_store(path) as store:
        assert ops.status(store).revision == REVISION
        workload, task = store.workload("llama"), store.tasks()[0]
        assert (workload.running, workload.generation, workload.created_at) == (True, 4, 100.5)
        assert (task.phase, task.attempt, task.seq, task.exit_code) == ("ready", 2, 17, None)
        assert [item.exit_code for item in store.allocations("llama")] == [80]
        assert [item.reason for item in store.events("llama")] == ["ended with code 80"]
        assert (workload.paused, workload.restart_mark, task.released, task.pool) == (False, 0, False, "")
        test_the_migrations_make_the_schema_in_force(store)


def test_a_failed_migration_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "remuda.db"
    make_old(path)

    def fail_at_the_end(run: Callable[..., None] = command.upgrade) -> Callable[..., None]:
        def upgrade(config: Config, revision: str) -> None:
            run(config, revision)
            raise RuntimeError("power cut")

        return upgrade

    monkeypatch.setattr(command, "upgrade", fail_at_the_end())
    with pytest.raises(RuntimeError, match="power cut"):
        open_store(path)
    monkeypatch.undo()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchall() == [("0001",)]
        assert connection.execute("SELECT name FROM sqlite_master WHERE name = 'node_evidence'").fetchall() == []
    open_store(path).close()


@pytest.mark.parametrize("newer", ["0999", "ab12cd"])
def test_a_newer_database_is_refused_and_left_alone(where: str, newer: str) -> None:
    with open_store(where) as store:
        set_revision(store, newer)
    before = digest(where)
    with pytest.raises(Conflict, match=f"at revision {newer}, this program knows {REVISION}") as caught:
        open_store(where)
    assert "newer remuda" in caught.value.hint
    assert digest(where) == before


def digest(where: str) -> str:
    path = Path(where)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""


def test_the_tables_of_somebody_else_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE task (title TEXT)")
    with pytest.raises(InputError, match="already has a table 'task' that remuda did not make"):
        open_store(path)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("task",)]


def test_opening_a_database_in_order_does_not_load_the_migration_library(tmp_path: Path) -> None:
    path = str(tmp_path / "remuda.db")
    open_store(path).close()
    code = f"import sys; from remuda.store.engine import open_store; open_store({path!r}).close(); "
    code += "sys.exit('alembic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def race(where: str, count: int) -> None:
    start = time.time() + 0.6  # later than the interpreters need to import the store
    command_line = [sys.executable, str(PROGRAMS / "opener.py"), where, str(start)]
    racers = [
        subprocess.Popen(command_line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(count)
    ]
    answers = [racer.communicate(timeout=300) for racer in racers]
    assert answers == [(f"{REVISION}\n", "")] * count


@pytest.mark.real
@pytest.mark.parametrize("seed", range(10))
def test_two_processes_open_an_empty_folder_at_once(tmp_path: Path, seed: int) -> None:
    path = tmp_path / f"state{seed}" / "remuda.db"
    race(str(path), 2)
    with open_store(path) as store:
        test_the_migrations_make_the_schema_in_force(store)


@pytest.mark.real
def test_two_processes_open_an_empty_server_at_once(postgres_url: str) -> None:
    race(postgres_url, 2)


@pytest.mark.real
@pytest.mark.parametrize("seed", range(3))
def test_two_processes_open_an_old_database_at_once(tmp_path: Path, seed: int) -> None:
    path = tmp_path / f"remuda{seed}.db"
    make_old(path)
    race(str(path), 2)
    with open_store(path) as store:
        assert store.workload("llama").generation == 4

"""Addresses, modes, file systems, and what is said when it cannot be opened."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import stat
import traceback
from typing import TYPE_CHECKING

import pytest

from remuda.base.errors import InputError, NotPrivate, RemudaError, Unavailable
from remuda.store import ops
from remuda.store.address import read_address
from remuda.store.engine import open_store

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "hunter2-not-shown"


def test_the_files_are_private(tmp_path: Path) -> None:
    path = tmp_path / "state" / "remuda.db"
    with open_store(path) as store:
        store.workloads()
        files = list(path.parent.iterdir())
        assert {file.name for file in files} >= {"remuda.db", "remuda.db-wal", "remuda.db-shm", "remuda.db.lock"}
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("kind", "mode"), [("ext4", "wal"), ("nfs4", "persist"), ("lustre", "persist"), ("fuse.sshfs", "persist")]
)
def test_the_journal_fits_the_file_system(tmp_path: Path, kind: str, mode: str) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nserver:/home {tmp_path} {kind} rw 0 0\n")
    with open_store(tmp_path / "remuda.db", mounts=mounts) as store:
        status = ops.status(store)
        assert (status.journal_mode, status.file_system, status.on_network) == (mode, kind, mode == "persist")
        with store.reading() as connection:
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
            assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1


def test_a_database_that_moved_to_a_network_leaves_the_shared_memory_mode(tmp_path: Path) -> None:
    path = tmp_path / "remuda.db"
    open_store(path).close()
    mounts = tmp_path / "mounts"
    mounts.write_text(f"server:/home {tmp_path} nfs rw 0 0\n")
    with open_store(path, mounts=mounts) as store:
        assert ops.status(store).journal_mode == "persist"
        assert not path.with_name("remuda.db-shm").exists()


@pytest.mark.parametrize("form", ["{0}", "sqlite:///{0}"])
def test_paths_and_urls_mean_the_same_file(tmp_path: Path, form: str) -> None:
    path = tmp_path / "a b" / "remuda.db"
    assert read_address(form.format(path)).path == path


def test_a_file_in_a_folder_with_odd_characters_opens(tmp_path: Path) -> None:
    path = tmp_path / "a b%20c?d#e" / "remuda.db"
    with open_store(path) as store:
        assert store.workloads() == []
    assert path.exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mysql://u@h/d", "'mysql' databases are not supported"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        (f"postgresql://u:{SECRET}@h:port/d", "cannot be read"),
    ],
)
def test_other_addresses_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_address(text)
    assert "postgresql://USER@HOST/DATABASE" in caught.value.hint
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"postgresql://me:{SECRET}@db.example:5433/r", "postgresql://me@db.example:5433/r"),
        (f"postgres://me:{SECRET}@db.example/r", "postgresql://me@db.example/r"),
        (f"postgresql+psycopg://me@/r?host=/run/pg&password={SECRET}", "postgresql://me@/run/pg/r"),
        (f"postgresql:///?host=a&host=b&password={SECRET}", "postgresql://a,b/"),
    ],
)
def test_passwords_are_never_shown(text: str, shown: str) -> None:
    address = read_address(text)
    assert address.shown == shown
    assert SECRET not in repr(address)
    assert address.url.drivername == "postgresql+psycopg"


@pytest.mark.parametrize("form", ["postgresql://me:{0}@/r?host={1}", "postgresql://me@/r?host={1}&password={0}"])
def test_a_server_that_is_not_there_is_unavailable(tmp_path: Path, form: str) -> None:
    with pytest.raises(Unavailable, match=r"database postgresql://me@.*/r does not answer") as caught:
        open_store(form.format(SECRET, tmp_path))
    assert SECRET not in str(caught.value) + caught.value.hint
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_database_that_is_not_there_is_said(postgres: Path) -> None:
    with pytest.raises(Unavailable, match='database "nowhere" does not exist'):
        open_store(f"postgresql://remuda@/nowhere?host={postgres}")


def test_the_store_shows_where_it_is(where: str) -> None:
    with open_store(where) as store:
        assert repr(store) == f"Store({store.address.shown!r})"


def test_a_missing_driver_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_spec(name: str) -> None:
        assert name == "psycopg"

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    with pytest.raises(InputError, match="driver is not installed") as caught:
        open_store("postgresql://u@h/d")
    assert caught.value.hint == "pip install 'remuda[postgres]'"


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "remuda.db"
    path.write_text("not a database at all" * 100)
    with pytest.raises(RemudaError, match=f"{path} is damaged or is not a database") as caught:
        open_store(path)
    assert "remuda db restore" in caught.value.hint
    assert "remuda db backup" in caught.value.hint


def test_a_path_that_cannot_be_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be opened"):
        open_store(tmp_path / "file" / "remuda.db")
    with pytest.raises(InputError, match="Is a directory"):
        open_store(tmp_path)


def test_a_lock_file_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "remuda.db.lock").mkdir()
    with pytest.raises(RemudaError, match=r"remuda\.db\.lock cannot be opened: Is a directory"):
        open_store(tmp_path / "remuda.db")


def test_without_locks_of_the_file_system_it_still_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(fd: int, operation: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with open_store(tmp_path / "remuda.db") as store:
        assert store.workloads() == []


def test_a_file_that_others_can_write_is_no_database_of_ours(tmp_path: Path) -> None:
    """As `REMUDA_DATABASE_URL` may name one."""
    path = tmp_path / "mine.db"
    open_store(path).close()
    path.chmod(0o666)
    with pytest.raises(NotPrivate, match=r"mine\.db can be written by others than .* \(mode 0666\)") as caught:
        open_store(f"sqlite:///{path}")
    assert "REMUDA_DATABASE_URL" in caught.value.hint
    path.chmod(0o600)
    tmp_path.chmod(0o777)
    with pytest.raises(NotPrivate, match="any user can replace"):
        open_store(path)
    tmp_path.chmod(0o700)
    open_store(path).close()


def test_a_pipe_is_no_database(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(InputError, match="/pipe is a pipe, a socket or a device, not a file"):
        open_store(tmp_path / "pipe")

"""Every test here that asks for `where` or `store` runs twice: on a SQLite file and on a real PostgreSQL server."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from remuda.store import lease as leases
from remuda.store.engine import open_store
from remuda.wire.process import identify

if TYPE_CHECKING:
    from collections.abc import Iterator

    from remuda.store.database import Store

_numbers = count()
MISSING = "the PostgreSQL server programs are missing: install the package `postgresql` (apt-get install postgresql)"


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        candidates = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: path.parts[-3])
        found = str(candidates[-1]) if candidates else None
    if found is None:
        pytest.fail(MISSING)
    return found


def _server_user() -> str | None:
    """A user without privileges when we are root, whom the server refuses; None: stay who we are."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Path]:
    """Directory of the unix socket of a private, empty server. Its superuser is `remuda`."""
    folder = Path(tempfile.mkdtemp(prefix="remuda-pg-"))  # short: a socket path may have 107 bytes
    user = _server_user()
    try:
        if user is not None:
            shutil.chown(folder, user)
        data = str(folder / "data")
        make = [_program("initdb"), "-D", data, "-U", "remuda", "--auth=trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        made = subprocess.run(make, user=user, cwd=folder, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr
        options = ("listen_addresses=", f"unix_socket_directories={folder}", "fsync=off", "max_connections=40")
        serve = [_program("postgres"), "-D", data, *(word for option in options for word in ("-c", option))]
        with (folder / "log").open("w") as log:
            server = subprocess.Popen(serve, user=user, cwd=folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            _wait_until_it_answers(folder, server)
            yield folder
        finally:
            server.send_signal(signal.SIGINT)  # SIGTERM would wait for clients that a failed test left
            server.wait(timeout=180)
    finally:
        shutil.rmtree(folder)


def _wait_until_it_answers(folder: Path, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 180
    while True:
        try:
            psycopg.connect(host=str(folder), user="remuda", dbname="postgres").close()
        except psycopg.OperationalError:
            assert server.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.05)
        else:
            return


@pytest.fixture
def postgres_url(postgres: Path) -> Iterator[str]:
    """URL of an empty database of its own."""
    name = f"test{next(_numbers)}"
    with psycopg.connect(host=str(postgres), user="remuda", dbname="postgres", autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}".encode())
        yield f"postgresql://remuda@/{name}?host={postgres}"
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Address of an empty database of each kind."""
    if request.param == "sqlite":
        return str(tmp_path / "state" / "remuda.db")
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def store(where: str) -> Iterator[Store]:
    """An open, empty store."""
    with open_store(where) as opened:
        yield opened


@pytest.fixture
def fence(store: Store) -> int:
    """Number of a lease on `store` that this process holds for an hour."""
    lease = leases.acquire(store, identify(os.getpid()), ttl_s=3600, now=time.time())
    assert isinstance(lease, leases.Lease)
    return lease.fence

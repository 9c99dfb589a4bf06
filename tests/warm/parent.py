"""A process that has loaded what hosts and commands need, and forks them: most tests want what they do.

    python -m tests.warm.parent SOCKET  # at the root of the repository

It ends with its standard input. Each connection sends one request: a line of JSON with the descriptors of the child.

- A host (`cwd`, `env`, descriptor of its log) belongs to nobody, as one whose first command has ended; the answer is
  its pid.
- Another program (`main` as `MODULE:FUNCTION`, `argv`, `cwd`, `env`, its standard input, output and error) is this
  process's child. The answers are its pid and, when it has ended, its exit code as `subprocess` has it.
"""

from __future__ import annotations

import atexit
import gc
import io
import json
import os
import select
import signal
import socket
import sys
import tempfile
import threading
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

from sqlalchemy import create_engine
from tests.warm.command import warm

from remuda.host.planner import Planner
from remuda.look.kinds import READERS
from remuda.store import migrate

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from sqlalchemy.engine import Connection

LIMIT = 1 << 20
HOST = "remuda.host.server:main"
MODULES = (
    "remuda.host.server", "remuda.backends.local.backend", "remuda.backends.slurm.backend", "remuda.serving.nginx",
    "remuda.serving.smg", "uvicorn.loops.auto", "uvicorn.protocols.http.auto",
    "uvicorn.protocols.http.h11_impl", "uvicorn.protocols.websockets.auto",
    "uvicorn.lifespan.off", "pydantic.v1", "encodings.idna", "remuda.store.migrate", "alembic.command",
    *READERS.values(),
)  # fmt: skip
UNWANTED = ("pyarrow", "numpy", "pandas", "ray")
"""They start threads, or are so large that only who needs them is to have them."""


class Parent:
    """Forks on demand.

    Args:
        path: where it listens.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._children: dict[int, tuple[int, socket.socket]] = {}
        """Descriptor that tells the end of a child -> its pid, and who waits for it."""

    def serve(self) -> None:
        """Fork for each request until the standard input ends."""
        self._listener.bind(str(self._path.with_suffix(".new")))
        self._listener.listen(64)
        self._path.with_suffix(".new").rename(self._path)
        while True:
            ready, _, _ = select.select([self._listener.fileno(), 0, *self._children], [], [])
            if 0 in ready and not os.read(0, 1):
                return
            for descriptor in self._children.keys() & set(ready):
                self._ended(descriptor)
            if self._listener.fileno() in ready:
                self._accept()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        data, descriptors, _, _ = socket.recv_fds(connection, LIMIT, 3)
        while not data.endswith(b"\n"):
            more = connection.recv(LIMIT)
            if not more:
                break
            data += more
        else:
            request = json.loads(data)
            if len(descriptors) == (3 if "main" in request else 1):
                self._answer(connection, request, descriptors)
            else:  # what is forked would write into our own output; whoever asked hears that we hang up
                sys.stderr.write(f"{len(descriptors)} descriptors have come with {request.get('argv')}\n")
                connection.close()
        for descriptor in descriptors:
            os.close(descriptor)

    def _answer(self, connection: socket.socket, request: dict[str, Any], descriptors: list[int]) -> None:
        if "main" not in request:
            with connection, suppress(OSError):  # whoever asked may have been killed
                connection.sendall(str(fork_host(request, descriptors[0])).encode())
            return
        pid = os.fork()
        if pid == 0:
            become(request, descriptors)
        with suppress(OSError):
            connection.sendall(f"{pid}\n".encode())
        self._children[os.pidfd_open(pid)] = (pid, connection)

    def _ended(self, descriptor: int) -> None:
        pid, connection = self._children.pop(descriptor)
        os.close(descriptor)
        _, status = os.waitpid(pid, 0)
        with connection, suppress(OSError):
            connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def fork_host(request: dict[str, Any], log: int) -> int:
    """The child of a child belongs to nobody; its pid."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        grandchild = os.fork()
        if grandchild:
            os.write(write, str(grandchild).encode())
            os._exit(0)
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        become({**request, "main": HOST, "argv": ["-m"]}, [nothing, log, log])
    os.waitpid(child, 0)
    pid = int(os.read(read, 20))
    os.close(read)
    os.close(write)
    return pid


def become(request: dict[str, Any], descriptors: list[int]) -> NoReturn:
    """What `Popen` and the interpreter would have done, then the program itself, then what the interpreter does."""
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
    os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)  # noqa: PTH208 - no objects for descriptors
    try:
        _open_streams()
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        sys.argv[:] = request["argv"]
        sys.path[0] = request["cwd"]
        if "socket" in request:
            warm(Path(request["socket"]))
        Planner.method = "fork"  # of what is loaded already
        module, name = request["main"].split(":")
        sys.exit(getattr(import_module(module), name)())
    except BaseException as error:  # noqa: BLE001 - whatever it is ends the process as it ends an interpreter
        _end(error)


def _open_streams() -> None:
    """Streams of one's own: buffers depend on what the descriptors are, and none of the parent's is written again."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, f"__{name}__")
        raw = io.FileIO(descriptor, "wb" if descriptor else "rb", closefd=False)
        bare = old.write_through  # PYTHONUNBUFFERED
        plain: Any = raw if bare and descriptor else io.BufferedWriter(raw) if descriptor else io.BufferedReader(raw)
        by_line = not bare and (descriptor == 2 or raw.isatty())
        new = io.TextIOWrapper(
            plain, encoding=old.encoding, errors=old.errors, line_buffering=by_line, write_through=bare
        )
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def _end(error: BaseException) -> NoReturn:
    code = 1
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
        if error.code is not None and not isinstance(error.code, int):
            sys.stderr.write(f"{error.code}\n")
    else:
        sys.excepthook(type(error), error, error.__traceback__)
    threading._shutdown()  # type: ignore[attr-defined]  # what an interpreter that ends waits for
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except OSError as lost:
        sys.stderr.write(f"Exception ignored in: {sys.stdout!r}\n{type(lost).__name__}: {lost}\n")
        code = 120
    with suppress(OSError):
        sys.stderr.flush()
    if isinstance(error, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code & 0xFF)


def remember_schema() -> None:
    """Let a new database have at once what all migrations come to: nearly every test has a new one."""
    with create_engine("sqlite://").connect() as connection:
        migrate._run(connection)
        made = [*cast("sqlite3.Connection", connection.connection.driver_connection).iterdump()][1:-1]

    def run(connection: Connection, migrations: Callable[[Connection], None] = migrate._run) -> None:
        if migrate.revision(connection) or connection.dialect.name != "sqlite":
            migrations(connection)
        else:
            for statement in made:
                connection.exec_driver_sql(statement)

    migrate._run = run


def load() -> None:
    """Everything that hosts and commands load; neither threads nor the largest libraries are among it."""
    from remuda.cli import COMMANDS

    commands = {target.partition(":")[0] for target, _ in COMMANDS.values()}
    for name in (*MODULES, *sorted(commands)):
        import_module(name)
    remember_schema()
    found = [name for name in UNWANTED if name in sys.modules]
    threads = len(list(Path("/proc/self/task").iterdir()))
    if found or threads > 1 or tempfile.tempdir is not None:
        raise SystemExit(f"what is forked would inherit {found}, {threads} threads, temporary {tempfile.tempdir}")


def main() -> None:
    """Load everything, then listen at the path that is named."""
    load()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.collect()
    gc.freeze()
    Parent(Path(sys.argv[1])).serve()


if __name__ == "__main__":
    main()

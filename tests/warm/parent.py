"""A process that has loaded what a host needs, and forks hosts: most tests want one that runs, not one that starts.

    python tests/warm/parent.py SOCKET

It ends with its standard input. Each connection sends one request: a line of JSON (`cwd`, `env`) with the descriptor of
the host's log, and is answered with the host's pid.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

LIMIT = 1 << 20
MODULES = (
    "remuda.host.server", "remuda.backends.local.backend", "remuda.backends.slurm.backend", "remuda.serving.nginx",
    "remuda.serving.smg", "uvicorn.loops.auto", "uvicorn.protocols.http.auto",
)  # fmt: skip


def serve(listener: socket.socket) -> None:
    """Fork a host for each request until the standard input ends."""
    while True:
        ready, _, _ = select.select([listener.fileno(), 0], [], [])
        if 0 in ready and not os.read(0, 1):
            return
        if listener.fileno() in ready:
            connection, _ = listener.accept()
            with connection:
                _answer(listener, connection)


def _answer(listener: socket.socket, connection: socket.socket) -> None:
    data, descriptors, _, _ = socket.recv_fds(connection, LIMIT, 1)
    while not data.endswith(b"\n"):
        more = connection.recv(LIMIT)
        if not more:
            return
        data += more
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        # The child of a child belongs to nobody, as a host does whose first command has ended.
        grandchild = os.fork()
        if grandchild:
            os.write(write, str(grandchild).encode())
            os._exit(0)
        listener.close()
        connection.close()
        os.close(read)
        os.close(write)
        _become(json.loads(data), descriptors[0])
    os.waitpid(child, 0)
    connection.sendall(os.read(read, 20))
    for descriptor in (read, write, *descriptors):
        os.close(descriptor)


def _become(request: dict[str, Any], log: int) -> NoReturn:
    """What `Popen` and the interpreter would have done, then the host itself."""
    code = 1
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(descriptor, target)
        os.close(nothing)
        os.close(log)
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        sys.argv[:] = ["-m"]
        sys.path[0] = request["cwd"]
        from remuda.host.server import main

        code = main()
    except BaseException:  # noqa: BLE001 - the traceback belongs in the log, as an interpreter would leave it
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Load everything, then listen at the path that is named."""
    for name in MODULES:
        import_module(name)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    path = Path(sys.argv[1])
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path.with_suffix(".new")))
        listener.listen(16)
        gc.collect()
        gc.freeze()
        path.with_suffix(".new").rename(path)
        serve(listener)


if __name__ == "__main__":
    main()

"""The side of the tests: the process that forks hosts and commands, and what it forked as `subprocess` has it."""

from __future__ import annotations

import atexit
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from tests.gate.closed import SCRATCH
from tests.warm.command import ask, is_same, surroundings

HERE = Path(__file__).parent


class Parent:
    """The process that forks for the tests of this worker; it begins with the first that is asked for."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._socket = Path()
        self._beginning = threading.Lock()

    @property
    def socket(self) -> Path:
        """Where it listens; what surrounded it when it began lies beside it."""
        with self._beginning:
            if self._process is None:
                self._begin()
        return self._socket

    def _begin(self) -> None:
        self._socket = Path(tempfile.mkdtemp(prefix="rw", dir=os.environ.get(SCRATCH, "/tmp"))) / "s"
        self._socket.with_suffix(".json").write_text(json.dumps(surroundings(os.environ)))
        command = [sys.executable, "-m", "tests.warm.parent", str(self._socket)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=HERE.parents[1])
        atexit.register(self.close, os.getpid())
        while not self._socket.exists():
            assert self._process.poll() is None, "the process that forks hosts and commands did not begin"
            time.sleep(0.02)

    def command(self) -> list[str]:
        """What runs `remuda` in an interpreter of its own so that it forks the host it needs."""
        return [sys.executable, str(HERE / "command.py"), str(self.socket)]

    def close(self, owner: int) -> None:
        """It ends with what it reads from."""
        if self._process is None or self._process.stdin is None or os.getpid() != owner:
            return
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
        shutil.rmtree(self._socket.parent, ignore_errors=True)


PARENT = Parent()


class Forked(subprocess.Popen[str]):
    """A program of the product that is forked where `Popen` would start an interpreter: the same in all else.

    Args:
        main: what the program calls, as `MODULE:FUNCTION`.
        argv: its arguments, the name first.
        given: as `Popen` has it.
    """

    def __init__(self, main: str, argv: list[str], *, is_command: bool = False, **given: Any) -> None:
        self._main = main
        self._parent = PARENT.socket
        self._is_command = is_command
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        super().__init__(argv, text=True, **given)

    def _execute_child(self, argv: list[str], *rest: Any) -> None:
        cwd, env = rest[4:6]
        pipes = rest[9:15]  # ours and theirs by turns for the input, theirs and ours for the output and for the error
        theirs = (pipes[0], pipes[3], pipes[5])
        request = {"main": self._main, "argv": argv, "cwd": str(cwd), "env": dict(env)}
        if self._is_command:
            request["socket"] = str(self._parent)
        try:
            self._connection.connect(str(self._parent))
            ask(self._connection, request, [number if one < 0 else one for number, one in enumerate(theirs)])
            self.pid = self._read()
            self._child_created = True
        finally:
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _read(self) -> int:
        line = b""
        while not line.endswith(b"\n"):
            piece = self._connection.recv(1)
            if not piece:
                raise ChildProcessError("the process that forks hosts and commands is gone")
            line += piece
        return int(line)

    def _has_ended(self, timeout_s: float) -> bool:
        poll = select.poll()  # tests open more descriptors than `select` can name
        poll.register(self._connection, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None and self._has_ended(0):
            self._wait(None)
        code: int | None = self.returncode
        return code

    def _wait(self, timeout: float | None) -> int:
        if self.returncode is None:
            if timeout is not None and not self._has_ended(timeout):
                raise subprocess.TimeoutExpired(self.args, timeout)
            self.returncode = self._read()
            self._connection.close()
        return self.returncode


def command(words: list[str], **given: Any) -> subprocess.Popen[str]:
    """A `remuda` command: forked, or in an interpreter of its own where a fork would not be the same."""
    if is_same(PARENT.socket, given["env"]):
        return Forked("remuda.cli:main", ["remuda", *words], is_command=True, **given)
    return subprocess.Popen([*PARENT.command(), *words], text=True, **given)


def program(module: str, words: list[str], **given: Any) -> subprocess.Popen[str]:
    """The `main` of a program of the tests, in the same way."""
    where = {"cwd": HERE.parents[1], **given}
    if is_same(PARENT.socket, given["env"]):
        return Forked(f"{module}:main", [module, *words], **where)
    return subprocess.Popen([sys.executable, "-m", module, *words], text=True, **where)

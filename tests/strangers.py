"""Another user of the same machine, who does for real what a test says.

Only root may become somebody else. Elsewhere the same deeds are done by ourselves, and the product is told that *we*
are somebody else: what it sees is the same, a directory or a peer whose user is not its own.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import tempfile
import time
import traceback
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

UID = 54_321
"""Nobody has it, so it has no name and no rights."""
MARK = "REMUDA_TEST_STRANGER"


class Stranger:
    """Another user, in the group of `common`.

    Args:
        gid: group that they are in.
        monkeypatch: of the test.
    """

    def __init__(self, gid: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gid = gid
        self.is_real = os.geteuid() == 0
        self.uid = UID if self.is_real else os.geteuid()
        self._monkeypatch = monkeypatch
        self._children: list[int] = []

    def see_as_foreign(self) -> None:
        """From now on what the stranger made is foreign to the product in this process."""
        if not self.is_real:
            self._monkeypatch.setattr(os, "geteuid", lambda: self.uid + 1)
            self._monkeypatch.setattr(os, "getuid", lambda: self.uid + 1)

    def does(self, deed: Callable[[], object]) -> bool:
        """Whether they could do it."""
        pid = self.begins(deed)
        _, status = os.waitpid(pid, 0)
        self._children.remove(pid)  # its number may be another's by the end of the test
        return os.waitstatus_to_exitcode(status) == 0

    def begins(self, deed: Callable[[], object]) -> int:
        """Let them go on with it; the pid."""
        pid = os.fork()
        if pid:
            self._children.append(pid)
            return pid
        try:
            if self.is_real:
                os.setgroups([])
                os.setgid(self.gid)
                os.setuid(self.uid)
            os.umask(0o002)
            deed()
        except PermissionError:
            os._exit(1)
        except BaseException:  # noqa: BLE001 - what a child of a test is left with must not go on as the test
            traceback.print_exc()
            os._exit(2)
        os._exit(0)

    def leaves(self) -> None:
        """End what they began."""
        for pid in self._children:
            try:
                os.kill(pid, 9)
                os.waitpid(pid, 0)
            except (ProcessLookupError, ChildProcessError):
                continue


@pytest.fixture
def common() -> Iterator[Path]:
    """A folder of a project: shared with a group, mode 2775, as `mkdir; chgrp; chmod g+ws` make it."""
    folder = Path(tempfile.mkdtemp(prefix="rp", dir="/tmp"))
    os.chown(folder, -1, UID if os.geteuid() == 0 else os.getegid())
    folder.chmod(0o2775)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def stranger(common: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stranger]:
    """Another user of this machine, in the project's group."""
    one = Stranger(common.stat().st_gid, monkeypatch)
    yield one
    one.leaves()


@pytest.fixture
def loose() -> Iterator[None]:
    """A umask that leaves everything open: what is private is so because of us."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> Mapping[str, str]:
    """What others than the owner may reach or change below a folder, by path."""
    found = {}
    # What a living host removes meanwhile is nobody's to reach.
    below = (Path(at) / name for at, folders, files in os.walk(folder) for name in (*folders, *files))
    for path in (folder, *below):
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            continue
        if not stat.S_ISLNK(mode) and mode & 0o077:
            found[str(path.relative_to(folder))] = f"{stat.S_IMODE(mode):04o}"
    return found


def dumps(found: Mapping[str, str]) -> str:
    """For a message."""
    return json.dumps(found, indent=1)


class Squatter:
    """A stranger who has a port before its owner comes.

    Args:
        stranger: who they are.
        folder: where they write down what they hear.
    """

    def __init__(self, stranger: Stranger, folder: Path) -> None:
        self.stranger = stranger
        self.port = 0
        self._backlog = 64
        self._folder = folder

    @property
    def heard(self) -> bytes:
        """All that was said to them so far."""
        return b"".join(path.read_bytes() for path in self._folder.glob("heard.*"))

    @property
    def served(self) -> int:
        """How many connections they are done with."""
        try:
            return int((self._folder / "served").read_text())
        except OSError:
            return 0

    def takes(
        self, port: int = 0, *, accepts: bool = True, lets_go: bool = False, answer: bytes = b"", backlog: int = 64
    ) -> int:
        """Listen at `port`, or at a free one; the pid. As a stranger from now on, where nobody can really be one.

        Args:
            port: 0 for any.
            accepts: whether connections are accepted; all get an answer.
            lets_go: whether the port is given up when one was, and taken again after its answer.
            answer: to each request.
            backlog: how many connections may wait.
        """
        self._backlog = backlog
        self._folder.chmod(0o2777)
        pid = self.stranger.begins(lambda: self._squat(port, accepts=accepts, lets_go=lets_go, answer=answer))
        self.port = int(self.until("port"))
        self.stranger.see_as_foreign()
        return pid

    def until(self, what: str) -> str:
        """What they wrote down, as soon as that is there."""
        end = time.monotonic() + 180
        while time.monotonic() < end:
            with suppress(OSError):
                if text := (self._folder / what).read_text():
                    return text
            time.sleep(0.002)
        raise AssertionError(f"the stranger did not say {what!r}")

    def _squat(self, port: int, *, accepts: bool, lets_go: bool, answer: bytes) -> None:
        listener = self._listen(port)
        self._write("port", str(listener.getsockname()[1]))
        for turn in count():
            if not accepts:
                time.sleep(1)
                continue
            line, _ = listener.accept()
            if lets_go:
                port = listener.getsockname()[1]
                listener.close()
                self._write("let go", "1")
            with line, suppress(OSError), (self._folder / f"heard.{turn}").open("wb", buffering=0) as heard:
                line.settimeout(120)
                heard.write(line.recv(65536))
                line.sendall(answer)
                line.settimeout(0.2)
                while data := line.recv(65536):
                    heard.write(data)
            self._write("served", str(turn + 1))
            if lets_go:
                listener = self._listen(port)

    def _listen(self, port: int) -> socket.socket:
        while True:
            listener = socket.socket()
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("127.0.0.1", port))
                listener.listen(self._backlog)
            except OSError:  # somebody has it now
                listener.close()
                time.sleep(0.001)
                continue
            return listener

    def _write(self, name: str, text: str) -> None:
        draft = self._folder / f".{name}"
        draft.write_text(text)
        draft.replace(self._folder / name)


@pytest.fixture
def squatter(common: Path, stranger: Stranger) -> Squatter:
    """Another user of this machine, who takes ports."""
    return Squatter(stranger, common)

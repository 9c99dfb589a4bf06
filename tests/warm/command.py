"""The `remuda` command, with a host that is forked where it would start one.

    python tests/warm/command.py SOCKET WORD...

What a fork cannot give (another user, network or mount, limits, a preloaded library) is started as it always is.
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LIMITS = (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE, resource.RLIMIT_AS)
#: What an interpreter and its libraries read when they start, which a forked one has behind it.
_AT_START = ("PYTHON", "LD_", "FAKETIME", "MALLOC", "LANG", "LC_", "TZ")


def surroundings(env: Mapping[str, str]) -> dict[str, Any]:
    """What a process has from the one that starts it, beside the environment and the working directory."""
    return {
        "namespaces": [str(Path(f"/proc/self/ns/{name}").readlink()) for name in ("net", "mnt", "user", "pid")],
        "user": [os.getresuid(), os.getresgid()],
        "umask": Path("/proc/self/status").read_text().split("Umask:")[1].split()[0],
        "limits": [resource.getrlimit(limit) for limit in _LIMITS],
        "start": sorted(f"{name}={value}" for name, value in env.items() if name.startswith(_AT_START)),
        "cgroup": Path("/proc/self/cgroup").read_text(),
    }


def is_same(path: Path, env: Mapping[str, str]) -> bool:
    """Whether what is forked by the one who listens there is as what this process would start."""
    began: dict[str, Any] = json.loads(path.with_suffix(".json").read_text())
    return bool(began == json.loads(json.dumps(surroundings(env))))


def ask(connection: socket.socket, request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """Send one request to the process that forks.

    It may have answered and hung up before we go on. So nothing is sent after the last byte: even nothing at all would
    be a broken pipe then.
    """
    data = json.dumps(request).encode() + b"\n"
    sent = socket.send_fds(connection, [data], descriptors)
    if sent < len(data):
        connection.sendall(data[sent:])


class Forked:
    """A host as `Detached` sees it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        """None while it lives."""
        try:
            state = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            return 1
        return 1 if state == "Z" else None


class Starter:
    """Stands where `remuda.base.disk.detached` finds `subprocess`.

    Args:
        path: socket of the process that forks; what surrounded it when it began lies beside it.
    """

    DEVNULL = subprocess.DEVNULL

    def __init__(self, path: Path) -> None:
        self._path = path

    def Popen(self, words: list[str], **given: Any) -> Forked | subprocess.Popen[bytes]:  # noqa: N802 - its name there
        """Fork a host, or start one where a fork would not be the same."""
        if words[1:] != ["-m", "remuda.host"] or not is_same(self._path, given["env"]):
            return subprocess.Popen(words, **given)
        return Forked(self._ask({"cwd": str(given["cwd"]), "env": given["env"]}, given["stdout"]))

    def _ask(self, request: dict[str, Any], log: IO[bytes]) -> int:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(str(self._path))
            ask(connection, request, [log.fileno()])
            return int(connection.recv(20))


def warm(path: Path) -> None:
    """Let this process fork its hosts."""
    from remuda.base.disk import detached

    setattr(detached, "subprocess", Starter(path))  # noqa: B010 - types know that it is a module


def main() -> int:
    """Be `python -m remuda`; returns its exit code."""
    warm(Path(sys.argv[1]))
    found = importlib.util.find_spec("remuda.__main__")
    sys.argv[:] = [str(found.origin if found else ""), *sys.argv[2:]]
    sys.path[0] = str(Path.cwd())
    from remuda.cli import main as remuda

    return remuda()


if __name__ == "__main__":
    sys.exit(main())

"""What the first node and the others of a replica that spans nodes have in common: words, processes, the line between.

The line is one TCP connection from each member to the first node. Both ends send JSON lines; an end that is silent for
`SILENCE_S`, or closes the line, is gone. So nothing on any node outlives the first one, whatever killed it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

from remuda.node.child.launch import container_program, node_name
from remuda.node.child.process import kill_descendants
from remuda.wire.child import CONTAINER_MARK, NODE_MARK

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

    from remuda.node.child.process import Cleanup

BEAT_S = 2.0
LATE_S = 2 * BEAT_S
MAX_BYTES = 1 << 20
"""Of one message: words and environment of what a node runs."""
READS = 4
"""In one turn: an end that never stops talking keeps nobody from all else."""
SILENCE_S = 60.0
MEETING = "spread.json"
"""In the run directory, readable for its owner only: where the first node listens, and the key that it asks for."""


class MemberLine:
    """One end of the connection between the first node and a member; never waits."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.socket = connection
        self.is_open = True
        self.heard_at = self._turned_at = time.monotonic()
        self.heard = 0
        """Bytes so far."""
        self._said_at = 0.0
        self._buffer = b""

    def say(self, what: Mapping[str, Any]) -> None:
        """Send one message; what cannot be sent at once means that the other end is gone."""
        try:
            self.socket.sendall(json.dumps(what).encode() + b"\n")
        except OSError:
            self.is_open = False
        self._said_at = time.monotonic()

    def beat(self, now: float) -> None:
        """Say that this end lives, if it is time, and notice when the other one does not."""
        if now - self._said_at >= BEAT_S:
            self.say({})
        if now - self._turned_at > LATE_S:  # this end itself stood still: that was nobody's silence
            self.heard_at = now
        self._turned_at = now
        if now - self.heard_at > SILENCE_S:
            self.is_open = False

    def hear(self) -> list[dict[str, Any]]:
        """Messages that have come. An end that says more than a message has is no end of ours: it is hung up on."""
        for _ in range(READS):
            if not self.is_open:
                break
            try:
                data = self.socket.recv(65536)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.is_open = False
                break
            self.heard_at = time.monotonic()
            self.heard += len(data)
            self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        if len(self._buffer) > MAX_BYTES:
            self.is_open, self._buffer = False, b""
        return [message for message in map(_read, lines) if message]

    def close(self) -> None:
        """Hang up."""
        self.is_open = False
        self.socket.close()


def _read(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def plain(words: list[str], marks: Mapping[str, str]) -> list[str]:
    """`words` with values in place of the marks."""
    done = []
    for word in words:
        for mark, value in marks.items():
            word = word.replace(mark, value)
        done.append(word)
    return done


def filled(words: list[str], marks: Mapping[str, str]) -> list[str]:
    """The same as they are started on this node.

    Raises:
        NotHere: they need a container's program, and there is none.
    """
    done = plain(words, {**marks, NODE_MARK: node_name(os.environ)})
    if done and done[0] == CONTAINER_MARK:
        done[0] = container_program(os.environ)
    return done


def start(
    argv: list[str],
    env: Mapping[str, str],
    cleanup: Cleanup,
    *,
    own_group: bool,
    pipe: bool = False,
    with_errors: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a process that ends with this one.

    Args:
        argv: what is started.
        env: added to this program's environment.
        cleanup: of `adopt_orphans`.
        own_group: it is not told of its end together with this program.
        pipe: its output is read by this program.
        with_errors: and its standard error with it.

    Raises:
        OSError: it cannot be started.
    """
    parent = os.getpid()

    def in_child() -> None:
        if own_group:
            os.setpgid(0, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        cleanup.bind(parent)

    return subprocess.Popen(
        argv,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if pipe else None,
        stderr=subprocess.STDOUT if with_errors else None,
        preexec_fn=in_child,  # noqa: PLW1509 - this program has one thread
    )


def end(processes: list[subprocess.Popen[bytes]], grace_s: float) -> None:
    """Ask processes to end, and kill them and all that descends from this program after `grace_s`."""
    living = [process for process in processes if process.poll() is None]
    for process in living:
        with contextlib.suppress(OSError):
            process.terminate()
    until = time.monotonic() + grace_s
    while any(process.poll() is None for process in living) and time.monotonic() < until:
        time.sleep(0.05)
    kill_descendants()
    for process in living:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)


def dismiss(process: subprocess.Popen[bytes]) -> None:
    """End one process for which nothing more is to do."""
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def code_of(process: subprocess.Popen[bytes]) -> int:
    """Exit code as a shell tells it: 128 and the signal that ended it."""
    code = process.returncode
    return 128 - code if code < 0 else code

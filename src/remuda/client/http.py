"""The host's API over its unix socket, with the standard library alone: every face is this client.

Light on purpose: it is on the path of every command.
"""

from __future__ import annotations

import http.client
import json
import os
import select
import socket
import struct
import sys
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from remuda import __version__
from remuda.base import errors
from remuda.base.asker import HEADER, me
from remuda.base.disk.paths import StatePaths, state_paths
from remuda.base.disk.private import user_name
from remuda.base.errors import Conflict, HostUnreachable, NotFound, NotPrivate, RemudaError, TimedOut
from remuda.base.text import brief
from remuda.base.waiting import until
from remuda.client.skew import skew
from remuda.wire.process import boot_id, identify, is_alive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from remuda.client.skew import Skew
    from remuda.store.peek import Peek

_LOOK_S = 2.0
"""How long a host that starts may take to answer one look; the next one follows."""
_ANSWER_S = 60.0
SILENT_S = 5.0
"""After so long a user is told that the host has not answered yet."""
_PIECE = 1 << 16
_PEER = struct.Struct("3i")
"""What the kernel says of who listens: pid, user, group."""


def refuse_peer(owner: int, me: int, path: str) -> None:
    """What a socket's path says is nothing: whoever listens gets to see, and to answer, what a user asks for. Pure.

    Args:
        owner: user who listens, as the kernel says.
        me: user who asks.
        path: of the socket.

    Raises:
        NotPrivate: they are not the same.
    """
    if owner != me:
        raise NotPrivate(
            f"{path} belongs to {user_name(owner)}, not to your host; refusing to send anything",
            hint="set REMUDA_HOME (and XDG_RUNTIME_DIR where that is long) to directories of your own",
        )


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float | None) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path
        self.pid = 0  # of who listens
        self.line: socket.socket  # also of an answer that ends with it

    def connect(self) -> None:
        self.sock = self.line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
        self.pid, uid, _ = _PEER.unpack(self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        refuse_peer(uid, os.geteuid(), self._path)


class HostClient:
    """Calls of one state directory's host. Errors of the host are raised here as what they are."""

    def __init__(self, paths: StatePaths | None = None, *, timeout_s: float = _ANSWER_S) -> None:
        self.paths = paths or state_paths()
        self.timeout_s = timeout_s
        self.host: dict[str, Any] = {}
        """What the host that answered last said of itself; empty before it was asked."""
        self.silence: HostUnreachable | None = None
        """Set by `is_up` where a host is there and does not answer."""

    def get(self, path: str, **query: object) -> Any:
        """GET below `/api/v1`."""
        return self.call("GET", path, query=query)

    def post(self, path: str, body: object = None, **query: object) -> Any:
        """POST below `/api/v1`."""
        return self.call("POST", path, body, query=query)

    def delete(self, path: str) -> Any:
        """DELETE below `/api/v1`."""
        return self.call("DELETE", path)

    def call(self, method: str, path: str, body: object = None, *, query: dict[str, object] | None = None) -> Any:
        """One request; the answer's JSON.

        Raises:
            HostUnreachable: no host answers on the socket.
            NotPrivate: somebody else answers there, or made the folder of it.
            RemudaError: what the host answered, as the class it has there.
        """
        self.paths.check_socket()
        connection = _UnixConnection(str(self.paths.socket), self.timeout_s)
        try:
            response = self._send(connection, method, path, body, query)
            raw = response.read()
        except TimeoutError as error:
            raise HostUnreachable(
                f"the host (pid {connection.pid}) has not answered for {self.timeout_s:g} s",
                hint=f"what runs keeps running; see {self.paths.host_log}, or replace it: kill -9 {connection.pid}",
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise HostUnreachable(
                f"the host does not answer on {self.paths.socket}: {error}", hint="start it: remuda host start"
            ) from error
        finally:
            connection.close()
        if response.status >= 400:
            raise self._refusal(raw, response.status, f"{method} {path}")
        return json.loads(raw) if raw else None

    def lines(self, path: str, quiet_s: Callable[[], float | None] = lambda: None, /, **query: object) -> Iterator[str]:
        """Stream a text answer line by line, for as long as the host sends.

        Args:
            path: below `/api/v1`.
            quiet_s: asked before each read: for how long the host may send nothing; None: for ever.
            query: what is asked.

        Raises:
            HostUnreachable: it went away before the end.
        """
        self.paths.check_socket()
        connection = _UnixConnection(str(self.paths.socket), quiet_s())
        try:
            response = self._send(connection, "GET", path, None, query)
            if response.status >= 400:
                raise self._refusal(response.read(), response.status, f"GET {path}")
            yield from _lines_of(response, lambda: connection.line.settimeout(quiet_s()))
        except (OSError, http.client.HTTPException) as error:
            raise HostUnreachable(f"the host went away while it sent: {error}") from error
        finally:
            connection.close()

    def _send(
        self, connection: _UnixConnection, method: str, path: str, body: object, query: object
    ) -> http.client.HTTPResponse:
        pairs = {k: v for k, v in query.items() if v is not None} if isinstance(query, dict) else {}
        target = "/api/v1" + quote(path) + (f"?{urlencode(pairs)}" if pairs else "")
        data = None if body is None else json.dumps(body).encode()
        headers: dict[str, Any] = {"Content-Type": "application/json"} if data is not None else {}
        if method != "GET":
            headers[HEADER] = me().encode()
        connection.request(method, target, data, headers)
        self._await(connection)
        return connection.getresponse()

    def _await(self, connection: _UnixConnection) -> None:
        """Return when the answer begins, or after the first part of the wait, with a word about the rest."""
        waits = select.poll()
        waits.register(connection.sock, select.POLLIN)
        if (connection.timeout or 0.0) > SILENT_S and not waits.poll(SILENT_S * 1000):
            host, limit = f"the host (pid {connection.pid})", f"waiting up to {self.timeout_s:g} s"
            _tell(f"{host} has not answered for {SILENT_S:g} s; {limit}. See {self.paths.host_log}")
            connection.sock.settimeout(self.timeout_s - SILENT_S)

    def is_up(self) -> bool:
        """Whether a host answers."""
        self.silence = None
        try:
            self.host = dict(self.get("/host"))
        except HostUnreachable as error:
            self.silence = error if isinstance(error.__cause__, TimeoutError) else None
            return False
        return True

    def skew(self) -> Skew | None:
        """What to say where the host that answered last has another version; None where it has this one."""
        return skew(__version__, str(self.host.get("version", "")))

    def is_alike(self) -> bool:
        """Whether the host that answered last plans as this command would: the same version and interpreter."""
        return (self.host.get("version"), self.host.get("python")) == (__version__, sys.executable)

    def _refusal(self, raw: bytes, status: int, what: str) -> RemudaError:
        """The error of an answer; where the host may not know what another version asks, that is said, too."""
        error = _error_of(raw, status, what)
        if status not in (404, 405, 422, 500) or what == "GET /host" or type(error) is errors.NotFound:
            return error
        if not self.host:
            with suppress(RemudaError):
                self.is_up()
        found = self.skew()
        if found is not None:
            error.hint = f"{error.hint}; {found}" if error.hint else str(found)
        return error

    def stop(self, timeout_s: float) -> int:
        """Let the host end, and wait until it has; how many tasks go on running.

        Raises:
            HostUnreachable: there is none.
            TimedOut: it has not ended.
        """
        process = identify(int(self.get("/host")["pid"]))
        left = int(self.post("/host/stop")["live_tasks"])
        # It stops answering before it has let go of its files and its lease.
        if not until(lambda: not self.is_up() and not is_alive(process), timeout_s):
            raise TimedOut(f"the host has not ended after {timeout_s:.0f} s", hint="see remuda host logs")
        return left


def _lines_of(response: http.client.HTTPResponse, before: Callable[[], object]) -> Iterator[str]:
    """Lines of an answer. `readline` takes an answer that was broken off for its end; `read1` does not."""
    rest = b""
    while before() or (data := response.read1(_PIECE)):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield line.decode(errors="replace")
    if rest:
        yield rest.decode(errors="replace")


def _error_of(raw: bytes, status: int, what: str) -> RemudaError:
    try:
        return errors.from_json(json.loads(raw)["error"])
    except (ValueError, KeyError, TypeError):
        if status in (404, 405):
            return Conflict(f"the host does not know what this command asks of it ({what})")
        return RemudaError(f"the host answered with status {status}: {raw[:300].decode(errors='replace')}")


def connect(*, start: bool = True, wait_s: float = 0.0) -> HostClient:
    """A client of a host that answers; it is started where there is none.

    Args:
        start: whether it is.
        wait_s: how long it may do nothing that can be seen while it starts; 0: a minute.

    Raises:
        HostUnreachable: none answers, and `start` is false or it did not come up; or one is there and is silent.
        TimedOut: it lives and does nothing.
    """
    client = HostClient(timeout_s=wait_s or _ANSWER_S)
    if client.is_up():
        if (found := client.skew()) is not None:
            _tell(str(found))
        return client
    if client.silence is not None:
        raise client.silence
    if not start:
        raise HostUnreachable("no host is running", hint="start it: remuda host start")
    start_host(client, wait_s)
    return client


def running() -> HostClient | None:
    """A client of the host that answers now; None where none does."""
    client = HostClient()
    return client if client.is_up() else None


def looking(*, starts: bool = False) -> HostClient:
    """A client for who only looks: as `connect`, but none is started where no workload is, or where one was stopped.

    Args:
        starts: what is asked takes a host, as soon as there is a workload.
    """
    client = _RecordedReader()
    seen = client.seen()
    if seen is None or (seen.workloads and (starts or seen.lease_node or seen.revision != seen.newest_revision)):
        return connect()
    return client


class _RecordedReader(HostClient):
    """Answers from what is recorded until there is a host: as that of a state directory without workloads, too."""

    def seen(self) -> Peek | None:
        """What is recorded; None where a host runs or has died, or ought to tell what is the matter with it."""
        if self.paths.socket.exists() or self.paths.host_file.exists():
            return None
        self.paths.check()
        self.paths.check_socket()
        from remuda.base.settings import database_url
        from remuda.store.peek import peek

        seen = peek(database_url(self.paths))
        # Where there is nothing but directories of workloads, the database was perhaps lost.
        is_lost = not seen.workloads and self.paths.workloads.is_dir() and any(self.paths.workloads.iterdir())
        # A boot ends a host as `host stop` does, and all that ran here, too.
        is_rebooted = seen.last[0] == os.uname().nodename and seen.last[1] not in ("", boot_id())
        is_over = is_rebooted and any(wanted for _, wanted in (seen.workloads or {}).values())
        return None if seen.problem or is_lost or is_over else seen

    def call(self, method: str, path: str, body: Any = None, *, query: dict[str, object] | None = None) -> Any:
        """One question; see `HostClient.call`."""
        seen = self.seen()
        if seen is None or (seen.workloads and method != "GET"):
            return super().call(method, path, body, query=query)
        if seen.workloads:
            from remuda.base.settings import database_url
            from remuda.store.engine import open_beside
            from remuda.views.queries import Remembered

            with open_beside(database_url(self.paths)) as store:
                return Remembered(self.paths, store).answer(path, query or {})
        if path in ("/workloads", "/host", "/campaigns"):
            return {} if path == "/host" else []
        name = body["names"][0] if body else path.split("/")[2]
        raise NotFound(f"nothing is called {brief(name)!r}", hint="`remuda status` lists what there is")

    def lines(self, path: str, quiet_s: Callable[[], float | None] = lambda: None, /, **query: object) -> Iterator[str]:
        """An answer line by line; see `HostClient.lines`. What changes is told by a host that comes."""
        if self.seen() is not None and path == "/stream":
            yield from ("event: snapshot", 'data: {"rows": {}}', "")
            until(self.paths.socket.exists)
        elif self.seen() is not None:
            self.call("GET", path)
        yield from super().lines(path, quiet_s, **query)


@cache
def _tell(text: str) -> None:
    """Say something about the host, once for each process. Without handlers of its own a program shows it as it is."""
    import logging

    logging.getLogger("remuda").warning("note: %s", text)


def start_host(client: HostClient, wait_s: float = 0.0) -> None:
    """Start the host in the background and wait until it answers, for as long as it gets on.

    Raises:
        HostUnreachable: it ended instead; the last lines of its log are in the message.
        TimedOut: it lives and does nothing.
    """
    from remuda.base.disk.detached import Detached
    from remuda.base.disk.locks import is_held
    from remuda.client.startup_wait import PATIENCE_S, Patience, to_stderr

    client.paths.prepare()
    if said := client.paths.told():
        _tell(said)
    host = Detached("remuda.host", client.paths.root, client.paths.host_log)
    patience = Patience(client.paths, host.pid, wait_s or PATIENCE_S, to_stderr)
    look = HostClient(client.paths, timeout_s=_LOOK_S)

    def is_up() -> bool:
        if look.is_up():
            return True
        # Another one that holds the lock was started at the same time, and will answer soon.
        if host.has_ended and not look.is_up() and not is_held(client.paths.host_lock):
            log = client.paths.host_log
            raise HostUnreachable(f"the host did not start: {host.last_words()}", hint=f"its log: {log}")
        patience.look()
        return False

    until(is_up)

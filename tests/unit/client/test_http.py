"""The client against a server on a real unix socket that says whatever a test wants."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from remuda import __version__
from remuda.base import errors
from remuda.base.disk.paths import StatePaths
from remuda.base.errors import HostUnreachable, InputError, NotFound, RemudaError
from remuda.client import http as module
from remuda.client import reconnect
from remuda.client.http import HostClient, connect
from remuda.client.skew import skew
from remuda.host.app import _answer_error
from remuda.wire.place import Place, marked

if TYPE_CHECKING:
    from collections.abc import Iterator


class Server:
    """Answers every connection with the same bytes."""

    def __init__(self, path: Path) -> None:
        self.answer = b""
        self.answers: list[bytes] = []
        """Said before `answer`, one by one."""
        self.facts = b""
        self.asked: list[bytes] = []
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def say(self, status: int, body: bytes) -> None:
        self.answer = self._bytes(status, body)

    def say_of_itself(self, version: str) -> None:
        """What it answers to `GET /host`, whatever it says to others."""
        self.facts = self._bytes(200, json.dumps({"version": version}).encode())

    @staticmethod
    def _bytes(status: int, body: bytes) -> bytes:
        head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        return head.encode() + body

    def _serve(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            with connection:
                request = _whole(connection)
                if request == b"":
                    return
                self.asked.append(request)
                is_about_itself = request.startswith(b"GET /api/v1/host ") and self.facts
                other = self.answers.pop(0) if self.answers and not is_about_itself else self.answer
                connection.sendall(self.facts if is_about_itself else other)

    def close(self, path: Path) -> None:
        with socket.socket(socket.AF_UNIX) as last:
            last.connect(str(path))
        self._thread.join(10)
        self._socket.close()


def _whole(connection: socket.socket) -> bytes:
    """One request with its body; empty when there is none."""
    request, length = b"", 0
    while not (found := request.find(b"\r\n\r\n") + 4) > 3 or len(request) < found + length:
        piece = connection.recv(65536)
        if not piece:
            break
        request += piece
        said = re.search(rb"(?i)content-length: (\d+)", request)
        length = int(said.group(1)) if said else 0
    return request


@pytest.fixture
def home() -> Iterator[StatePaths]:
    with tempfile.TemporaryDirectory(prefix="rc", dir="/tmp") as folder:
        yield StatePaths(Path(folder))


@pytest.fixture
def server(home: StatePaths) -> Iterator[Server]:
    one = Server(home.socket)
    yield one
    one.close(home.socket)


CLASSES = sorted(
    (kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, RemudaError)),
    key=lambda kind: kind.__name__,
)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: str(kind.__name__))
async def test_an_error_crosses_the_api_as_what_it_is(
    server: Server, home: StatePaths, kind: type[RemudaError]
) -> None:
    answer = await _answer_error(None, kind("no port 7", hint="choose another"))  # type: ignore[arg-type]
    server.say(answer.status_code, bytes(answer.body))
    with pytest.raises(RemudaError) as caught:
        HostClient(home).get("/workloads")
    assert type(caught.value) is kind
    assert (caught.value.message, caught.value.hint, caught.value.exit_code) == (
        "no port 7", "choose another", kind.exit_code,
    )  # fmt: skip


async def test_where_an_input_was_wrong_crosses_too(server: Server, home: StatePaths) -> None:
    answer = await _answer_error(None, InputError("is no number", where="swarm.yaml:3:1"))  # type: ignore[arg-type]
    server.say(answer.status_code, bytes(answer.body))
    with pytest.raises(InputError, match=r"^swarm.yaml:3:1: is no number$"):
        HostClient(home).post("/workloads", {})


@pytest.mark.parametrize(
    "body",
    [
        b"", b"<html>", b"[]", b"{}", b'{"error": 7}', b'{"error": {"type": "X"}}',
        b'{"error": {"type": "annotations", "message": "m", "hint": ""}}',
        b'{"error": {"type": "ClassVar", "message": "m"}}',
    ],
)  # fmt: skip
def test_an_answer_of_a_stranger_is_still_one_of_our_errors(server: Server, home: StatePaths, body: bytes) -> None:
    server.say(500, body)
    with pytest.raises(RemudaError) as caught:
        HostClient(home).get("/x")
    assert type(caught.value) is RemudaError


def test_requests_are_written_as_they_should_be(server: Server, home: StatePaths) -> None:
    server.say(200, b'{"a": 1}')
    client = HostClient(home)
    assert client.get("/workloads/a b", kind="swarm", after=None, limit=3) == {"a": 1}
    assert client.post("/x", {"k": "v"}) == {"a": 1}
    server.say(204, b"")
    assert client.delete("/x") is None
    first, second, third = server.asked
    assert first.startswith(b"GET /api/v1/workloads/a%20b?kind=swarm&limit=3 HTTP/1.1\r\n")
    assert second.startswith(b"POST /api/v1/x HTTP/1.1\r\n")
    assert json.loads(second.partition(b"\r\n\r\n")[2]) == {"k": "v"}
    assert third.startswith(b"DELETE /api/v1/x HTTP/1.1\r\n")


def test_lines_come_one_by_one_and_errors_instead_of_them(server: Server, home: StatePaths) -> None:
    server.say(200, b"one\ntwo \xff\nlast")
    assert list(HostClient(home).lines("/logs", tail=0)) == ["one", "two \ufffd", "last"]
    server.say(404, b'{"error": {"type": "NotFound", "message": "no task", "hint": "h"}}')
    with pytest.raises(NotFound, match="no task"):
        list(HostClient(home).lines("/logs"))


def _chunks(*texts: bytes, whole: bool) -> bytes:
    pieces = b"".join(b"%x\r\n%s\r\n" % (len(text), text) for text in texts)
    return b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n" + pieces + (b"0\r\n\r\n" if whole else b"")


def test_a_stream_that_is_broken_off_has_not_ended(server: Server, home: StatePaths) -> None:
    server.answer = _chunks(b"one\ntw", b"o\nhal", whole=False)
    seen: list[str] = []
    with pytest.raises(HostUnreachable, match="went away"):
        seen.extend(HostClient(home).lines("/logs"))
    server.answer = _chunks(b"one\ntw", b"o\n", whole=True)
    assert list(HostClient(home).lines("/logs")) == ["one", "two"]


def test_who_follows_goes_on_at_the_next_host(server: Server, home: StatePaths) -> None:
    """Each line once: those behind the last mark are sent again, and not shown again."""
    first = marked(b"one\n", Place(7, 4, 1)) + b"two\n\x1e\x1ethr"
    rest = marked(b"two\n\x1ethree\nfour\n", Place(7, 99, 1))
    server.answers = [_chunks(first, whole=False), _chunks(rest, whole=True)]
    server.say_of_itself("1")
    assert list(reconnect.follow(HostClient(home), "/logs", tail=5)) == ["one", "two", "\x1ethree", "four"]
    asked = [line.split(b" ")[1] for line in server.asked if b"/logs" in line]
    assert asked[0] == b"/api/v1/logs?follow=true&marks=true&tail=5"
    assert asked[1] == b"/api/v1/logs?follow=true&marks=true&after=1%3A7%3A4%3A0&tail=5"


def test_who_follows_gives_a_host_up_that_breaks_off_every_answer(
    server: Server, home: StatePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconnect, "AWAY_S", 0.3)
    server.say_of_itself("1")
    server.answer = _chunks(b"one\n", whole=False)
    seen: list[str] = []
    with pytest.raises(HostUnreachable, match="has broken off every answer for") as caught:
        seen.extend(reconnect.follow(HostClient(home), "/logs"))
    assert seen == ["one"]
    assert str(home.host_log) in caught.value.hint
    with pytest.raises(HostUnreachable, match="has broken off every answer for"):
        reconnect.get(HostClient(home), "/x")


def test_who_waits_for_a_host_that_was_stopped_is_told_when_none_comes(
    home: StatePaths, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconnect, "start_host", lambda _: pytest.fail("somebody stopped it"))
    with pytest.raises(HostUnreachable, match=r"the host went away, and none has come for .*: gone") as caught:
        reconnect.wait_for_next(HostClient(home), HostUnreachable("gone"), limit_s=0.1)
    assert caught.value.exit_code == 5
    assert capsys.readouterr().err == "note: the host went away; waiting for the next\n"


def test_a_host_that_died_is_started_by_who_waits(home: StatePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    died = subprocess.Popen(["true"])
    died.wait()
    home.host_file.write_text(json.dumps({"pid": died.pid}))
    started: list[HostClient] = []
    monkeypatch.setattr(reconnect, "start_host", started.append)
    monkeypatch.setattr(HostClient, "is_up", lambda _: bool(started))
    reconnect.wait_for_next(HostClient(home), HostUnreachable("gone"), limit_s=10)
    assert len(started) == 1


def test_half_an_answer_is_no_answer(server: Server, home: StatePaths) -> None:
    server.answer = b"HTTP/1.1 200 X\r\nContent-Length: 50\r\n\r\n{"
    with pytest.raises(HostUnreachable, match="does not answer"):
        HostClient(home).get("/x")
    server.answer = b"SSH-2.0-hello\r\n"
    with pytest.raises(HostUnreachable):
        HostClient(home).get("/x")


def test_nobody_there(home: StatePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    client = HostClient(home)
    assert client.is_up() is False
    with pytest.raises(HostUnreachable) as caught:
        client.get("/host")
    assert caught.value.hint == "start it: remuda host start"
    with pytest.raises(HostUnreachable):
        list(client.lines("/x"))
    monkeypatch.setenv("REMUDA_HOME", str(home.root))
    with pytest.raises(HostUnreachable, match="no host is running"):
        connect(start=False)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b'{"detail": "Not Found"}'),
        (405, b'{"detail": "Method Not Allowed"}'),
        (
            422,
            b'{"error": {"type": "InputError", "message": "workload.new: Extra inputs are not permitted", "hint": ""}}',
        ),
    ],
)
def test_what_an_older_host_does_not_know_is_told_with_the_versions(
    server: Server, home: StatePaths, monkeypatch: pytest.MonkeyPatch, status: int, body: bytes
) -> None:
    monkeypatch.setattr(module, "__version__", "2.0.1")
    server.say_of_itself("2.0.0")
    server.say(status, body)
    with pytest.raises(RemudaError) as caught:
        HostClient(home).post("/workloads/batch/ending", {})
    assert "the host still runs remuda 2.0.0, which is older than this command (2.0.1)" in caught.value.hint
    assert "`remuda host stop`, then the command again" in caught.value.hint
    assert caught.value.exit_code in (2, 4)


def test_a_host_of_the_same_version_is_not_blamed(server: Server, home: StatePaths) -> None:
    server.say_of_itself(__version__)
    server.say(404, b'{"detail": "Not Found"}')
    with pytest.raises(RemudaError, match=r"does not know what this command asks of it \(GET /x\)") as caught:
        HostClient(home).get("/x")
    assert caught.value.hint == ""


@pytest.mark.parametrize(
    ("mine", "hosts", "said"),
    [
        ("1.0.0", "1.0.0", ""),
        ("1.0.0", "", ""),
        ("1.9.0", "1.10.0", "is remuda 1.10.0, which is newer than this command (1.9.0)"),
        ("1.10.0", "1.9.0", "still runs remuda 1.9.0, which is older than this command (1.10.0)"),
        ("1.0.0", "1.0.0.dev3", "1.0.0.dev3"),
    ],
)
def test_which_is_older(mine: str, hosts: str, said: str) -> None:
    found = skew(mine, hosts)
    assert (said in str(found)) if said else found is None


def test_every_command_says_once_that_the_host_is_another_version(
    server: Server, home: StatePaths, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("REMUDA_HOME", str(home.root))
    server.say_of_itself("999.0.0")
    for _ in range(2):
        connect(start=False)
    (line,) = [record.getMessage() for record in caplog.records if record.name == "remuda"]
    assert "the host is remuda 999.0.0, which is newer than this command" in line
    assert "pip install 'remuda==999.0.0'" in line
    assert len(server.asked) == 2, "no question more than without"


def test_a_host_that_is_silent_is_told_of_long_before_it_is_given_up(
    home: StatePaths, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SILENT_S", 0.2)
    monkeypatch.setenv("REMUDA_HOME", str(home.root))
    monkeypatch.setattr(module, "start_host", lambda *_: pytest.fail("there is one"))
    with socket.socket(socket.AF_UNIX) as frozen:
        frozen.bind(str(home.socket))
        frozen.listen()
        with pytest.raises(HostUnreachable) as caught:
            connect(wait_s=0.6)
    host = f"the host (pid {os.getpid()})"
    (said,) = [record.getMessage() for record in caplog.records if record.name == "remuda"]
    assert said == f"note: {host} has not answered for 0.2 s; waiting up to 0.6 s. See {home.host_log}"
    assert caught.value.message == f"{host} has not answered for 0.6 s"
    assert f"kill -9 {os.getpid()}" in caught.value.hint


def test_a_host_that_answers_late_is_no_failure(
    server: Server, home: StatePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SILENT_S", 0.0)
    server.say(200, b'{"a": 1}')
    assert HostClient(home).get("/x") == {"a": 1}


def test_a_change_says_who_wants_it_and_a_question_does_not(
    server: Server, home: StatePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "me", lambda: "jos\u00e9@login1")
    server.say(200, b"{}")
    client = HostClient(home)
    client.get("/host")
    client.post("/workloads/w/down")
    client.delete("/workloads/w")
    told = [re.findall(rb"^X-Remuda-By: (.*)\r$", head, re.MULTILINE) for head in server.asked]
    assert told == [[], *[["jos\u00e9@login1".encode()]] * 2]

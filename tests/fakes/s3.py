"""An S3 server on loopback that keeps objects in memory, logs each request, and fails where it is told to.

What obstore uses of S3 and no more: conditional PUT, GET with ranges, HEAD, LIST v2 in pages, DELETE one by one and in
bulk, multipart uploads. Signatures are not checked. The path's first part is the bucket; all buckets are there.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import socketserver
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from enum import Enum
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

if TYPE_CHECKING:
    from collections.abc import Callable

_WHO: Final = re.compile(r"Credential=([^/]+)/")
_RANGE: Final = re.compile(r"bytes=(\d+)-(\d*)")


class Fault(Enum):
    """What happens to a request instead of an answer."""

    KILL_BEFORE = "its sender is killed, and it does nothing"
    KILL_AFTER = "it is done, then its sender is killed"
    LOSE = "it is done, and the answer is lost"
    CONFLICT = "409"
    SLOW_DOWN = "503"
    REFUSE = "403"


_REFUSALS: Final = {
    Fault.CONFLICT: (409, "ConditionalRequestConflict", "Another writer is at work on this object."),
    Fault.SLOW_DOWN: (503, "SlowDown", "Please reduce your request rate."),
    Fault.REFUSE: (403, "ExpiredToken", "The provided token has expired."),
}


@dataclass(frozen=True)
class Request:
    """One request. `key` is without the bucket; `who` is the access key, which ends with the pid: `pid-123`."""

    verb: str
    bucket: str
    key: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytearray
    who: str

    @property
    def pid(self) -> int:
        """Of the sender."""
        return int(self.who.rpartition("-")[2])


@dataclass(frozen=True)
class Answer:
    """What is sent back. A HEAD has the length of what it did not send in its headers."""

    status: int
    body: bytes | memoryview = b""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Logged:
    """What the server notes of a request; bytes are those of the bodies."""

    at: float
    verb: str
    key: str
    status: int
    bytes_up: int
    bytes_down: int
    who: str


@dataclass
class Stored:
    """An object."""

    data: bytearray
    etag: str
    at: float


class S3Server:
    """The server; a context manager.

    Attributes:
        objects: by `bucket/key`; whoever holds `lock` may change their bytes.
        log: all requests since the start.
        plan: says before a request what goes wrong with it.
        took: hears of a request that took effect, before it is answered.
        page: keys of a page of a listing.
        lag_s: age from which an object is in listings.
    """

    def __init__(self) -> None:
        self.objects: dict[str, Stored] = {}
        self.log: list[Logged] = []
        self.plan: Callable[[Request], Fault | None] = lambda _: None
        self.took: Callable[[Request], None] = lambda _: None
        self.page, self.lag_s = 1000, 0.0
        self.lock = threading.RLock()
        self.lines: set[socket.socket] = set()
        self._uploads: dict[str, dict[int, bytearray]] = {}
        self._tags = 0
        self._server = _Listener(("127.0.0.1", 0), _Line)
        self._server.s3 = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def env(self) -> dict[str, str]:
        """What a client of obstore finds it by; the sender's pid has to be put behind the access key."""
        return {
            "AWS_ENDPOINT_URL": self.url, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "pid-0", "AWS_SECRET_ACCESS_KEY": "test",
        }  # fmt: skip

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        for line in list(self.lines):
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def answer(self, request: Request) -> Answer | None:
        """Do what was asked for; None: hang up."""
        with self.lock:
            fault = self.plan(request)
            if fault in _REFUSALS:
                answer = _refusal(*_REFUSALS[fault])
            elif fault is Fault.KILL_BEFORE:
                _kill(request.pid)
                return None
            else:
                answer = self._act(request)
                if answer.status < 300:
                    self.took(request)
            said = len(answer.body) if request.verb != "HEAD" else 0
            self.log.append(
                Logged(time.time(), request.verb, request.key, answer.status, len(request.body), said, request.who)
            )
            if fault is Fault.KILL_AFTER:
                _kill(request.pid)
        return None if fault in (Fault.KILL_AFTER, Fault.LOSE) else answer

    def _act(self, request: Request) -> Answer:
        query = request.query
        match request.verb:
            case "GET" if not request.key:
                return self._list(request)
            case "GET" | "HEAD":
                return self._get(request)
            case "PUT" if "x-amz-copy-source" in request.headers:
                source = self.objects[unquote(request.headers["x-amz-copy-source"]).lstrip("/")]
                self._uploads[query["uploadId"]][int(query["partNumber"])] = source.data
                return _xml("CopyPartResult", "<ETag>1</ETag>")
            case "PUT" if "partNumber" in query:
                self._uploads[query["uploadId"]][int(query["partNumber"])] = request.body
                return Answer(200, headers={"ETag": f'"{query["partNumber"]}"'})
            case "PUT":
                return self._put(request, request.body)
            case "POST":
                return self._post(request)
            case "DELETE" if "uploadId" in query:
                self._uploads.pop(query["uploadId"], None)
                return Answer(204)
            case "DELETE":
                self.objects.pop(_path(request), None)
                return Answer(204)
        return _refusal(405, "MethodNotAllowed", request.verb)

    def _post(self, request: Request) -> Answer:
        if "delete" in request.query:
            keys = [unescape(key) for key in re.findall(r"<Key>(.*?)</Key>", request.body.decode())]
            for key in keys:
                self.objects.pop(f"{request.bucket}/{key}", None)
            return _xml("DeleteResult", "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys))
        if "uploads" in request.query:
            self._tags += 1
            self._uploads[f"upload-{self._tags}"] = {}
            return _xml("InitiateMultipartUploadResult", f"<UploadId>upload-{self._tags}</UploadId>")
        parts = self._uploads.get(request.query["uploadId"], {})
        done = self._put(request, bytearray().join(parts[number] for number in sorted(parts)))
        if done.status != 200:
            return done
        del self._uploads[request.query["uploadId"]]
        return _xml("CompleteMultipartUploadResult", f"<ETag>{escape(done.headers['ETag'])}</ETag>")

    def _put(self, request: Request, data: bytearray) -> Answer:
        path, headers = _path(request), request.headers
        there = self.objects.get(path)
        if headers.get("if-none-match") == "*" and there is not None:
            return _refusal(412, "PreconditionFailed", "It is there.")
        if "if-match" in headers and (there is None or headers["if-match"] != there.etag):
            return _refusal(412, "PreconditionFailed", "It is another.")
        self._tags += 1
        self.objects[path] = Stored(data, f'"{self._tags}"', time.time())
        return Answer(200, headers={"ETag": f'"{self._tags}"'})

    def _get(self, request: Request) -> Answer:
        stored = self.objects.get(_path(request))
        if stored is None:
            return _refusal(404, "NoSuchKey", request.key)
        size = len(stored.data)
        headers = {"ETag": stored.etag, "Last-Modified": formatdate(stored.at, usegmt=True)}
        if request.verb == "HEAD":
            return Answer(200, headers={**headers, "Content-Length": str(size)})
        asked = _RANGE.fullmatch(request.headers.get("range", ""))
        if asked is None:
            return Answer(200, memoryview(bytes(stored.data)), headers)
        first, last = int(asked[1]), min(int(asked[2] or size - 1), size - 1)
        if first >= size:
            return _refusal(416, "InvalidRange", f"{size} bytes")
        headers["Content-Range"] = f"bytes {first}-{last}/{size}"
        return Answer(206, bytes(memoryview(stored.data)[first : last + 1]), headers)

    def _list(self, request: Request) -> Answer:
        prefix, after = request.query.get("prefix", ""), request.query.get("continuation-token", "")
        start, old = f"{request.bucket}/{prefix}", time.time() - self.lag_s
        names = {
            path.partition("/")[2]: one
            for path, one in self.objects.items()
            if path.startswith(start) and one.at <= old
        }
        keys = sorted(key for key in names if key > after)
        page, rest = keys[: self.page], keys[self.page :]
        text = "".join(_contents(key, names[key]) for key in page)
        if rest:
            text += f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>"
        return _xml("ListBucketResult", f"<IsTruncated>{str(bool(rest)).lower()}</IsTruncated>{text}")


def _path(request: Request) -> str:
    return f"{request.bucket}/{request.key}"


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _contents(key: str, one: Stored) -> str:
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(one.at)) + f".{int(one.at * 1000) % 1000:03}Z"
    return (
        f"<Contents><Key>{escape(key)}</Key><LastModified>{at}</LastModified>"
        f"<ETag>{escape(one.etag)}</ETag><Size>{len(one.data)}</Size></Contents>"
    )


def _xml(root: str, text: str) -> Answer:
    body = f'<?xml version="1.0" encoding="UTF-8"?><{root}>{text}</{root}>'.encode()
    return Answer(200, body, {"Content-Type": "application/xml"})


def _refusal(status: int, code: str, message: str) -> Answer:
    body = f"<Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>".encode()
    return Answer(status, body, {"Content-Type": "application/xml"})


class _Listener(socketserver.ThreadingTCPServer):
    daemon_threads, block_on_close, allow_reuse_address, request_queue_size = True, False, True, 128
    s3: S3Server

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that are killed hang up in the middle: nothing is said about it."""


class _Line(socketserver.StreamRequestHandler):
    """One connection."""

    disable_nagle_algorithm = True
    server: _Listener

    def handle(self) -> None:
        lines = self.server.s3.lines
        lines.add(self.connection)
        try:
            while (request := self._read()) is not None:
                answer = self.server.s3.answer(request)
                if answer is None:
                    return
                self._write(answer, request.verb)
        finally:
            lines.discard(self.connection)

    def _read(self) -> Request | None:
        first = self.rfile.readline(1 << 16)
        if not first:
            return None
        verb, target, _ = first.decode("latin-1").split(" ", 2)
        headers: dict[str, str] = {}
        while (line := self.rfile.readline(1 << 16).strip()) != b"":
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        body = bytearray(int(headers.get("content-length", "0")))
        view, got = memoryview(body), 0
        while got < len(body):
            count = self.rfile.readinto(view[got:])
            if not count:
                return None
            got += count
        parts = urlsplit(target)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        found = _WHO.search(headers.get("authorization", ""))
        return Request(verb, bucket, key, query, headers, body, found[1] if found else "")

    def _write(self, answer: Answer, verb: str) -> None:
        headers = dict(answer.headers)
        if verb != "HEAD":
            headers["Content-Length"] = str(len(answer.body))
        phrase = HTTPStatus(answer.status).phrase
        head = f"HTTP/1.1 {answer.status} {phrase}\r\n" + "".join(f"{k}: {v}\r\n" for k, v in headers.items())
        self.connection.sendall(f"{head}\r\n".encode())
        if verb != "HEAD" and answer.body:
            self.connection.sendall(answer.body)

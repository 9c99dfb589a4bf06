"""The server's sockets: TLS, who is asking, answers in lines as they come, and troubles on the way."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from remuda.testing.kube.api import Answer, Api, ApiRequest, target
from remuda.testing.kube.served import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

What: TypeAlias = Literal["401", "403", "429", "500", "500-after", "hang", "reset"]
USER: Final = "remuda"


@dataclass
class Trouble:
    """What happens to requests instead of their answer.

    Args:
        what: a status of HTTP; `500-after`: it acted, and its answer is lost; `hang`: none; `reset`: no connection.
        method: of which requests; empty: of all.
        part: what their path and query contain.
        times: how many of them.
        retry_after_s: what a 429 says.
    """

    what: What
    method: str = ""
    part: str = ""
    times: int = 1
    retry_after_s: int = 1


@dataclass
class Troubles:
    """Troubles that wait for their requests, and what was asked."""

    waiting: list[Trouble] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)
    """Method and path with query of all requests."""
    ended: threading.Event = field(default_factory=threading.Event)
    """Lets all requests go that hang."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def met(self, method: str, path: str) -> Trouble | None:
        """What a request meets; counted."""
        with self._lock:
            self.asked.append((method, path))
            for one in self.waiting:
                if one.times > 0 and one.method in ("", method) and one.part in path:
                    one.times -= 1
                    return one
        return None


def refusal(trouble: Trouble, asked: ApiRequest) -> Refusal:
    """The error that a trouble is."""
    if trouble.what == "401":
        return Refusal(401, "Unauthorized", "Unauthorized")
    if trouble.what == "429":
        says = "the server has received too many requests and has asked us to try again later"
        return Refusal(429, "TooManyRequests", says, retry_after_s=trouble.retry_after_s)
    if trouble.what == "403":
        to = target(asked.path)
        verb = {"GET": "get" if to.name else "list", "POST": "create", "PUT": "update"}.get(
            asked.method, asked.method.lower()
        )
        says = f'User "{USER}" cannot {verb} resource "{to.kind.plural}" in API group "{to.kind.group}"'
        where = f' in the namespace "{to.namespace}"' if to.namespace else " at the cluster scope"
        name = f' "{to.name}"' if to.name else ""
        details = {"name": to.name, "group": to.kind.group, "kind": to.kind.plural}
        return Refusal(403, "Forbidden", f"{to.kind.full}{name} is forbidden: {says}{where}", details)
    return Refusal(500, "InternalError", "Internal error occurred: etcdserver: request timed out")


class KubeServer(ThreadingHTTPServer):
    """Listens on loopback.

    Args:
        api: what answers.
        troubles: what happens instead.
        folder: where `server.crt` and `server.key` lie; a client's certificate is one that they signed.
        token: what other clients say.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, api: Api, troubles: Troubles, folder: Path, token: str) -> None:
        super().__init__(("127.0.0.1", 0), Conversation)
        self.api, self.troubles, self.token = api, troubles, token
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(folder / "server.crt", folder / "server.key")
        self.context.load_verify_locations(folder / "server.crt")
        self.context.verify_mode = ssl.CERT_OPTIONAL

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Speak TLS in the thread of the connection: a client that says nothing holds nobody up."""
        with suppress(OSError, ssl.SSLError), self.context.wrap_socket(request, server_side=True) as secured:
            super().finish_request(secured, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error of ours."""


class Conversation(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: KubeServer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base
        """Say nothing: `Troubles.asked` has all requests."""

    def answer(self) -> None:
        """Answer one request."""
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        content = (self.headers.get("Content-Type") or "application/json").split(";")[0]
        asked = ApiRequest(self.command, url.path, dict(parse_qsl(url.query, keep_blank_values=True)), body, content)
        trouble = self.server.troubles.met(self.command, self.path)
        try:
            if trouble is not None and self._is_cut(trouble):
                return
            answer = self._answered(asked, trouble)
        except Refusal as error:
            self._send(Answer(error.code, error.status()), error.retry_after_s)
            return
        if answer.lines is None:
            self._send(answer)
        else:
            self._stream(answer.lines, answer.content)

    def _answered(self, asked: ApiRequest, trouble: Trouble | None) -> Answer:
        if not self._is_known() and asked.path != "/version":
            raise Refusal(401, "Unauthorized", "Unauthorized")
        if trouble is not None and trouble.what != "500-after":
            raise refusal(trouble, asked)
        answer = self.server.api.answer(asked)
        if trouble is not None:
            raise refusal(trouble, asked)
        return answer

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815

    def _is_known(self) -> bool:
        assert isinstance(self.connection, ssl.SSLSocket)
        return bool(self.connection.getpeercert()) or self.headers.get("Authorization") == f"Bearer {self.server.token}"

    def _is_cut(self, trouble: Trouble) -> bool:
        if trouble.what not in ("hang", "reset"):
            return False
        self.close_connection = True
        if trouble.what == "hang":
            self.server.troubles.ended.wait()
            return True
        raw = socket.socket(fileno=self.connection.detach())
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raw.close()
        return True

    def _send(self, answer: Answer, retry_after_s: int | None = None) -> None:
        body = json.dumps(answer.doc).encode()
        self.send_response(answer.code)
        self.send_header("Content-Type", answer.content)
        self.send_header("Content-Length", str(len(body)))
        if retry_after_s is not None:
            self.send_header("Retry-After", str(retry_after_s))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, lines: Iterator[bytes], content: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", content)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for line in lines:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.write(b"0\r\n\r\n")

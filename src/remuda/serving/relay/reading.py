"""Takes requests and answers apart as their bytes come, with llhttp (`httptools`).

It decides where a message ends, and what is none. Nothing passes a relay as it came: heads, chunks and trailers are
written anew, so that the next reader cannot take them in another way.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import httptools

from remuda.serving.relay.http_framing import (
    HEAD_LIMIT,
    QUIET_LIMIT,
    VERSIONS,
    Ends,
    Framing,
    Header,
    Malformed,
    RequestHead,
    ResponseHead,
    chunk,
    last_chunk,
    make_answer,
    make_request,
    request_head,
)

FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})
STEP: Final = 4 << 10
"""Bytes that are read at once where another request may follow: little is read that nobody answers."""

_LINE_END: Final = len(b" HTTP/1.1\r\n")


class BodyEnd:
    """Of a request that has a body."""


END: Final = BodyEnd()
Event = RequestHead | bytes | BodyEnd | Malformed
"""What a connection says: a head, a piece of a body as it is passed on, its end; last of all that it is no HTTP."""


class _ChunkReader:
    """Heads, chunks and trailers; and how much came that was none of the content."""

    def __init__(self) -> None:
        self.in_head = False
        """Some of a head is there, but not all of it."""
        self._headers: list[Header] = []
        self._size = 0
        """Of the head or the trailer under way, in bytes."""
        self._quiet = 0
        """Bytes read since something was whole, or some of a body came."""
        self._heard = False
        self._starts = 0
        """How many messages began in what was read last."""
        self._trailer: list[Header] | None = None
        """Of a chunked body under way; None otherwise."""

    def _refuse(self, why: Malformed) -> None:
        raise NotImplementedError

    def _begin(self) -> None:
        self._headers, self._size, self._quiet, self.in_head, self._heard = [], 0, 0, True, True
        self._starts += 1

    def _end_head(self) -> None:
        self.in_head, self._heard, self._quiet = False, True, 0
        if self._size > HEAD_LIMIT:
            raise _too_long()

    def _body(self, framing: Framing) -> None:
        self._size, self._trailer = 0, [] if framing.ends is Ends.CHUNKED else None

    def _add(self, name: bytes, value: bytes) -> None:
        self._size += len(name) + len(value) + 4
        if self._trailer is None:
            self._headers.append((name, value.strip(b" \t")))
        elif name.lower() in FRAMING:
            self._refuse(Malformed("what says where a body ends stands after it"))
        elif self._size <= QUIET_LIMIT:
            self._trailer.append((name, value.strip(b" \t")))
        else:
            self._refuse(_too_quiet())

    def _piece(self, data: bytes) -> bytes:
        self._quiet, self._heard = 0, True
        return data if self._trailer is None else chunk(data)

    def _spend(self, size: int, *, anew: bool) -> None:
        """Take note of bytes that were read; `anew`: nothing was under way before."""
        is_beginning = anew and self.in_head and self._starts == 1
        heard, self._heard, self._starts = self._heard, False, 0
        if heard and not is_beginning:
            return
        self._quiet += size
        if self.in_head and self._quiet > HEAD_LIMIT:
            self._refuse(_too_long())
        elif self._trailer is not None and self._quiet > QUIET_LIMIT:
            self._refuse(_too_quiet())


def _too_long() -> Malformed:
    return Malformed(f"the head is longer than {HEAD_LIMIT} bytes", 431)


def _too_quiet() -> Malformed:
    return Malformed("a line or the trailer of a chunked body is too long")


class RequestReader(_ChunkReader):
    """Requests of one connection, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.events: deque[Event] = deque()
        self._left = 0
        """Bytes of a body of known length that are still to come."""
        self._target = b""
        self._line = b""
        """The last bytes of the request line, up to its end."""
        self._request: RequestHead | None = None
        """Whose body is under way."""
        self._is_over = self._is_again = False
        self._parser = httptools.HttpRequestParser(self)

    @property
    def method(self) -> bytes:
        """Of the request that was begun last."""
        return self._parser.get_method()

    @property
    def step(self) -> int:
        """How many bytes to feed at most: no more than a few small requests."""
        return max(STEP, self._left)

    def feed(self, data: bytes) -> None:
        """Read what came; what it says is appended to `events`."""
        if self._is_over:
            return
        anew = self._request is None and not self.in_head
        self._note_line(data, anew=anew)
        try:
            self._parse(data)
        except httptools.HttpParserError as error:
            self._refuse(self._unread(error))
        self._spend(len(data), anew=anew)

    def _note_line(self, data: bytes, *, anew: bool) -> None:
        """The parser takes RTSP and ICE for HTTP, and does not tell. No request counts that begins behind another."""
        self._line = b"" if anew else self._line
        if not self._line.endswith(b"\n"):
            line, end, _ = (data if self._line else data.lstrip(b"\r\n")).partition(b"\n")
            self._line = (self._line + line + end)[-_LINE_END:]

    def close(self) -> None:
        """Nothing is read any more: the parser knows this reader, which knows the parser."""
        self._is_over = True
        self.events.clear()
        del self._parser

    def _parse(self, data: bytes) -> None:
        """Feed the parser, a new one after each wish for another protocol, which nobody grants here."""
        while True:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as wish:
                self._parser = httptools.HttpRequestParser(self)
                data = data[wish.args[0] :]
                self._say_again()
                if data and not self._is_over:
                    continue
            return

    def _say_again(self) -> None:
        """A parser that hears such a wish does not read the body: it is told the head once more, without the wish."""
        if self._request is not None:
            self._is_again = True
            self._parser.feed_data(request_head(self._request))
            self._is_again = False

    def _unread(self, error: Exception) -> Malformed:
        if self.method == b"PRI":
            return Malformed("only HTTP/1.0 and HTTP/1.1 are spoken here", 505)
        return Malformed(f"the request cannot be read: {error}")

    def _refuse(self, why: Malformed) -> None:
        if not self._is_over:
            self._is_over, self.in_head = True, False
            self.events.append(why)

    # Said by the parser

    def on_message_begin(self) -> None:
        """A request line begins."""
        if not self._is_again:
            self._begin()
            self._target = b""

    def on_url(self, part: bytes) -> None:
        """Some of its target."""
        if not self._is_again:
            self._target += part
            self._size += len(part)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a line of the trailer."""
        if not self._is_again and not self._is_over:
            self._add(name, value)

    def on_headers_complete(self) -> None:
        """A whole head."""
        if self._is_again or self._is_over:
            return
        try:
            self._end_head()
            version = self._parser.get_http_version()
            if version in VERSIONS and not self._line.startswith(b" HTTP/"):
                version = "of another protocol"
            request = make_request(self.method, self._target, version, self._headers)
        except Malformed as error:
            self._refuse(error)
            return
        self.events.append(request)
        if request.framing.ends is not Ends.AT_ONCE:
            self._request, self._left = request, request.framing.length
            self._body(request.framing)

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        if not self._is_over:
            self._left -= len(data)
            self.events.append(self._piece(data))

    def on_message_complete(self) -> None:
        """All of a request; or its head, and the parser takes what follows for another protocol."""
        if self._request is None or self._is_over or self._parser.should_upgrade():
            return
        if self._trailer is not None:
            self.events.append(last_chunk(self._trailer))
        self._request, self._trailer, self._left, self._heard = None, None, 0, True
        self.events.append(END)


class AnswerReader(_ChunkReader):
    """The answer to one request, and what is said before it.

    Args:
        method: of the request.
    """

    def __init__(self, method: bytes) -> None:
        super().__init__()
        self.answer: ResponseHead | None = None
        """Its head, when that is whole."""
        self.is_done = False
        self.is_clean = True
        """Nothing came after the end of it."""
        self._method = method
        self._reason = b""
        self._pieces: list[bytes] = []
        self._why: Malformed | None = None
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> bytes:
        """Read what came; some of the body, as it is passed on.

        Raises:
            Malformed: it is no answer.
        """
        if self._parser is not None and not self.is_done:
            self._parse(self._parser, data)
        elif data:
            self.is_clean = False
        if self._why is not None:
            raise self._why
        pieces, self._pieces = self._pieces, []
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _parse(self, parser: httptools.HttpResponseParser, data: bytes) -> None:
        anew = self.answer is None and not self.in_head
        try:
            parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if self.is_done:
                self.is_clean = False
            else:
                self._refuse(Malformed(f"{error}"))
        self._spend(len(data), anew=anew)
        if self.is_done or self._why is not None:
            self.close()

    def close(self) -> None:
        """Nothing is read any more: the parser knows this reader, which knows the parser."""
        self._parser = None

    def _refuse(self, why: Malformed) -> None:
        self._why = self._why or why

    # Said by the parser

    def on_message_begin(self) -> None:
        """A status line begins."""
        if self.is_done:
            self.is_clean = False
        else:
            self._begin()
            self._reason = b""

    def on_status(self, part: bytes) -> None:
        """Some of the reason."""
        self._reason += part
        self._size += len(part)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a line of the trailer."""
        if not self.is_done and self._why is None:
            self._add(name, value)

    def on_headers_complete(self) -> None:
        """A whole head."""
        if self.is_done or self._why is not None or self._parser is None:
            return
        status, version = self._parser.get_status_code(), self._parser.get_http_version()
        try:
            self._end_head()
            answer = make_answer(status, self._reason, version, self._headers, self._method)
        except Malformed as error:
            self._refuse(error)
            return
        if status == 101:
            self._refuse(Malformed("it changes the protocol unasked"))
        elif status >= 200:
            self.answer = answer
            self.is_done = answer.framing.ends is Ends.AT_ONCE
            self._body(answer.framing)

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        if self.is_done:
            self.is_clean = False
        elif self._why is None:
            self._pieces.append(self._piece(data))

    def on_message_complete(self) -> None:
        """All of the answer, or of what was said before it."""
        if self.answer is None or self.is_done:
            return
        if self._trailer is not None:
            self._pieces.append(last_chunk(self._trailer))
        self.is_done, self._trailer = True, None

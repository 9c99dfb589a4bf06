"""One request of the relay and its answer: sent to the router in front, and to the next one where that is safe."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from remuda.serving.relay.http_framing import Ends, Malformed, RequestHead, ResponseHead, answer_head, request_head
from remuda.serving.relay.reading import AnswerReader
from remuda.serving.relay.replay import Replay

if TYPE_CHECKING:
    from remuda.serving.relay.connection import ClientConnection
    from remuda.serving.relay.upstream import RouterAt, Upstream

HOLD_S: Final = 30.0
"""How long a request waits for a router."""
RETRY_S: Final = 0.1
"""Between two tries to reach a router."""
HEAD_S: Final = 30.0
"""From the first byte of an answer's head to its end."""
SENDS: Final = 4
"""So often a request is sent at most."""
REPEATABLE: Final = frozenset({b"GET", b"HEAD", b"OPTIONS"})
ANSWERS_ONLY: Final = frozenset({
    b"/v1/chat/completions", b"/v1/completions", b"/v1/embeddings", b"/v1/rerank", b"/v1/score", b"/v1/classify",
    b"/rerank", b"/score", b"/classify", b"/pooling", b"/tokenize", b"/detokenize", b"/generate",
})  # fmt: skip
"""Paths at which a POST changes nothing but gets an answer: asked twice, it was answered once all the same."""


@dataclass
class RelayCounters:
    """What the relay counts, since it started."""

    requests: int = 0
    in_flight: int = 0
    asked_at: float = 0.0
    """Seconds since the epoch of the last request that was more than a look (GET or HEAD); 0 before the first."""
    resent: int = 0
    failed: int = 0
    """Without the router's whole answer: refused by the relay, or cut off."""
    held: int = 0
    """That found no router at once."""
    started_at: float = field(default_factory=time.time)


class Exchange:
    """One request and its answer."""

    def __init__(self, client: ClientConnection, request: RequestHead) -> None:
        self.client = client
        self.request = request
        self.request_done = request.framing.ends is Ends.AT_ONCE
        """Whether all of the request has come."""
        self._replay = Replay(client.budget)
        self._upstream: Upstream | None = None
        self._answer: ResponseHead | None = None
        self._reader: AnswerReader | None = None
        self._head_limit: asyncio.TimerHandle | None = None
        self._sends = 0
        self._until = 0.0
        self._why = "there is no router"
        self._finding: asyncio.Task[None] | None = None
        self._is_over = False
        self.keeps = request.keep_alive
        """Whether the client may send its next request on this connection, and is told so."""

    @property
    def is_answered(self) -> bool:
        """Whether the client has got some of the answer."""
        return self._answer is not None

    def start(self) -> None:
        """Send it."""
        counters = self.client.counters
        counters.requests += 1
        counters.in_flight += 1
        self._note_time()
        self._until = time.monotonic() + self.client.hold_s
        self._dispatch()

    def _note_time(self) -> None:
        if self.request.method not in (b"GET", b"HEAD"):
            self.client.counters.asked_at = time.time()

    # To the router

    def _dispatch(self) -> None:
        current = self.client.pool.routers.current
        upstream = self.client.pool.idle(current) if current else None
        if upstream is not None:
            self._send(upstream)
            return
        if current is None:
            self.client.counters.held += 1
        self._finding = asyncio.get_running_loop().create_task(self._find())

    async def _find(self) -> None:
        """Reach a router, whichever is in front, until the time is over."""
        pool = self.client.pool
        while True:
            changed, current = pool.changed, pool.routers.current
            upstream = await self._reach(current) if current is not None else None
            if upstream is not None:
                self._finding = None
                self._send(upstream)
                return
            left = self._until - time.monotonic()
            if left <= 0:
                self._finding = None
                self._fail(503, f"{self._why}: not within {self.client.hold_s:g} s; ask again")
                return
            try:
                async with asyncio.timeout(min(left, RETRY_S if current is not None else left)):
                    await changed.wait()
            except TimeoutError:
                continue

    async def _reach(self, router: RouterAt) -> Upstream | None:
        """A connection to that router, unless another one comes into its place first."""
        pool = self.client.pool
        if (idle := pool.idle(router)) is not None:
            return idle
        connecting = asyncio.ensure_future(pool.connect(router))
        changing = asyncio.ensure_future(pool.changed.wait())
        connecting.add_done_callback(self._unless_needed)
        try:
            await asyncio.wait((connecting, changing), return_when=asyncio.FIRST_COMPLETED)
            upstream = connecting.result() if connecting.done() else None
        except OSError:
            self._why = "the router does not answer"
            return None
        finally:
            connecting.cancel()
            changing.cancel()
        return upstream if upstream is not None and upstream.is_open else None

    def _unless_needed(self, connecting: asyncio.Task[Upstream]) -> None:
        """A connection that came too late is another request's."""
        if connecting.cancelled() or connecting.exception() is not None:
            return
        if self._is_over:
            connecting.result().release(keep=True)

    def _send(self, upstream: Upstream) -> None:
        self._upstream, upstream.waiter = upstream, self
        if self._reader is not None:
            self._reader.close()
        self._reader = AnswerReader(self.request.method)
        self._sends += 1
        upstream.uses += 1
        # Before the write, which says at once when that is more than the router takes now.
        self.client.pause(pause=False)
        upstream.write(request_head(self.request), *self._replay.pieces)
        self._replay.sent()

    def take(self, data: bytes) -> None:
        """Bytes of the request's body."""
        self._replay.add(data, must=self._upstream is None)
        if self._upstream is not None:
            self._upstream.write(data)
        elif self._replay.is_full:
            self.client.pause(pause=True)

    def end_request(self) -> None:
        """All of it has come."""
        self.request_done = True

    def hold_request(self, *, hold: bool) -> None:
        """The router takes no more for now, or again."""
        self.client.pause(pause=hold)

    # From the router

    def answer_data(self, data: bytes) -> None:
        """Bytes of the answer."""
        assert self._reader is not None
        try:
            body = self._reader.feed(data)
            if self._answer is None and self._reader.answer is not None:
                body = self._begin_answer(self._reader.answer) + body
        except Malformed as error:
            if self._answer is not None:
                self._break_off()
            else:
                self._fail(502, f"the router's answer cannot be read: {error}")
            return
        self._limit_head(is_under_way=self._reader.in_head)
        if body:
            self.client.write(body)
        if self._reader.is_done:
            self._finish(clean=self._reader.is_clean)

    def _begin_answer(self, answer: ResponseHead) -> bytes:
        """Its head, as the client gets it."""
        if answer.framing.ends is Ends.CHUNKED and not self.request.minor:
            raise Malformed("it is chunked, and the client speaks HTTP/1.0")
        self._answer = answer
        self._replay.drop()
        # What is said now holds, even if the rest of the request comes before the end of the answer.
        self.keeps = self.keeps and self.request_done and answer.framing.ends is not Ends.CLOSE
        return answer_head(answer, minor=self.request.minor, close=not self.keeps)

    def _limit_head(self, *, is_under_way: bool) -> None:
        """Who has begun to answer has some time for the rest of the head."""
        if is_under_way and self._head_limit is None:
            self._head_limit = asyncio.get_running_loop().call_later(HEAD_S, self._late)
        elif not is_under_way and self._head_limit is not None:
            self._head_limit.cancel()
            self._head_limit = None

    def _late(self) -> None:
        self._fail(502, f"the router began its answer, and the head of it was not whole after {HEAD_S:g} s")

    def _finish(self, *, clean: bool) -> None:
        assert self._answer is not None
        self._end()
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.release(keep=clean and self.request_done and self._answer.keep_alive and self.request.minor > 0)
        self.client.finished(keep=self.keeps)

    def answer_lost(self, *, clean: bool) -> None:
        """The connection to the router is gone before the answer was whole."""
        upstream, self._upstream = self._upstream, None
        self._limit_head(is_under_way=False)
        if self._answer is not None:
            if clean and self._answer.framing.ends is Ends.CLOSE:
                self._finish(clean=False)
            else:
                self._break_off()
            return
        assert upstream is not None
        self.client.pool.drop_idle(upstream.router)
        if self._may_send_again(was_idle=upstream.uses > 1):
            self.client.counters.resent += 1
            self._why = "the router was lost"
            self._until = time.monotonic() + self.client.hold_s
            self._dispatch()
        else:
            self._fail(502, "the router was lost after it had got the request, which may have been carried out")

    def _may_send_again(self, *, was_idle: bool) -> bool:
        """Whether nobody is harmed when the router is asked again.

        A router that closes a connection which was idle has not looked at what came at that moment; whether it was that
        is not known, so such a request is sent again once.
        """
        has_begun = self._reader is not None and self._reader.in_head
        if self._replay.is_gone or has_begun or self._sends >= SENDS:
            return False
        if self.request.method in REPEATABLE or self.request.path in ANSWERS_ONLY:
            return True
        return was_idle and self._sends == 1

    def hold_answer(self, *, hold: bool) -> None:
        """The client takes no more for now, or again."""
        if self._upstream is not None:
            self._upstream.pause(pause=hold)

    # The end

    def drop(self) -> None:
        """Nobody waits for the answer any more."""
        self._end()
        if self._finding is not None:
            self._finding.cancel()
        self._leave()

    def _leave(self) -> None:
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.release(keep=False)

    def _fail(self, status: int, why: str) -> None:
        self._end()
        self.client.counters.failed += 1
        self._leave()
        self.client.fail(self, status, why)

    def _break_off(self) -> None:
        self._end()
        self.client.counters.failed += 1
        self._leave()
        self.client.cut()

    def _end(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._replay.drop()
            self._limit_head(is_under_way=False)
            if self._reader is not None:
                self._reader.close()
            self.client.counters.in_flight -= 1
            self._note_time()

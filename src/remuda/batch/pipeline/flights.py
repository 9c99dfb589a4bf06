"""Questions under way: one that nobody seems to hear is sent once more on another connection; one answer counts."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

import aiohttp
from aiohttp.client_proto import ResponseHandler

from remuda.batch.pipeline.answer import Transient
from remuda.batch.pipeline.unheard import SOONEST_S, Silence, silence_of
from remuda.wire import peer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from remuda.batch.pipeline.transport import Reply
    from remuda.batch.pipeline.unheard import ReplyTimes

_LOOK_S: Final = 0.25
#: Answers before the answer (1xx), for one question. HTTP has no bound, and aiohttp reads on for ever.
_MOST_EARLY: Final = 8
#: Second questions under way at the same time where no connection is free for them.
_NEW_COPIES: Final = 2


class Flight:
    """A question under way, and the copy of it, if any.

    Attributes:
        wire: the connection that it got.
        is_sure: nothing is wrong with that connection.
        is_settled: the copy was answered.
        is_over: nobody waits for it any more.
        copied: when the copy was sent.
        is_new: the copy had to open a connection of its own.
    """

    __slots__ = (
        "body", "copied", "copy", "is_new", "is_over", "is_settled", "is_sure", "path", "started", "task", "wire",
    )  # fmt: skip

    def __init__(self, task: asyncio.Task[Any], path: str, body: bytes, started: float) -> None:
        self.task, self.path, self.body = task, path, body
        self.started = started
        self.wire: asyncio.BaseTransport | None = None
        self.copied = started
        self.is_sure = self.is_settled = self.is_over = self.is_new = False
        self.copy: asyncio.Task[Reply] | None = None

    def silence(self) -> Silence:
        """How far it has come."""
        if self.wire is None:
            return Silence.UNSENT
        made = self.wire.get_extra_info("socket")
        return Silence.HEARD if made is None or self.wire.is_closing() else silence_of(made.fileno())


class Flights:
    """All questions to one place.

    Args:
        hearing: what is known of the endpoint's answers.
        send: sends a question once.
    """

    def __init__(self, hearing: ReplyTimes, send: Callable[[str, bytes], Awaitable[Reply]]) -> None:
        """Prepare; must be called inside the event loop."""
        self.under_way: dict[asyncio.Task[Any], Flight] = {}
        self._hearing = hearing
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._watching: asyncio.Task[None] | None = None
        self._copies = 0
        self.placing: set[asyncio.Task[Any] | None] = set()
        """Copies that have no connection yet."""
        self.idle: Callable[[], int] = lambda: 0
        """How many open connections have nothing to do."""

    async def ask(self, path: str, body: bytes) -> Reply:
        """One answer to a question.

        Raises:
            Transient: no whole answer came.
        """
        task: asyncio.Task[Any] = asyncio.current_task()  # type: ignore[assignment]
        flight = self.under_way[task] = Flight(task, path, body, self._loop.time())
        self._hearing.sent += 1
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())
        try:
            reply = await self._send(path, body)
        except asyncio.CancelledError:
            # The copy's answer cancels the first question; any other cancellation is the caller's.
            if flight.copy is None or not flight.is_settled or task.uncancel() > 0:
                raise
            reply = flight.copy.result()
        except Transient:
            if flight.copy is None:
                raise
            flight.is_over = True
            reply = await flight.copy
        finally:
            flight.is_over = True
            del self.under_way[task]
            if flight.copy is not None:
                flight.copy.cancel()
        # How long somebody was not heard says nothing about what answers take.
        self._hearing.on_answer(self._loop.time() - flight.started if flight.copy is None else 0.0)
        return reply

    def close(self) -> None:
        """Look after nobody any more."""
        if self._watching is not None:
            self._watching.cancel()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            self._look()

    def _look(self) -> None:
        """See who waits in vain. Copies go out on connections that are free and work, where there are any."""
        if not self._hearing.answers:
            return
        now = self._loop.time()
        # In the order in which they were asked.
        for flight in list(self.under_way.values()):
            waited_s = now - flight.started
            free = self.idle() - len(self.placing)
            if waited_s < SOONEST_S or (free <= 0 and self._copies >= _NEW_COPIES):
                return
            if flight.copy is None and not flight.is_sure:
                silence = flight.silence()
                flight.is_sure = silence is Silence.HEARD
                if self._hearing.ask_again(silence, waited_s):
                    self._send_copy(flight, now, is_new=free <= 0)
            elif flight.copy is not None and flight.is_new and free > 0 and now - flight.copied > SOONEST_S:
                # It went out on a connection of its own, where nobody hears it either.
                flight.copy.cancel()
                self._send_copy(flight, now, is_new=False)

    def _send_copy(self, flight: Flight, now: float, *, is_new: bool) -> None:
        self._copies += 1
        flight.copied, flight.is_new = now, is_new
        flight.copy = copy = asyncio.create_task(self._again(flight.path, flight.body))
        self.placing.add(copy)
        copy.add_done_callback(lambda _: self._answered(flight, copy))

    async def _again(self, path: str, body: bytes) -> Reply:
        return await self._send(path, body)

    def _answered(self, flight: Flight, copy: asyncio.Task[Reply]) -> None:
        self._copies -= 1
        self.placing.discard(copy)
        if not copy.cancelled() and copy.exception() is None and flight.copy is copy and not flight.is_over:
            flight.is_settled = True
            flight.task.cancel()
            self._look()


class NotOurs(Exception):
    """Somebody else has the port of an endpoint that is the user's own; aiohttp would replace an OSError."""


class _Answers(ResponseHandler):
    """One connection, which breaks off when an answer is only announced, again and again."""

    _early = 0

    def feed_data(self, data: Any, size: int = 0) -> None:
        """See `aiohttp.streams.DataQueue.feed_data`."""
        if self._early > _MOST_EARLY or self.transport is None:
            return
        self._early = self._early + 1 if 100 <= data[0].code < 200 else 0
        if self._early <= _MOST_EARLY:
            super().feed_data(data, size)
        else:
            why = f"the server said more than {_MOST_EARLY} times that its answer will come"
            self.set_exception(aiohttp.ClientConnectionError(why))
            self.transport.abort()


class Connector(aiohttp.TCPConnector):
    """Tells each question which connection it got.

    Args:
        flights: the questions.
        is_own: whether a program of this user has to be at the other end, where that is on this machine.
    """

    def __init__(self, flights: Flights, *, is_own: bool = False) -> None:
        super().__init__(limit=0, ttl_dns_cache=300)
        answers: type[ResponseHandler] = _Answers
        self._factory = partial(answers, loop=self._loop)
        self._flights = flights
        self._is_own = is_own
        self._known: WeakSet[asyncio.BaseTransport] = WeakSet()
        flights.idle = lambda: sum(len(kept) for kept in self._conns.values())

    async def connect(self, req: Any, traces: Any, timeout: Any) -> Any:  # noqa: ASYNC109 - aiohttp's name
        """See `aiohttp.BaseConnector.connect`."""
        made = await super().connect(req, traces, timeout)
        if self._is_own and made.transport not in self._known:
            self._see_who_it_is(made)
        task = asyncio.current_task()
        flight = self._flights.under_way.get(task)  # type: ignore[arg-type]
        if flight is not None:
            flight.wire = made.transport
        else:
            self._flights.placing.discard(task)
        return made

    def _see_who_it_is(self, made: Any) -> None:
        """Ask the kernel once for each connection, before anything is said over it.

        Raises:
            NotOurs: a program of another user accepted it.
        """
        line = made.transport.get_extra_info("socket") if made.transport is not None else None
        why_not = peer.refusal(line) if line is not None else "it hung up"
        if why_not:
            made.close()
            raise NotOurs(why_not)
        self._known.add(made.transport)

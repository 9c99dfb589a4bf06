"""From rows to records: many tries at once, bounded, paced, repeated where it helps.

Memory does not depend on the number of rows: one chunk is read ahead, and at most `limit` tries are in flight.
Workers are few and live long; per row nothing is created but the row itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from remuda.base.errors import RemudaError, Unavailable
from remuda.base.units import show_duration
from remuda.batch.output.checkpoint import encode_answer, encode_error
from remuda.batch.pipeline.answer import RowAnswer, RowError, Transient
from remuda.batch.pipeline.lenient import clean, clean_text, count
from remuda.batch.pipeline.retry import delay_s, retry_after_s
from remuda.batch.progress import RowCounters

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from remuda.batch.input.feed import Feed, InputRow
    from remuda.batch.output.checkpoint import Checkpoint
    from remuda.batch.pipeline.breaker import Breaker
    from remuda.batch.pipeline.concurrency import Limiter
    from remuda.batch.pipeline.perform import Outcome, Performer

_TICK_S: Final = 0.1
_SYNC_S: Final = 1.0
#: Whoever looks on is told of longer pauses. Our own between two tries of a row have a bound below it.
_PAUSE_S: Final = 40.0
#: A worker that never waits gives the others a turn after this many tries.
_TURN: Final = 64
_OVERLOAD: Final = frozenset({429, 503, 504})
#: Failures that may be the row's own; they count on the row when the endpoint says that it is well.
_AMBIGUOUS: Final = frozenset({0, 500})
_TOO_MUCH: Final = " (no request is answered: too many at once, or answers slower than a gateway's time limit)"
_COME_BACK: Final = "type the same command again when it is back; finished rows are kept"
_SHORTER: Final = "--max-concurrency asks less at once, max_tokens for shorter answers; finished rows are kept"
#: A gateway waited too long: for this row, or because its engine has too much to do. Health says nothing of that.
_GATEWAY: Final = 504


@dataclass(frozen=True)
class PipelineLimits:
    """What bounds a run.

    Attributes:
        retries: tries of a row after its first.
        timeout_s: bound of one try.
        endpoint_wait_s: how long rows wait for an endpoint that is away.
        flush_rows: records per write.
    """

    retries: int
    timeout_s: float
    endpoint_wait_s: float
    flush_rows: int


@dataclass(slots=True)
class _Flight:
    task: asyncio.Task[None]
    started: float = 0.0
    late: bool = False


def storable(answer: RowAnswer) -> bytes:
    """The record's body; texts that cannot be encoded are cleaned rather than generated again.

    Raises:
        TypeError: an output is not JSON-able.
        RecursionError: it nests too deeply.
    """
    try:
        return encode_answer(answer)
    except TypeError:
        answer.outputs = clean(answer.outputs)
        answer.finish_reason = clean_text(answer.finish_reason)
        return encode_answer(answer)


class Pipeline:
    """One run over a feed. `run` returns when every row has a record, or raises what stopped it."""

    def __init__(
        self,
        feed: Feed,
        checkpoint: Checkpoint,
        performer: Performer,
        rules: PipelineLimits,
        limiter: Limiter,
        breaker: Breaker,
    ) -> None:
        self.counters = RowCounters()
        self.in_flight = 0
        self.limiter = limiter
        self.breaker = breaker
        self.is_well: Callable[[], Awaitable[bool]] | None = None
        """Asks the endpoint itself whether it is well; None where there is none."""
        self.is_coming: Callable[[], bool] = lambda: False
        """Asked before the endpoint is given up: True is to wait for so long once more."""
        self.on_refused: Callable[[RowError], RemudaError | None] = lambda _: None
        """Says whether a refusal ends the job."""
        self.on_tick: Callable[[], None] = lambda: None
        self.clean: Callable[[str], str] = lambda message: message
        """Takes what must not be kept out of a row's error."""
        self.feed = feed
        self._checkpoint = checkpoint
        self._performer = performer
        self._rules = rules
        self._delayed: list[tuple[float, int, InputRow]] = []
        self._last_failure = ""
        self._patient_until = 0.0
        self._flights: list[_Flight] = []
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._filling = False
        self._unflushed = 0
        self._well_until = 0.0
        self._asking: asyncio.Task[None] | None = None
        self._ended: asyncio.Future[None] | None = None
        self._alive = 0
        self._closing = False
        self._now = time.monotonic

    async def run(self) -> None:
        """Work until the feed is empty and nothing is under way.

        Raises:
            Unavailable: the endpoint stayed away for longer than rows wait.
            RemudaError: the checkpoint cannot be written, or the endpoint refuses everything.
        """
        self._ended = asyncio.get_running_loop().create_future()
        ticker = asyncio.create_task(self._tick_loop())
        try:
            self._spawn()
            await self._ended
        finally:
            self._closing = True
            tasks = [ticker, *(flight.task for flight in self._flights), *([self._asking] if self._asking else [])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self._checkpoint.flush()

    def fail(self, error: BaseException) -> None:
        """End the run with `error`."""
        if self._ended is not None and not self._ended.done():
            self._ended.set_exception(error)

    def _worker_ended(self, task: asyncio.Task[None]) -> None:
        self._alive -= 1
        if task.cancelled() or self._ended is None or self._ended.done():
            return
        if (error := task.exception()) is not None:
            self._ended.set_exception(error)
        elif self._alive == 0:
            self._ended.set_result(None)

    # Taking rows

    def _spawn(self) -> None:
        while len(self._flights) < self.limiter.limit:
            number = len(self._flights)
            task = asyncio.create_task(self._work(number))
            self._flights.append(_Flight(task))
            self._alive += 1
            task.add_done_callback(self._worker_ended)

    def _is_finished(self) -> bool:
        return self.feed.exhausted and not self.feed.ready and not self._delayed and not self.in_flight

    def _try_take(self, number: int) -> list[InputRow] | None:
        if self.in_flight >= self.limiter.limit:
            return None
        ready, delayed = self.feed.ready, self._delayed
        if ready.is_low:
            self.feed.top_up()
        if delayed:
            now = self._now()
            due, full = delayed[0][0] <= now, len(delayed) > 2 * self.limiter.maximum + 64
            if (not due and (not ready or full)) or not self.breaker.may_send(now):
                return None
            # While the endpoint is away each row is tried in its turn, not the same one until it is given up.
            if due and (not ready or full or self.breaker.open_since is None):
                self.in_flight += 1
                return self._as_probe([heapq.heappop(delayed)[2]])
        elif not ready or (self.breaker.open_since is not None and not self.breaker.may_send(self._now())):
            return None
        self.in_flight += 1
        return self._as_probe(ready.take(number, self._performer.size))

    def _as_probe(self, rows: list[InputRow]) -> list[InputRow]:
        if self.breaker.open_since is not None:
            for row in rows:
                row.is_probe = True
        return rows

    async def _take(self, number: int) -> list[InputRow] | None:
        while (rows := self._try_take(number)) is None:
            if self._is_finished():
                self._wake(len(self._waiters))
                return None
            if not self.feed.ready and not self.feed.exhausted and not self._filling:
                self._filling = True
                try:
                    await self.feed.fill()
                finally:
                    self._filling = False
                self._wake(len(self._waiters))
                continue
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
        return rows

    def _wake(self, count: int) -> None:
        for _ in range(min(count, len(self._waiters))):
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    # Working

    async def _work(self, number: int) -> None:
        flight = self._flights[number]
        turn = 0
        while (rows := self._try_take(number) or await self._take(number)) is not None:
            flight.started = started = self._now()
            outcomes = await self._attempt(flight, rows)
            now = self._now()
            flight.started = 0.0
            for row, outcome in zip(rows, outcomes, strict=True):
                self._settle(row, outcome, now - started, now)
            self.in_flight -= 1
            turn += 1
            if turn % _TURN == 0:
                await asyncio.sleep(0)

    async def _attempt(self, flight: _Flight, rows: list[InputRow]) -> Sequence[Outcome]:
        try:
            if len(rows) == 1:
                return (await self._performer.one(rows[0]),)
            return await self._performer.many(rows)
        except asyncio.CancelledError:
            # The sweep cancels a late try; any other cancellation is the run's end.
            if self._closing or not flight.late:
                raise
            flight.late = False
            flight.task.uncancel()
            return [Transient(f"no answer within {self._rules.timeout_s:g} s")] * len(rows)

    # What came of it

    def _settle(self, row: InputRow, outcome: Outcome, latency_s: float, now: float) -> None:
        if isinstance(outcome, RowAnswer):
            self.breaker.on_success()
            self.limiter.on_answer(latency_s, now, in_flight=self.in_flight)
            if len(self._flights) < self.limiter.limit:
                self._spawn()
            self._record(row, outcome)
        elif isinstance(outcome, RowError) and outcome.status == 404 and (self.counters.answered or self.feed.skipped):
            # Every row asks the same path for the same model, and both were there: the endpoint is not itself.
            self._again(row, Transient(outcome.message, status=404), now)
        elif isinstance(outcome, RowError):
            if outcome.status:
                self.breaker.on_success()
                if (stop := self.on_refused(outcome)) is not None:
                    raise stop
            else:
                self.breaker.on_neutral()
            self._reject(row, outcome.message)
        else:
            self._again(row, outcome, now)

    def _record(self, row: InputRow, answer: RowAnswer) -> None:
        counters = self.counters
        try:
            body = storable(answer)
        except Exception as error:  # noqa: BLE001 - whatever a row came to, it must not end the job
            self._reject(row, f"the result cannot be stored: {error}")
            return
        counters.answered += 1
        counters.prompt_tokens += count(answer.prompt_tokens)
        counters.completion_tokens += count(answer.completion_tokens)
        counters.cached_tokens += count(answer.cached_tokens)
        self._checkpoint.write(row.position, row.key, body, failed=False)
        self._flush_some()

    def _reject(self, row: InputRow, message: str) -> None:
        self.counters.rejected += 1
        self._checkpoint.write(row.position, row.key, encode_error(self.clean(message)), failed=True)
        self._flush_some()

    def _flush_some(self) -> None:
        self._unflushed += 1
        if self._unflushed >= self._rules.flush_rows:
            self._unflushed = 0
            self._checkpoint.flush()

    def _again(self, row: InputRow, error: Transient, now: float) -> None:
        if error.status in _OVERLOAD or (error.sent and not error.status):
            self.limiter.on_overload(now)
        if error.status == _GATEWAY:
            self._gateway_waited(row, error, now)
            return
        ambiguous = error.sent and error.status in _AMBIGUOUS
        if ambiguous and now < self._well_until:
            self.breaker.on_success()
        else:
            self.breaker.on_failure(now, error.message, connected=error.sent)
        if self.breaker.open_since is not None:
            self._wait_for_endpoint(row, now)
            if ambiguous:
                self._ask_whether_well()
            return
        self._pay(row, error, now)

    def _gateway_waited(self, row: InputRow, error: Transient, now: float) -> None:
        """A row pays where others were answered since it was last asked, or where a well endpoint was asked only it."""
        was_open, was_probe, seen = self.breaker.open_since is not None, row.is_probe, row.answered
        row.is_probe, row.answered = False, self.counters.answered
        # Everybody who is under way has failed twice, and nobody was answered in between.
        self.breaker.on_failure(now, f"{error.message}{_TOO_MUCH}", connected=True, threshold=2 * self.in_flight)
        if self.breaker.open_since is not None:
            self._ask_whether_well(closes=False)
            if not was_open:
                self.limiter.on_stall(now)
            if not (was_probe and now < self._well_until):
                self._wait_for_endpoint(row, now)
                return
        elif seen == self.counters.answered:
            self._later(row, error, now)
            return
        self._pay(row, error, now)

    def _wait_for_endpoint(self, row: InputRow, now: float) -> None:
        """The endpoint is away: not this row's fault, and no reason to wait longer than it does."""
        heapq.heappush(self._delayed, (now, row.position, row))

    def _pay(self, row: InputRow, error: Transient, now: float) -> None:
        row.failures += 1
        if row.failures > self._rules.retries:
            self._reject(row, f"{error.message} (after {row.failures} tries)")
            return
        self._later(row, error, now)

    def _later(self, row: InputRow, error: Transient, now: float) -> None:
        asked = retry_after_s(error.retry_after, time.time()) or 0.0
        if asked > (longest := self._rules.timeout_s):
            said = f"the server asks to wait {show_duration(asked)}, and a row waits {show_duration(longest)} at most"
            self._reject(row, f"{error.message}; {said} (--timeout)")
            return
        wait = delay_s(max(1, row.failures), error.retry_after, key=str(row.position), now=time.time())
        self.counters.retries += 1
        self._last_failure = error.message
        heapq.heappush(self._delayed, (now + wait, row.position, row))

    def pause(self) -> str:
        """Why nothing is asked for a while although the endpoint is there, and how long; empty while rows are asked."""
        wait = self._delayed[0][0] - self._now() if self._delayed and not self.in_flight else 0.0
        if wait < _PAUSE_S:
            return ""
        return f"{self._last_failure}; the next row is asked in {show_duration(wait)}, as the server wants it"

    def _ask_whether_well(self, *, closes: bool = True) -> None:
        """See whether these failures are the endpoint's or the rows' own, so that neither burns the other.

        With `closes`, an endpoint that is well is asked by everybody again.
        """
        if self.is_well is None or (self._asking is not None and not self._asking.done()):
            return
        is_well = self.is_well

        async def ask() -> None:
            if await is_well():
                self._well_until = self._now() + 30.0
                if closes:
                    self.breaker.on_success()

        self._asking = asyncio.create_task(ask())

    # Time

    async def _tick_loop(self) -> None:
        synced = self._now()
        while True:
            await asyncio.sleep(_TICK_S)
            now = self._now()
            try:
                self._checkpoint.flush()
                self._unflushed = 0
                if now - synced >= _SYNC_S:
                    synced = now
                    await asyncio.to_thread(self._checkpoint.sync)
                self._sweep(now)
                self._give_up(now)
                self.on_tick()
            except RemudaError as error:
                self.fail(error)
                return
            self._spawn()
            self._wake(len(self._waiters) if self._is_finished() else self._startable(now))

    def _startable(self, now: float) -> int:
        free = self.limiter.limit - self.in_flight
        due = len(self.feed.ready) + sum(1 for item in self._delayed if item[0] <= now)
        return max(0, min(free, due))

    def _sweep(self, now: float) -> None:
        for flight in self._flights:
            if flight.started and now - flight.started > self._rules.timeout_s and not flight.late:
                flight.late = True
                flight.task.cancel()

    def _give_up(self, now: float) -> None:
        if self.breaker.open_for_s(now) > self._rules.endpoint_wait_s and now > self._patient_until:
            if self.is_coming():
                self._patient_until = now + self._rules.endpoint_wait_s
                return
            with contextlib.suppress(RemudaError):
                self._checkpoint.flush()
            raise Unavailable(
                f"the endpoint has been away for {self.breaker.open_for_s(now):.0f} s: {self.breaker.reason}",
                hint=_SHORTER if _TOO_MUCH in self.breaker.reason else _COME_BACK,
            )

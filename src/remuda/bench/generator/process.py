"""One process of the load generator: `python -m remuda.bench.generator.process`, told what to do on standard input.

It is told a plan (one line of JSON), opens its connections, warms up, says `ready`, waits for `go NANOSECONDS` (of
CLOCK_MONOTONIC, which all processes of a machine share), and sends requests until their number, their schedule or
`stop` ends them. What it measures goes to standard output in frames: four bytes of length, then JSON. When its standard
input ends it ends at once, so nothing is left of a client that was killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import struct
import sys
import time
from binascii import a2b_base64, b2a_base64
from collections import deque
from dataclasses import fields
from time import monotonic_ns
from typing import Any, Final

import orjson

from remuda.bench.generator import asking
from remuda.bench.generator.background import Chores
from remuda.bench.generator.http_stream import HttpStream, RequestTarget, TimedAnswer, words_of
from remuda.bench.generator.machine import lags_of, timer
from remuda.bench.generator.prompts import PromptFit, Prompts
from remuda.bench.generator.reading import RequestRow, read
from remuda.bench.generator.trace import Trace
from remuda.bench.load import Cache, Load

#: Between two looks at the own lag: each costs as much as a token.
_TICK_S: Final = 0.01
#: Between two frames.
_TELL_S: Final = 0.25
#: Letters of the one answer that is kept.
_MOST_TEXT: Final = 1 << 16
#: Connections opened before the start of an open loop without a bound.
_OPENED: Final = 32


class Process:
    """Its share of a load: requests `number`, `number + count`, `number + 2·count`, ..."""

    def __init__(self, plan: dict[str, Any], out: asyncio.WriteTransport) -> None:
        self.load = Load.from_json(plan["load"])
        self.number, self.count = int(plan["process"]), int(plan["processes"])
        self._model, self._forced, self._counted = plan["model"], bool(plan["forced"]), bool(plan["counted"])
        place = plan["place"]
        self._place = RequestTarget(**{**place, "headers": tuple((name, value) for name, value in place["headers"])})
        self._fit = PromptFit(**{**plan["fit"], "pool": tuple(plan["fit"]["pool"])})
        self._prompts = Prompts(
            plan["prompts"], Cache.parse(self.load.cache), common=max(1, self.load.warmups), fit=self._fit
        )
        self._arrivals: list[float] = plan["arrivals"]
        self._trace = Trace(*map(tuple, plan["trace"].values())) if plan["trace"] else None
        self._extra = orjson.loads(self.load.extra_body)
        self._path = asking.PATHS[self.load.api]
        self._head = self._place.head("POST", self._path)
        self._idle: list[HttpStream] = []
        self._out = out
        self._rows: list[RequestRow] = []
        self._began = 0
        self._next = 0
        self._made: deque[tuple[bytes, RequestRow]] = deque()
        self._chores = Chores()
        self._active = 0
        self._issued = 0
        self._opened = 0
        self._resent = 0
        self._lags: list[float] = []
        self._due = 0
        self._timer = -1
        self._kept = False
        self.stopped = asyncio.Event()

    # What a load is made of.

    @property
    def _slots(self) -> int:
        return len(range(self.number, self.load.concurrency, self.count))

    def _request(self, index: int) -> tuple[bytes, RequestRow]:
        isl, osl = self.load.lengths(index, self._trace)
        prompt = self._prompts.of(index, self._fit.words(isl))
        body = asking.body(
            self.load.api, self._model, prompt, osl, stream=self.load.stream, forced=self._forced,
            counted=self._counted, extra=self._extra,
        )  # fmt: skip
        head = b"%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (self._head, len(body))
        return head + body, RequestRow(index, self.number, asked_in=isl, asked_out=osl)

    async def _line(self, *, fresh: bool = False) -> tuple[HttpStream, bool]:
        """A connection, and whether it has been kept."""
        while self._idle and not fresh:
            line = self._idle.pop()
            if line.is_open:
                return line, True
        self._opened += 1
        return await HttpStream.connect(self._place), False

    async def _exchange(self, request: bytes, row: RequestRow) -> TimedAnswer:
        line, is_kept = await self._line()
        answer = await line.start(request, self.load.timeout_s, row.asked_out)
        if is_kept and answer.is_unheard:
            # A server may close a connection that it keeps, also in the moment when this was sent on it.
            # Time runs from the first try.
            self._resent += 1
            row.sched = row.sched or answer.sent
            line, _ = await self._line(fresh=True)
            answer = await line.start(request, self.load.timeout_s, row.asked_out)
        if line.is_open:
            self._idle.append(line)
        return answer

    async def _send(self, request: bytes, row: RequestRow) -> bool:
        """Send it and wait for its answer, which is read a little later; False where nobody answers."""
        self._issued += 1
        self._active += 1
        try:
            answer = await self._exchange(request, row)
        except OSError as error:
            now = monotonic_ns()
            row.sent = row.ended = now
            row.sched = row.sched or now
            row.error = f"no connection: {words_of(error)}"
            self._rows.append(row)
            return False
        finally:
            self._active -= 1
        self._chores.add(lambda: self._read(answer, row))
        return answer.status > 0

    def _read(self, answer: TimedAnswer, row: RequestRow) -> None:
        keep = not self._kept and not answer.error and answer.status == 200 and row.index >= 0
        read(answer, row, stream=self.load.stream, keep_text=keep, key=self._place.key)
        row.text = row.text[:_MOST_TEXT]
        self._kept = self._kept or (keep and row.is_ok)
        self._rows.append(row)

    # The three phases.

    async def prepare(self) -> None:
        """Open connections and warm up: requests with indices below 0."""
        wanted = self._slots or (_OPENED if self.load.is_open else 0)
        with contextlib.suppress(OSError):
            for _ in range(wanted):
                self._idle.append(await HttpStream.connect(self._place))
        todo = list(range(self.number, self.load.warmups, self.count))

        until = monotonic_ns() + int(self.load.timeout_s * 1e9)  # Of one request: no load waits for all of them.

        async def warm() -> None:
            while todo and monotonic_ns() < until:
                await self._send(*self._request(-1 - todo.pop()))

        await asyncio.gather(*(warm() for _ in range(self._slots or 8)))
        await self._chores.settle()
        self._opened = self._resent = 0
        self._next = self.number
        for _ in range(self._slots):
            self._make()

    async def measure(self, start: int) -> None:
        """Send the load; `start` is in ns of CLOCK_MONOTONIC."""
        self._began = start
        await asyncio.sleep(max(0.0, (start - monotonic_ns()) / 1e9))
        self._watch_lag()
        try:
            await (self._open_loop() if self.load.is_open else self._closed_loop())
            await self._chores.settle()
        finally:
            asyncio.get_running_loop().remove_reader(self._timer)
            os.close(self._timer)
            if (late := (monotonic_ns() - self._due) / 1e9) > 0:  # It was stopped at its end.
                self._lags.append(late)

    def _make(self) -> None:
        """Make the next request of a closed loop, if there is to be one."""
        if not self.load.is_open and (not self.load.requests or self._next < self.load.requests):
            index, self._next = self._next, self._next + self.count
            self._made.append(self._request(index))

    async def _closed_loop(self) -> None:
        until = self._began + int(self.load.duration_s * 1e9) if self.load.duration_s else 0

        async def slot() -> None:
            while not self.stopped.is_set() and not (until and monotonic_ns() >= until):
                if not self._made:
                    self._make()
                if not self._made:
                    return
                # Its successor is made while it is under way.
                self._chores.add(self._make)
                if not await self._send(*self._made.popleft()):
                    await asyncio.sleep(0.05)  # Nobody answers: no tight loop.

        await asyncio.gather(*(slot() for _ in range(self._slots)))

    async def _open_loop(self) -> None:
        gate = asyncio.Semaphore(self._slots) if self._slots else None
        tasks: set[asyncio.Task[None]] = set()

        async def one(request: bytes, row: RequestRow) -> None:
            async with gate or contextlib.nullcontext():
                await self._send(request, row)

        for index in range(self.number, len(self._arrivals), self.count):
            if self.stopped.is_set():
                break
            request, row = self._request(index)
            row.sched = self._began + int(self._arrivals[index] * 1e9)
            await self._until(row.sched)
            if self.stopped.is_set():
                break
            task = asyncio.create_task(one(request, row))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)

    async def _until(self, due: int) -> None:
        """Wait for a moment, or for `stop`. A timer of uvloop has whole milliseconds and may come one early."""
        while (rest := (due - monotonic_ns()) / 1e9) > 0 and not self.stopped.is_set():
            if rest > _TICK_S:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.stopped.wait(), rest - 0.001)
            else:
                await asyncio.sleep(rest)

    def _watch_lag(self) -> None:
        """How late the event loop is, as it stamps late what comes meanwhile."""
        self._due = monotonic_ns() + int(_TICK_S * 1e9)
        self._timer = timer(self._due, int(_TICK_S * 1e9))
        asyncio.get_running_loop().add_reader(self._timer, self._tick)

    def _tick(self) -> None:
        now = monotonic_ns()
        with contextlib.suppress(BlockingIOError):
            due = int.from_bytes(os.read(self._timer, 8), sys.byteorder)
            self._lags.append((now - self._due) / 1e9)
            self._due += due * int(_TICK_S * 1e9)

    # What is told.

    def tell(self, **more: Any) -> None:
        """A frame: the rows that have ended since the last one, and where things are."""
        rows, self._rows = self._rows, []
        frame = orjson.dumps({
            "rows": [to_list(row) for row in rows], "issued": self._issued, "active": self._active, **more,
        })  # fmt: skip
        self._out.write(struct.pack("<I", len(frame)) + frame)

    async def tell_often(self) -> None:
        """Frames for as long as it runs."""
        while True:
            await asyncio.sleep(_TELL_S)
            self.tell()

    def lag(self) -> dict[str, float]:
        """Of the event loop, see `machine.lags_of`."""
        return lags_of(self._lags)

    def connections(self) -> dict[str, int]:
        """How many were opened while the load ran, and how many requests were sent again for one that was closed."""
        return {"opened": self._opened, "resent": self._resent}


_FIELDS: Final = tuple(one.name for one in fields(RequestRow) if one.name not in ("chunks", "reasoning"))


def to_list(row: RequestRow) -> list[Any]:
    """A row for a frame."""
    return [*(getattr(row, name) for name in _FIELDS), b2a_base64(row.chunks.tobytes(), newline=False).decode()]


def from_list(values: list[Any]) -> RequestRow:
    """The row of a frame."""
    row = RequestRow(**dict(zip(_FIELDS, values[:-1], strict=True)))
    row.chunks.frombytes(a2b_base64(values[-1]))
    return row


class _Out(asyncio.BaseProtocol):
    """Standard output, and when all of it has left."""

    def __init__(self, closed: asyncio.Event) -> None:
        self._closed = closed

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed."""
        del exc
        self._closed.set()


async def _main() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 28)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    closed = asyncio.Event()
    out, _ = await loop.connect_write_pipe(lambda: _Out(closed), sys.stdout.buffer)
    process = Process(orjson.loads(await reader.readline()), out)
    go: asyncio.Future[int] = loop.create_future()
    work = asyncio.create_task(_work(process, go))
    obeying = asyncio.create_task(_obey(process, reader, go, work))
    with contextlib.suppress(asyncio.CancelledError):
        await work
    obeying.cancel()
    out.close()
    await closed.wait()  # The last frame has to leave before the process does.


async def _work(process: Process, go: asyncio.Future[int]) -> None:
    telling = asyncio.create_task(process.tell_often())
    try:
        await process.prepare()
        process.tell(ready=True)
        start = await go
        cpu = time.process_time()
        await process.measure(start)
    finally:
        telling.cancel()
    wall = (monotonic_ns() - start) / 1e9
    process.tell(done={
        "cpu_s": time.process_time() - cpu, "wall_s": wall, "lag": process.lag(), **process.connections(),
    })  # fmt: skip


async def _obey(
    process: Process, reader: asyncio.StreamReader, go: asyncio.Future[int], work: asyncio.Task[None]
) -> None:
    while words := (await reader.readline()).split():
        if words[0] == b"go" and not go.done():
            go.set_result(int(words[1]))
        elif words[0] == b"stop":
            process.stopped.set()
    work.cancel()


def main() -> None:
    """Run until the load or standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        import uvloop
    except ImportError:
        asyncio.run(_main())
    else:
        uvloop.run(_main())


if __name__ == "__main__":
    main()

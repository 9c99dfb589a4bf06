"""The processes of the load generator, from the side of who started them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
import sys
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final, Self

import orjson

from remuda.base.errors import InputError, Unavailable
from remuda.bench import load as loads
from remuda.bench.generator.machine import Pressure, cores, pressure
from remuda.bench.generator.process import from_list

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.bench.generator.http_stream import RequestTarget
    from remuda.bench.generator.reading import RequestRow
    from remuda.bench.generator.trace import Trace
    from remuda.bench.load import Auto, Load
    from remuda.bench.probe import Fitted

#: One process carries so many streams; beyond that there are more, up to `_MOST`.
_STREAMS: Final = 128
_MOST: Final = 4
#: Where this package lies.
_HOME: Final = str(Path(__file__).parents[3])
#: Descriptors of a process beside its connections.
_SPARE: Final = 64
#: In which a process ends that was told to.
_END_S: Final = 5.0
#: Between saying `go` and the start.
_LEAD_S: Final = 0.1
#: Turns of a quarter of a second in which a process may say nothing.
_SILENT_TURNS: Final = 80


@dataclass(frozen=True)
class Punctuality:
    """How the client itself did while a load ran.

    Attributes:
        processes: how many.
        cores: CPUs it could use.
        cpu_share: of one core, the busiest process.
        cpu_s: all processes' CPU time.
        lag_p50_s, lag_p99_s, lag_max_s: of the worst event loop.
        throttled_s: held back by its control group; -1 where that is not known.
        waiting_share: of the time in which something on this machine waited for a CPU; -1 where that is not known.
        opened: connections opened while the load ran.
        resent: requests sent once more, because the server closed the kept connection that they were sent on.
    """

    processes: int = 1
    cores: int = 1
    cpu_share: float = 0.0
    cpu_s: float = 0.0
    lag_p50_s: float = 0.0
    lag_p99_s: float = 0.0
    lag_max_s: float = 0.0
    throttled_s: float = -1.0
    waiting_share: float = -1.0
    opened: int = 0
    resent: int = 0


@dataclass
class LoadProgress:
    """Where a load is, for a progress line."""

    seconds: float = 0.0
    issued: int = 0
    active: int = 0
    rows: list[RequestRow] = field(default_factory=list)
    """Measured ones that have ended."""
    is_warming: bool = True
    line: str = ""
    """What is said in place of these numbers."""


@dataclass(frozen=True)
class LoadOutcome:
    """What a load gave."""

    start: int
    """In ns of CLOCK_MONOTONIC."""
    rows: list[RequestRow]
    warm: list[RequestRow]
    client: Punctuality


def processes_for(load: Load, issued: int) -> int:
    """How many processes carry a load; of an open one without a bound so many are issued."""
    streams = load.concurrency or min(issued, 4 * _STREAMS)
    return max(1, min(_MOST, cores() - 1, -(-streams // _STREAMS)))


def check_descriptors(load: Load, count: int) -> None:
    """Refuse what would fail in its middle.

    Raises:
        InputError: a process may not open that many connections.
    """
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = -(-load.concurrency // count) + _SPARE
    if most != resource.RLIM_INFINITY and needed > most:
        raise InputError(
            f"{load.concurrency} connections in {count} processes need {needed} open files each, "
            f"and the limit is {most}",
            where="--concurrency",
            hint="raise it with `ulimit -Hn`, or ask for less",
        )


class Crew:
    """Starts the processes, listens, and collects.

    Args:
        load: what they offer.
        place: the endpoint.
        model: as it names it.
        fitted: what probes found.
        prompts: seed of the prompts; empty for the load's own.
        auto: how much is measured where the load says nothing of it.
        trace: what the load was made of, if that is a record.
    """

    def __init__(
        self, load: Load, place: RequestTarget, model: str, fitted: Fitted, *, prompts: str = "",
        auto: Auto = loads.DEFAULT_AUTO, trace: Trace | None = None,
    ) -> None:  # fmt: skip
        self._load = load
        times = loads.arrivals(load, auto, trace) if load.is_open else []
        self._count = processes_for(load, len(times))
        self._plan = {
            "load": load.to_json(), "model": model, "forced": fitted.forced, "counted": fitted.counted,
            "processes": self._count,
            "prompts": prompts or str(load.seed),
            "fit": fitted.fit,
            "place": place,
            "arrivals": times,
            "trace": trace,
        }  # fmt: skip
        self._found: list[asyncio.subprocess.Process] = []
        self._warm: list[RequestRow] = []
        self._done: list[dict[str, Any]] = []
        self._counts: dict[int, tuple[int, int]] = {}
        self._silent: dict[int, int] = {}
        self._ready = asyncio.Semaphore(0)
        self.live = LoadProgress()

    async def __aenter__(self) -> Self:
        """Start them.

        Raises:
            InputError: they could not open enough connections.
        """
        check_descriptors(self._load, self._count)
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (_HOME, os.environ.get("PYTHONPATH"))))}
        for number in range(self._count):
            # A session of its own: Ctrl-C is ours to obey, and it ends when its standard input does.
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "remuda.bench.generator.process", stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE, start_new_session=True, limit=1 << 26, env=env,
            )  # fmt: skip
            self._found.append(process)
            assert process.stdin is not None
            process.stdin.write(orjson.dumps({**self._plan, "process": number}) + b"\n")
        return self

    async def __aexit__(self, *_: object) -> None:
        """They end when their standard input does; what does not is killed."""
        for process in self._found:
            if process.stdin is not None:
                process.stdin.close()
        for process in self._found:
            try:
                async with asyncio.timeout(_END_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()

    async def run(self, *, enough: Callable[[LoadProgress], bool], show: Callable[[LoadProgress], None]) -> LoadOutcome:
        """Warm up, run the load, and wait for what is under way at its end.

        Args:
            enough: asked four times a second whether to issue no more.
            show: called as often.

        Raises:
            Unavailable: a process of the client has died or hangs.
        """
        readers = [asyncio.create_task(self._listen(number, process)) for number, process in enumerate(self._found)]
        try:
            await self._all_ready(readers, show)
            before, start = pressure(), monotonic_ns() + int(_LEAD_S * 1e9)
            self._say(b"go %d\n" % start)
            self.live.is_warming = False
            is_stopped = False
            while not all(task.done() for task in readers):
                await asyncio.wait(readers, timeout=0.25, return_when=asyncio.FIRST_EXCEPTION)
                self._raise(readers)
                self._listen_for_life(readers)
                self.live.seconds = max(0.0, (monotonic_ns() - start) / 1e9)
                show(self.live)
                if not is_stopped and enough(self.live):
                    self._say(b"stop\n")
                    is_stopped = True
            self._raise(readers)
            return LoadOutcome(start, self.live.rows, self._warm, self._client(pressure().since(before)))
        finally:
            for task in readers:
                task.cancel()
            await asyncio.gather(*readers, return_exceptions=True)

    def _listen_for_life(self, readers: list[asyncio.Task[None]]) -> None:
        """Notice a process that stands still: it reports four times a second, whatever the endpoint does.

        Turns are counted, not seconds: who is stopped together with its processes has missed nothing.

        Raises:
            Unavailable: one has said nothing for `_SILENT_TURNS` turns.
        """
        for number, task in enumerate(readers):
            self._silent[number] = 0 if task.done() else self._silent.get(number, 0) + 1
            if self._silent[number] > _SILENT_TURNS:
                raise Unavailable("a process of the load generator hangs", hint="measure again; this point is not kept")

    async def _all_ready(self, readers: list[asyncio.Task[None]], show: Callable[[LoadProgress], None]) -> None:
        ready = 0
        while ready < self._count:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.25):
                    await self._ready.acquire()
                    ready += 1
            self._raise(readers)
            self._listen_for_life(readers)
            show(self.live)

    def _raise(self, readers: list[asyncio.Task[None]]) -> None:
        for task in readers:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error

    def _say(self, line: bytes) -> None:
        for process in self._found:
            if process.stdin is not None and not process.stdin.is_closing():
                process.stdin.write(line)

    async def _listen(self, number: int, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while True:
            try:
                (size,) = struct.unpack("<I", await process.stdout.readexactly(4))
                frame = orjson.loads(await process.stdout.readexactly(size))
            except asyncio.IncompleteReadError:
                code = await process.wait()
                words = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
                raise Unavailable(f"a process of the load generator {words}") from None
            self._silent[number] = 0
            for values in frame["rows"]:
                row = from_list(values)
                (self.live.rows if row.index >= 0 else self._warm).append(row)
            self._counts[number] = frame["issued"], frame["active"]
            self.live.issued = sum(issued for issued, _ in self._counts.values())
            self.live.active = sum(active for _, active in self._counts.values())
            if "ready" in frame:
                self._ready.release()
            if "done" in frame:
                self._done.append(frame["done"])
                return

    def _client(self, added: Pressure) -> Punctuality:
        wall = max(1e-9, *(item["wall_s"] for item in self._done))
        lags = [item["lag"] for item in self._done]
        return Punctuality(
            processes=self._count,
            cores=cores(),
            cpu_share=max(item["cpu_s"] for item in self._done) / wall,
            cpu_s=sum(item["cpu_s"] for item in self._done),
            lag_p50_s=max(lag["p50"] for lag in lags),
            lag_p99_s=max(lag["p99"] for lag in lags),
            lag_max_s=max(lag["max"] for lag in lags),
            throttled_s=added.throttled_us / 1e6 if added.throttled_us >= 0 else -1.0,
            waiting_share=min(1.0, added.waited_us / 1e6 / wall) if added.waited_us >= 0 else -1.0,
            opened=sum(item["opened"] for item in self._done),
            resent=sum(item["resent"] for item in self._done),
        )

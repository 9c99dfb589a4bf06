"""One job from its request to its output; the only part that knows all others."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda.base.endpoint import redirected, refused
from remuda.base.errors import Interrupted, Rejected, RemudaError
from remuda.batch.endpoint import ask_slots
from remuda.batch.input.feed import Feed
from remuda.batch.output import checkpoint as store
from remuda.batch.output.lock import BEAT_S, take_lock, take_output
from remuda.batch.output.output import OutputPass
from remuda.batch.pipeline.answer import RowError, Transient
from remuda.batch.pipeline.ask import Asker
from remuda.batch.pipeline.breaker import Breaker
from remuda.batch.pipeline.concurrency import START, Limiter
from remuda.batch.pipeline.perform import performer_for
from remuda.batch.pipeline.pipeline import Pipeline, PipelineLimits
from remuda.batch.pipeline.queue_metrics import read_queue
from remuda.batch.prepare import Connection, Prepared, open_checkpoint, open_connection, prepare
from remuda.batch.progress import Progress, Rates, RowCounters, write_progress
from remuda.batch.request import DEFAULT_BOUND, JobRequest, Summary
from remuda.batch.threads import collecting_seldom, in_thread
from remuda.wire.fields import alike

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from remuda.batch.job import SwarmJob
    from remuda.batch.output.checkpoint import Checkpoint
    from remuda.batch.output.lock import FolderLock, OutputLock

_log = logging.getLogger(__name__)
_PROGRESS_S = 0.5
_SCRAPE_S = 2.0
#: Where a bound that the user gave begins; above it the limiter has to earn more.
_START_BOUND = 256


def run_job(
    request: JobRequest, on_progress: Callable[[Progress], None] | None = None, *, job: SwarmJob | None = None
) -> Summary:
    """Run a batch job to its end.

    Args:
        request: what to do.
        on_progress: called about twice a second with where it stands, from the thread that runs the job.
        job: an instance to use instead of the class that the request names.

    Returns:
        What came of it. `Summary.failed` above zero means that some rows carry an error; all output is written.

    Raises:
        InputError: the request, the input or the job's module is wrong.
        Conflict: the checkpoint is in use, or belongs to other settings.
        Unavailable: the endpoint does not answer, or went away for longer than rows wait.
        Rejected: the endpoint refuses the key or the model.
        StorageFull: the checkpoint cannot be written; finished rows are kept.
        Interrupted: SIGINT, SIGTERM, or SIGHUP unless it is ignored; finished rows are kept.
    """
    work = _stoppable(run_job_async(request, on_progress, job=job))
    if not _in_loop():
        return _run_loop(work)
    # A notebook has a loop of its own: the job gets a thread with another.
    with ThreadPoolExecutor(1, thread_name_prefix="job") as pool:
        return pool.submit(_run_loop, work).result()


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _run_loop(work: Coroutine[Any, Any, Summary]) -> Summary:
    import uvloop

    with collecting_seldom(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


async def _stoppable(work: Coroutine[Any, Any, Summary]) -> Summary:
    task = asyncio.create_task(work)
    numbers = _stop_signals() if threading.current_thread() is threading.main_thread() else ()
    loop = asyncio.get_running_loop()
    for number in numbers:
        loop.add_signal_handler(number, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        hint = "type the same command again to go on"
        raise Interrupted("the job was stopped; finished rows are kept", hint=hint) from None
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def _stop_signals() -> tuple[signal.Signals, ...]:
    """SIGHUP is among them, unless the job was started by `nohup` and is to outlive its terminal."""
    ignores = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM) if ignores else (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def run_job_async(
    request: JobRequest, on_progress: Callable[[Progress], None] | None = None, *, job: SwarmJob | None = None
) -> Summary:
    """As `run_job`, inside a running event loop and without signal handlers; cancel it to stop it cleanly."""
    run = _Run(request, on_progress)
    try:
        return await run.whole(job)
    except asyncio.CancelledError:
        run.say("stopped", "stopped; the same command resumes it")
        raise
    except RemudaError as error:
        run.say("failed", error.message)
        raise
    except Exception as error:
        broken = run.broken(error)
        run.say("failed", broken.message)
        raise broken from error
    finally:
        await run.close()


class _Run:
    """The state of one `run_job_async`."""

    def __init__(self, request: JobRequest, on_progress: Callable[[Progress], None] | None) -> None:
        self._request = request
        self._on_progress = on_progress
        self._began = self._told = time.monotonic()
        self._rates = Rates(self._began)
        self._connection: Connection | None = None
        self._job: SwarmJob | None = None
        self._lock: FolderLock | None = None
        self._output_lock: OutputLock | None = None
        self._beating: asyncio.Task[None] | None = None
        self._checkpoint: Checkpoint | None = None
        self._feed: Feed | None = None
        self._pipeline: Pipeline | None = None
        self._total: int | None = None
        self._state = "preparing"
        self._is_new = False
        """Whether this run made the checkpoint folder: nobody else's work is in it."""

    async def whole(self, given: SwarmJob | None) -> Summary:
        """Everything in order."""
        self._connection = open_connection(self._request)
        ready = await prepare(self._request, self._connection, given)
        self._job = ready.job
        self._total = ready.source.total
        self._checkpoint = await self._open(ready)
        if empty := ready.source.empty:
            count = "an input file is empty" if len(empty) == 1 else f"{len(empty)} input files are empty; the first"
            self._checkpoint.notes.append(f"{count}: {empty[0]}")
        if ready.source.bad:
            count = f"lines that are not rows and get an error: {ready.source.bad}"
            self._checkpoint.notes.append(f"{count}; the first is {ready.source.first_bad}")
        self._output_pass(ready, self._checkpoint).try_out()
        self.say("reading", "; ".join(self._checkpoint.notes))
        feed = self._feed = self._make_feed(ready, self._checkpoint)
        await feed.fill()
        if feed.ready:
            await self._see_endpoint(ready)
            await self._ask_all(ready, self._checkpoint, feed)
        self._total = feed.seen
        return await self._write(ready, self._checkpoint, feed)

    async def _open(self, ready: Prepared) -> Checkpoint:
        request = self._request
        if request.checkpointing:
            is_new = not request.checkpoint_path().exists()
            self._lock = await take_lock(request.checkpoint_path(), request.owner)
            self._is_new = is_new and self._lock.is_alone()  # another job may have made it meanwhile
        self._beating = asyncio.create_task(self._beat())
        self._output_lock = await take_output(ready.target.path, request.owner)
        folder = self._lock.folder if self._lock is not None else store.temporary_folder(ready.target.path)

        def work(stop: threading.Event) -> Checkpoint:
            # Here, so that it is closed when the job is stopped meanwhile.
            self._checkpoint = made = open_checkpoint(ready, self._lock, folder, stop)
            return made

        try:
            return await in_thread(work)
        except BaseException:
            if self._lock is None and self._checkpoint is None:
                shutil.rmtree(folder, ignore_errors=True)
            raise

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            for lock in (self._lock, self._output_lock):
                if lock is not None:
                    lock.beat()

    def _make_feed(self, ready: Prepared, checkpoint: Checkpoint) -> Feed:
        request = self._request
        pandas = request.data_backend == "pandas"
        # A user's own job may mind which rows its calls hold: only those who say so get another order unasked.
        order = "input" if request.order == "auto" and not ready.job.likes_order else request.order
        feed = Feed(ready.source, checkpoint, ready.column, id_column=request.id_column, pandas=pandas, order=order)
        feed.retry_errors = self._request.retry_errors
        return feed

    async def _see_endpoint(self, ready: Prepared) -> None:
        connection = self._connection
        if connection is not None and type(ready.job).asks and not connection.answered:
            if connection.address is not None:
                self.say("waiting", "for the endpoint to answer")
            await connection.models()

    async def _ask_all(self, ready: Prepared, checkpoint: Checkpoint, feed: Feed) -> None:
        job, connection = ready.job, self._connection
        asker = Asker(connection.transport, api_key=connection.api_key) if connection is not None else None
        performer = performer_for(job, asker.ask if asker else None, batch=self._request.native_batch_size)
        rules = PipelineLimits(job.retries, job.timeout, self._request.endpoint_wait_s, max(1, job.checkpoint_interval))
        limiter = await self._make_limiter(job, feed)
        pipeline = self._pipeline = Pipeline(feed, checkpoint, performer, rules, limiter, Breaker())
        pipeline.on_tick = self._tick
        if asker is not None:
            pipeline.clean = asker.clean
        scraper: asyncio.Task[None] | None = None
        if connection is not None and type(job).asks:
            pipeline.is_well = self._is_well
            pipeline.on_refused = self._on_refused
            pipeline.is_coming = connection.is_coming
            scraper = asyncio.create_task(self._follow_queue(connection, limiter))
        try:
            await pipeline.run()
        finally:
            if scraper is not None:
                scraper.cancel()
            with contextlib.suppress(RemudaError):
                checkpoint.flush()
                checkpoint.sync()

    async def _make_limiter(self, job: SwarmJob, feed: Feed) -> Limiter:
        """A limiter; with prefix order it gets as many lanes as the engines have slots, else as requests in flight."""
        bound = job.max_concurrency
        start = min(bound, _START_BOUND) if bound else START
        maximum = bound or DEFAULT_BOUND
        if feed.ready.chosen == "prefix":
            slots = await self._slots()
            if slots < 0 and self._request.order == "auto":
                # Lanes that share a slot drive each other out of its cache: worse than no order.
                feed.ready.keep_input()
            if slots > 0:
                # One more than there are slots would wait for a free one, and take that of another lane.
                maximum = bound or slots
                start = min(start, maximum)
            feed.ready.lanes = slots if slots > 0 else start
        return Limiter(maximum, start=start, timeout_s=job.timeout)

    async def _slots(self) -> int:
        known = self._request.slots
        if known is None and self._connection is not None:
            known = await ask_slots(self._connection.transport)
        return -1 if known is None else known

    def _on_refused(self, error: RowError) -> RemudaError | None:
        connection, pipeline = self._connection, self._pipeline
        assert connection is not None
        assert pipeline is not None
        if error.status == 401:
            return refused(connection.where, error.status)
        if 300 <= error.status < 400:
            return redirected(connection.where, error.message)
        # Refused before anything was ever answered: the model or the address is wrong, not the row.
        if error.status in {403, 404} and not pipeline.counters.answered and not pipeline.feed.skipped:
            return Rejected(f"{connection.where} refuses every request: {error.message}", hint="is --model right?")
        return None

    async def _is_well(self) -> bool:
        assert self._connection is not None
        for path in ("/health", "/v1/models"):
            try:
                async with asyncio.timeout(5.0):
                    reply = await self._connection.transport.get(path)
            except (Transient, TimeoutError):
                return False
            if reply.status != 404:
                return reply.status == 200
        return False

    async def _follow_queue(self, connection: Connection, limiter: Limiter) -> None:
        """Give the limiter the engine's own queue, where it shows one."""
        while True:
            await asyncio.sleep(_SCRAPE_S)
            try:
                async with asyncio.timeout(5.0):
                    reply = await connection.transport.get("/metrics")
            except (Transient, TimeoutError):
                continue
            queue = read_queue(reply.body.decode("utf-8", "replace")) if reply.status == 200 else None
            if queue is None:
                return
            limiter.on_queue(*queue)

    async def _write(self, ready: Prepared, checkpoint: Checkpoint, feed: Feed) -> Summary:
        request, done = self._request, self._pipeline.counters.finished if self._pipeline else 0
        mark = checkpoint.folder / "output.json"
        stamp = {"log": checkpoint.size, "rows": feed.seen, "added": list(ready.layout.added)}
        stamp |= {"output": request.output, "files": request.num_threads, "options": str(request.write_kwargs)}
        stamp["input"] = ready.source.identity()
        known = store.read_json(mark) if not done else {}
        if known and known.get("stamp") == stamp and known.get("files") == _files(known.get("files", {})):
            self.say("done")
            return self._summary(ready, feed, done, int(known.get("failed", 0)), kept=True)
        self.say("writing")
        work = self._output_pass(ready, checkpoint)
        writing = asyncio.ensure_future(asyncio.to_thread(work.run, feed.seen))
        try:
            made = await asyncio.shield(writing)
        except asyncio.CancelledError:
            # The thread reads the checkpoint: nothing may be closed before it has stopped.
            work.stop.set()
            with contextlib.suppress(RemudaError):
                await writing
            raise
        if self._lock is not None:
            files = _files([str(path.resolve()) for path in made])
            store.write_json(mark, {"stamp": stamp, "files": files, "failed": work.failed})
        self.say("done")
        return self._summary(ready, feed, done, work.failed, kept=False)

    @staticmethod
    def _output_pass(ready: Prepared, checkpoint: Checkpoint) -> OutputPass:
        return OutputPass(ready.source, checkpoint, ready.target, ready.layout, ready.column)

    def _summary(self, ready: Prepared, feed: Feed, done: int, failed: int, *, kept: bool) -> Summary:
        counters = self._pipeline.counters if self._pipeline else RowCounters()
        return Summary(
            **alike(Summary, counters),
            rows=feed.seen,
            done=done,
            skipped=feed.skipped,
            failed=failed,
            seconds=time.monotonic() - self._began,
            output=str(ready.target.path),
            checkpoint=str(self._lock.folder) if self._lock is not None else "",
            output_kept=kept,
            order=feed.ready.chosen or "input",
            lanes=feed.ready.lanes if feed.ready.chosen == "prefix" else 0,
            notes=tuple(self._checkpoint.notes) if self._checkpoint is not None else (),
            asked_again=self._connection.hearing.again if self._connection is not None else 0,
        )

    def _tick(self) -> None:
        if time.monotonic() - self._told >= _PROGRESS_S:
            pipeline = self._pipeline
            waiting = pipeline is not None and pipeline.breaker.open_since is not None
            if waiting and self._connection is not None:
                self._connection.check()
            pause = pipeline.pause() if pipeline is not None else ""
            reason = pipeline.breaker.reason if waiting and pipeline is not None else pause
            self.say("waiting" if waiting or pause else "running", reason)

    def say(self, state: str, note: str = "") -> None:
        """Tell whoever listens where the job stands."""
        self._state = state
        if self._checkpoint is None:
            return
        self._told = now = time.monotonic()
        progress = self._progress(state, note, now)
        if self._lock is not None:
            write_progress(self._checkpoint.folder, progress)
        if self._on_progress is not None:
            self._on_progress(progress)

    def broken(self, error: Exception) -> RemudaError:
        """The sentence for what nobody foresaw: where it happened, and what is kept."""
        _log.debug("the job broke", exc_info=error)
        request, rows = self._request, self._feed.seen if self._feed is not None else 0
        place = {
            "preparing": f"preparing job {request.job} over {request.input}",
            "writing": f"writing {request.output}",
        }.get(self._state, f"working on {request.input} (rows up to {rows} were read)")
        words = str(error).strip().partition("\n")[0][:500]
        return RemudaError(
            f"the job broke while {place}: {type(error).__name__}{': ' if words else ''}{words}",
            hint="finished rows are kept: re-run the same command once that is fixed",
        )

    def _progress(self, state: str, note: str, now: float) -> Progress:
        pipeline, feed = self._pipeline, self._feed
        counters = pipeline.counters if pipeline else RowCounters()
        rows_per_s, tokens_per_s = self._rates.add(now, counters.finished, counters.completion_tokens)
        skipped = feed.skipped if feed else 0
        done = skipped + counters.finished
        left = None if self._total is None else self._total - done
        return Progress(
            **alike(Progress, counters),
            name=self._request.name,
            state=state,
            done=done,
            total=self._total,
            skipped=skipped,
            failed=counters.rejected,
            rows_per_s=rows_per_s,
            tokens_per_s=tokens_per_s,
            in_flight=pipeline.in_flight if pipeline else 0,
            concurrency=pipeline.limiter.limit if pipeline else 0,
            eta_s=left / rows_per_s if left is not None and rows_per_s > 0 else None,
            elapsed_s=now - self._began,
            note=note,
        )

    async def close(self) -> None:
        """Let go of everything, whatever state it is in."""
        if self._feed is not None:
            self._feed.close()
        if self._job is not None:
            await self._job.close()
        if self._connection is not None:
            await self._connection.transport.close()
        if self._checkpoint is not None:
            self._checkpoint.close()
        if self._is_new and self._state == "failed" and not self._pipeline and not self._request.owner:
            # Refused before the first row: nothing is in it, and the next try may be with other settings.
            shutil.rmtree(self._request.checkpoint_path(), ignore_errors=True)
        if self._beating is not None:
            self._beating.cancel()
        for lock in (self._output_lock, self._lock):
            if lock is not None:
                lock.release()


def _files(paths: list[str] | dict[str, list[int]]) -> dict[str, list[int]]:
    """Sizes and modification times (ns) of output files; a missing one is left out."""
    found = {}
    for name in paths:
        with contextlib.suppress(OSError):
            stat = Path(name).stat()
            found[name] = [stat.st_size, stat.st_mtime_ns]
    return found

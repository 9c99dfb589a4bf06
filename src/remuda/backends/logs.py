"""Output of tasks as text: read beside the event loop, once for all who follow a file, in bounded memory.

A file is its own buffer: each follower has a place in it and reads on when it has got rid of what it had. Those at
its end share what is read. Who is so slow that files are rotated away before it has come to them is told so.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Final, TypeVar

from remuda.backends.base import Log
from remuda.backends.logfile import BLOCK, LogFile, clean
from remuda.wire.place import Place

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
    from pathlib import Path

    from remuda.backends.logfile import Block

T = TypeVar("T")

_LOOK_AGAIN_S = 0.2
_KEPT: Final = 2
"""Files under one name that are held open: the one that has it, and the one that had it before."""
_CACHED: Final = 4
"""Blocks of a file that are kept for those that come to the same place a moment later."""
_THREADS: Final = 2


class Logs:
    """The files that are being read. One instance per event loop and kind of file; not thread-safe."""

    def __init__(self) -> None:
        self.open: dict[Path, _Shared] = {}
        """What somebody reads now."""
        self._turn = asyncio.Lock()

    def read(
        self,
        path: Path,
        tail: int = 0,
        ended: Callable[[], Awaitable[None]] | None = None,
        after: Place | None = None,
    ) -> Log:
        """A file's last `tail` lines (0: all), and with `ended` new ones until that returns.

        An absent file has no lines yet. A last line without an end comes at the end.

        Args:
            path: the file, under this name however often it is rotated, cut or replaced.
            tail: only the last so many of what is there; 0: all.
            ended: waits until nothing more is written; called once for all who follow at the same time.
            after: only what comes behind this place, also where the file was rotated once since.
        """
        reader = _LogReader(tail, after)
        blocks = self._follow(path, reader, ended) if ended is not None else self._once(path, reader)
        return Log(self._in_turn(blocks), lambda: reader.place)

    async def _in_turn(self, blocks: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        """One block at a time, whoever reads: between two of them the loop does what else there is to do."""
        async with aclosing(blocks):
            async for block in blocks:
                async with self._turn:
                    await asyncio.sleep(0)
                yield block

    async def _once(self, path: Path, reader: _LogReader) -> AsyncGenerator[bytes, None]:
        with self._shared(path) as shared:
            if block := await reader.begin(shared, count_rest=True):
                yield block
            end = reader.file.size if reader.file is not None else 0
            while reader.at < end and (block := await reader.more()):
                yield block
            if block := reader.end():
                yield block

    async def _follow(
        self, path: Path, reader: _LogReader, ended: Callable[[], Awaitable[None]]
    ) -> AsyncGenerator[bytes, None]:
        with self._shared(path) as shared:
            block = await reader.begin(shared, count_rest=False)
            if block or reader.is_at_end:  # who follows is told where that is, before anything comes
                yield block
            shared.watch(ended)
            while True:
                news, is_over = shared.news, shared.is_over
                while block := await reader.more():
                    yield block
                told = reader.turn()
                if told:
                    yield told
                elif told is None and is_over:
                    break
                elif told is None:
                    await news.wait()
            if block := reader.end():
                yield block

    @contextmanager
    def _shared(self, path: Path) -> Iterator[_Shared]:
        shared = self.open.setdefault(path, _Shared(path))
        shared.readers += 1
        try:
            yield shared
        finally:
            shared.readers -= 1
            if not shared.readers:
                del self.open[path]
                shared.close()


class _Shared:
    """One name of a file, and what all its readers have in common."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.readers = 0
        self.file: LogFile | None = None
        self.is_over = False
        """Nothing is written any more, and it was looked at since."""
        self.news = asyncio.Event()
        """Set when there may be more; then another takes its place."""
        self.fault: OSError | None = None
        """Why it could not be opened at the last look."""
        self._files: list[LogFile] = []
        self._blocks: OrderedDict[tuple[LogFile, int], Block] = OrderedDict()
        self._coming: dict[tuple[LogFile, int], asyncio.Future[Block]] = {}
        self._looking: asyncio.Future[None] | None = None
        self._watch: asyncio.Task[None] | None = None

    async def look(self) -> None:
        """Find out what the file is now; who asks while that is being done waits for the same answer."""
        if self._looking is None:
            self._looking = asyncio.ensure_future(self._look())
        await asyncio.shield(self._looking)

    async def _look(self) -> None:
        try:
            before = (self.file, self.file.size if self.file is not None else 0)
            now, self.fault = await _run(_look, self.path, self.file)
            if now is not None and now is not self.file:
                self._take(now)
            if before != (self.file, self.file.size if self.file is not None else 0):
                self.tell()
        finally:
            self._looking = None

    def _take(self, file: LogFile) -> None:
        if not self.readers:  # all left meanwhile
            _pool().submit(file.close)
            return
        if self.file is not None:
            self.file.next = file
        self.file = file
        self._files.append(file)
        for old in self._files[:-_KEPT]:
            _pool().submit(old.close)
        del self._files[:-_KEPT]

    async def earlier(self) -> LogFile | None:
        """The file that had this name before."""
        old, _ = await _run(_look, self.path.with_name(f"{self.path.name}.1"), None)
        if old is not None:
            self._files.insert(0, old)  # it is closed with the others
            old.next = self.file
        return old

    async def block(self, file: LogFile, at: int) -> Block:
        """What lies there: read once for all who ask for it at about the same time.

        Raises:
            OSError: it cannot be read, or was rotated away.
        """
        place = (file, at)
        known = self._blocks.get(place)
        if known is not None:
            return known
        coming = self._coming.get(place)
        if coming is None:
            coming = asyncio.ensure_future(self._read(file, at))
            self._coming[place] = coming
        return await asyncio.shield(coming)

    async def _read(self, file: LogFile, at: int) -> Block:
        try:
            block = await _run(file.block, at)
        finally:
            self._coming.pop((file, at), None)
        if block.text:
            self._blocks[file, at] = block
            while len(self._blocks) > _CACHED:
                self._blocks.popitem(last=False)
        return block

    def watch(self, ended: Callable[[], Awaitable[None]]) -> None:
        """Look again and again until `ended` returns."""
        if self._watch is None:
            self._watch = asyncio.create_task(self._keep(ended), name=f"log {self.path}")

    async def _keep(self, ended: Callable[[], Awaitable[None]]) -> None:
        end = asyncio.ensure_future(ended())
        try:
            while not self.is_over:
                is_over = end.done()
                await self.look()
                self.is_over = is_over
                if is_over:
                    self.tell()
                else:
                    await asyncio.wait({end}, timeout=_LOOK_AGAIN_S)
        finally:
            self.is_over = True
            self.tell()
            end.cancel()

    def tell(self) -> None:
        """Wake all who wait for more."""
        self.news.set()
        self.news = asyncio.Event()

    def close(self) -> None:
        """Nobody reads it any more."""
        if self._watch is not None:
            self._watch.cancel()
        for file in self._files:
            _pool().submit(file.close)


class _LogReader:
    """One who reads: its place in a file."""

    def __init__(self, tail: int, after: Place | None) -> None:
        self.file: LogFile | None = None
        self.at = 0
        self.rest = b""
        """What is known of a line that is not complete."""
        self._carried = b""
        """The part of it that lies in an earlier file."""
        self._carried_from = Place()
        self._digest = 0
        self._has_complained = False
        self._tail = tail
        self._after = after

    @property
    def is_at_end(self) -> bool:
        """Whether there was nothing more at the last look."""
        return self.file is None or self.at >= self.file.size

    @property
    def place(self) -> Place:
        """Up to where whole lines were read."""
        if self._carried:
            return self._carried_from
        return Place(self.file.inode if self.file is not None else 0, self.at, digest=self._digest)

    async def begin(self, shared: _Shared, *, count_rest: bool) -> bytes:
        """Go to where reading begins; a line for the reader where the file, or what came before, cannot be read."""
        self._shared = shared
        await shared.look()
        self.file = shared.file
        try:
            if self._after is not None and self._after.inode:
                return await self._go_on(self._after)
            if self.file is not None and self._tail and self._after is None:
                self.at = await _run(partial(self.file.start_of, self._tail, count_rest=count_rest))
        except OSError as error:
            return self._complain(error)
        return self._complain(shared.fault) if shared.fault is not None else b""

    async def _go_on(self, after: Place) -> bytes:
        """Go to a place that an earlier reader came to."""
        now = self.file
        if now is None or not await _run(now.holds, after):
            self.file = await self._shared.earlier()
        if self.file is None or not await _run(self.file.holds, after):
            self.file = now
            return _remark("what was written since was rotated away")
        self.at, self._digest = after.at, after.digest
        return b""

    async def more(self) -> bytes:
        """The next whole lines; empty at the end of a file, and where one was cut or is not held any more."""
        if self.file is None or self.file.is_cut or self.file.is_closed:
            return b""
        try:
            block = await self._shared.block(self.file, self.at)
        except OSError as error:
            return b"" if self.file.is_closed else self._complain(error)
        if not block.text:
            self.rest = self._carried + block.rest
            return b""
        text, self.at, self._digest = self._carried + block.text, block.next, block.digest
        self._carried = self.rest = b""
        return text

    def turn(self) -> bytes | None:
        """Go on in the file that has come after; what to tell of that, None where there is none."""
        old, new = self.file, self._shared.file if self.file is None else self.file.next
        if new is None:
            return None
        missed = max(0, old.size - self.at) if old is not None and old.is_closed else 0
        while new.is_closed and new.next is not None:
            missed, new = missed + new.size, new.next
        carried_from = self.place
        self.file, self.at, self._digest = new, 0, 0
        if (old is not None and old.is_cut) or missed or len(self.rest) > BLOCK:
            return self.last() + (_remark(f"{missed} bytes were rotated away before they were read") if missed else b"")
        self._carried, self._carried_from = self.rest, carried_from
        return b""

    def end(self) -> bytes:
        """`last`, where nothing more will come."""
        self.at, self._digest = self.at + len(self.rest) - len(self._carried), 0
        return self.last()

    def last(self) -> bytes:
        """The line without an end, as a line; empty where there is none."""
        rest, self.rest, self._carried = self.rest, b"", b""
        return clean(rest + b"\n") if rest else b""

    def _complain(self, error: OSError) -> bytes:
        """A line that says why nothing comes, once."""
        if self._has_complained:
            return b""
        self._has_complained = True
        return _remark(f"{self._shared.path} cannot be read: {error.strerror or error}")


async def until_dead(lives: Callable[[], bool], every_s: float = _LOOK_AGAIN_S) -> None:
    """Return when `lives()` says no."""
    while lives():  # noqa: ASYNC110 - nobody tells: it is looked for
        await asyncio.sleep(every_s)


def _remark(text: str) -> bytes:
    """A line that is not the task's own."""
    return f"--- {text} ---\n".encode()


def _look(path: Path, file: LogFile | None) -> tuple[LogFile | None, OSError | None]:
    """The file that has that name now: `file` while nothing has taken its place. Waits for the disk."""
    try:
        if file is None or file.is_replaced(path):
            return LogFile.open(path) or file, None
    except OSError as error:
        return file, error
    return file, None


@cache
def _pool() -> ThreadPoolExecutor:
    """Threads of its own: a file system that hangs keeps only those waiting who read from it."""
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="logs")


async def _run(call: Callable[..., T], *args: object) -> T:
    return await asyncio.get_running_loop().run_in_executor(_pool(), call, *args)

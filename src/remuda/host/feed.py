"""What changes on the board, for all who look: one look, one difference and one encoding, none while nobody looks."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from remuda.base.errors import RemudaError
from remuda.views.columns import is_news

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Sequence

    from remuda.host.board import Board, Delta

    Story = Callable[[int | None], Sequence[dict[str, Any]]]

_LOG = logging.getLogger("remuda.host")
TICK_S: Final = 0.1
NUMBERS_S: Final = 1.0
"""Between two looks at numbers."""
MANY_ROWS, MANY_S = 5_000, 5.0
"""The same where there are more rows than that."""
RING, RING_BYTES = 600, 32 << 20
"""So many deltas are kept for those who come back, and no more than that of their text."""
QUEUE: Final = 64
"""A viewer that is so many frames behind is closed; it may come back by the id of its last one."""
VIEWERS: Final = 64
"""So many may follow the stream at once: each has a descriptor of the host, also one that hangs."""
BEAT_S: Final = 15.0
AGAIN_S: Final = 2
"""After so many seconds a viewer whose stream has ended comes back."""
SCHEMA: Final = 1
TOPICS: Final = ("board", "events")


class FeedFrame(NamedTuple):
    """One message to viewers."""

    event: str
    """`snapshot`, `delta`, `events` or `bye`."""
    data: bytes
    """JSON."""
    id: str = ""
    """Where a viewer is that has it; empty: where it was."""


class Viewer:
    """One that looks.

    Args:
        topics: what it wants to see.
        since: id of the last frame of the board that it has had; empty: a snapshot is wanted.
        after: id of the last line of stories that it has had; None: only new ones are wanted.
        close: ends it, as it does not read.
    """

    def __init__(
        self, topics: Collection[str] = ("board",), since: str = "", after: int | None = None,
        close: Callable[[], object] = lambda: None,
    ) -> None:  # fmt: skip
        self.topics, self.since, self.after, self.close = topics, since, after, close
        self.frames: asyncio.Queue[FeedFrame] = asyncio.Queue(QUEUE)

    async def next(self, wait_s: float) -> FeedFrame | None:
        """The next frame; None: there is none for so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                return await self.frames.get()
        return None


class BoardFeed:
    """Frames of one host. Not thread-safe: for its event loop.

    Args:
        board: what is looked at.
        fence: number of the host's lease.
        now: the host's clock.
        story: lines of all stories with a higher id than that, the newest ones; None: the newest line alone.
    """

    def __init__(self, board: Board, fence: int, now: Callable[[], float], story: Story) -> None:
        self.epoch = f"{fence}-{secrets.token_hex(4)}"
        """Ids of another host, or of another life of this one, mean nothing here."""
        self.version = 0
        self._board, self._now, self._story = board, now, story
        self._ring: deque[tuple[int, FeedFrame]] = deque(maxlen=RING)
        self._ring_bytes = 0
        self._snapshot = FeedFrame("", b"")
        self._line: int | None = None
        """Id of the last line of stories that was told; None: nobody wants to see them."""
        self.viewers: set[Viewer] = set()
        self._numbers_at = 0.0
        self._ticking: asyncio.Task[None] | None = None
        self._bye: FeedFrame | None = None

    async def frames(self, viewer: Viewer) -> AsyncGenerator[FeedFrame | None, None]:
        """What a viewer is told, for as long as it asks; None where there was nothing for a while."""
        try:
            for one in self.join(viewer):
                yield one
            is_over = False
            while not is_over:
                frame = await viewer.next(BEAT_S)
                is_over = frame is not None and frame.event == "bye"
                yield frame
        finally:
            self.leave(viewer)

    async def next(self, viewer: Viewer, wait_s: float) -> list[FeedFrame]:
        """What it is told as soon as there is something; none where nothing changes for so long."""
        try:
            frames = self.join(viewer)
            if not frames and (frame := await viewer.next(wait_s)) is not None:
                frames.append(frame)
            return frames
        finally:
            self.leave(viewer)

    def join(self, viewer: Viewer) -> list[FeedFrame]:
        """What a new viewer is told first; from then on its queue has everything."""
        self.tick(numbers=True)
        known = self.missed(viewer.since) if "board" in viewer.topics else []
        if "events" in viewer.topics:
            known += self._begin_lines(viewer.after)
        self.viewers.add(viewer)
        if self._bye is not None:
            viewer.frames.put_nowait(self._bye)
        elif self._ticking is None or self._ticking.done():
            self._ticking = asyncio.get_running_loop().create_task(self._tick_on(), name="board")
        return known

    def leave(self, viewer: Viewer) -> None:
        """Tell it nothing more."""
        self.viewers.discard(viewer)

    async def end(self) -> None:
        """Say that the host ends, and wait a moment until it was heard."""
        self._bye = FeedFrame("bye", orjson.dumps({"reason": "the host ends", "again_in_s": AGAIN_S}))
        self._tell("", self._bye)
        if self._ticking is not None:
            self._ticking.cancel()
        for _ in range(10):
            if self.viewers:
                await asyncio.sleep(0.02)

    async def _tick_on(self) -> None:
        while self.viewers:
            await asyncio.sleep(TICK_S)
            try:
                self.tick()
            except Exception:  # noqa: BLE001 - a bug here is no reason to tell nobody anything any more
                _LOG.exception("what has changed could not be told")
                await asyncio.sleep(NUMBERS_S)

    def tick(self, *, numbers: bool = False) -> None:
        """Look once, and tell everybody what has changed: numbers too when that is due, or with `numbers`."""
        now = self._now()
        every = NUMBERS_S if len(self._board.rows) <= MANY_ROWS else MANY_S
        is_due = numbers or not 0 <= now - self._numbers_at < every
        if is_due:
            self._numbers_at = now
        delta = self._board.look(numbers=is_due)
        if delta:
            self._keep(delta, now)
        if is_due or any(map(is_news, delta.values())):
            self._tell_lines()

    def _keep(self, delta: Delta, now: float) -> None:
        self.version += 1
        frame = FeedFrame("delta", orjson.dumps({"at": now, "rows": delta}), f"{self.epoch}.{self.version}")
        if len(self._ring) == RING:
            self._ring_bytes -= len(self._ring[0][1].data)
        self._ring.append((self.version, frame))
        self._ring_bytes += len(frame.data)
        while self._ring_bytes > RING_BYTES:
            self._ring_bytes -= len(self._ring.popleft()[1].data)
        self._tell("board", frame)

    def missed(self, since: str) -> list[FeedFrame]:
        """What has to be told behind an id: the deltas since, or a snapshot where they are not kept."""
        epoch, _, number = since.rpartition(".")
        oldest = self._ring[0][0] if self._ring else self.version + 1
        if epoch == self.epoch and number.isdecimal() and oldest - 1 <= int(number) <= self.version:
            return [frame for version, frame in self._ring if version > int(number)]
        if self._snapshot.id != (newest := f"{self.epoch}.{self.version}"):
            data = orjson.dumps({"at": self._now(), "schema": SCHEMA, "rows": self._board.rows})
            self._snapshot = FeedFrame("snapshot", data, newest)
        return [self._snapshot]

    def _begin_lines(self, after: int | None) -> list[FeedFrame]:
        """What one is told first that wants to see lines of stories."""
        self._tell_lines()
        if self._line is None:
            newest = self._story(None)
            self._line = int(newest[-1]["id"]) if newest else 0
        lines = [] if after is None else self._story(after)
        return [FeedFrame("events", orjson.dumps(lines))] if lines else []

    def _tell_lines(self) -> None:
        if not any("events" in viewer.topics for viewer in self.viewers):
            self._line = None
        elif self._line is not None:
            with suppress(RemudaError):  # the database does not answer: they come later
                if lines := self._story(self._line):
                    self._line = int(lines[-1]["id"])
                    self._tell("events", FeedFrame("events", orjson.dumps(lines)))

    def _tell(self, topic: str, frame: FeedFrame) -> None:
        for viewer in [viewer for viewer in self.viewers if not topic or topic in viewer.topics]:
            try:
                viewer.frames.put_nowait(frame)
            except asyncio.QueueFull:
                self.leave(viewer)
                viewer.close()

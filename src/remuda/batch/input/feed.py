"""The rows that are still to be done, as a bounded stream."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from remuda.batch.input.digest import content_digests
from remuda.batch.output.index import digest_id
from remuda.batch.pipeline.order import RowOrder

if TYPE_CHECKING:
    from remuda.batch.input.source import Chunk, Source
    from remuda.batch.output.checkpoint import Checkpoint

    #: A chunk, and the digests of its rows.
    _Read = tuple[Chunk, list[bytes]]


@dataclass(slots=True)
class InputRow:
    """One row on its way.

    Attributes:
        position: global input position from 0.
        item: value of the input column, or the `BadLine` in its place.
        key: how its record begins in the checkpoint.
        failures: tries that failed and count.
        is_probe: it is asked alone, to see whether the endpoint answers.
        answered: rows that had been answered when it last failed.
    """

    position: int
    item: Any
    key: bytes
    failures: int = 0
    is_probe: bool = False
    answered: int = 0


class Feed:
    """Reads chunks ahead in a thread, one at a time, and keeps what is not done yet.

    Attributes:
        ready: rows to take, in the order in which they are to be asked.
        seen: rows of the input passed so far.
        skipped: rows among them that were done before.
        exhausted: whether the input has ended.
    """

    def __init__(
        self,
        source: Source,
        checkpoint: Checkpoint,
        column: str,
        *,
        id_column: str,
        pandas: bool,
        order: str = "input",
    ) -> None:
        self.ready = RowOrder(order)
        self.seen = 0
        self.skipped = 0
        self.exhausted = False
        self.retry_errors = False
        self._checkpoint = checkpoint
        self._column = column
        self._id_column = id_column
        self._pandas = pandas
        names = [column] if not id_column else list(dict.fromkeys([column, id_column]))
        # Digests are made in the thread, too: those of long rows take their time.
        self._chunks = ((chunk, content_digests(chunk, column)) for chunk in source.chunks(names))
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rows")
        self._filling = False
        self._next: asyncio.Future[_Read | None] | None = None

    async def fill(self) -> None:
        """Get rows into `ready`; returns when there are some or the input has ended."""
        self._filling = True
        try:
            while not self.ready and not self.exhausted:
                read = await (self._next or self._read_ahead())
                self._next = None
                if read is None:
                    self._end()
                    return
                self._next = self._read_ahead()
                self._take(*read)
        finally:
            self._filling = False

    def top_up(self) -> None:
        """Get rows into `ready` if a chunk has been read already; never waits."""
        if self._next is not None and self._next.done() and not self._filling:
            read = self._next.result()
            self._next = None
            if read is None:
                self._end()
            else:
                self._next = self._read_ahead()
                self._take(*read)

    def _end(self) -> None:
        self.exhausted = True
        self.ready.end()

    def close(self) -> None:
        """Stop reading; what the read ahead found wrong is nobody's concern any more."""
        if self._next is not None:
            self._next.add_done_callback(lambda future: future.cancelled() or future.exception())
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _read_ahead(self) -> asyncio.Future[_Read | None]:
        return asyncio.get_running_loop().run_in_executor(self._thread, lambda: next(self._chunks, None))

    def _take(self, chunk: Chunk, digests: list[bytes]) -> None:
        self.seen += chunk.rows
        names = chunk.values(self._id_column) if self._id_column else None
        is_due, retry = self._checkpoint.is_due, self.retry_errors
        todo = [n for n, content in enumerate(digests) if is_due(chunk.first + n, content, retry_errors=retry)]
        self.skipped += chunk.rows - len(todo)
        if not todo:
            return
        items, first = self._items(chunk), chunk.first
        rows = []
        for n in todo:
            name = (first + n).to_bytes(8, "little") if names is None else digest_id(names[n])
            rows.append(InputRow(first + n, chunk.bad.get(n, items[n]), name + digests[n]))
        self.ready.add(rows)

    def _items(self, chunk: Chunk) -> list[Any]:
        if not self._pandas:
            return chunk.values(self._column)
        from remuda.batch.input.frames import pandas_items

        return pandas_items(chunk.values(self._column) if chunk.batch is None else chunk.batch.column(self._column))

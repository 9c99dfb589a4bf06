"""One try of some rows, whatever kind of job it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from remuda.batch.input.lines import BadLine
from remuda.batch.job import SwarmJob, split_result
from remuda.batch.jobs import RequestJob
from remuda.batch.pipeline.answer import RowAnswer, RowError, Transient
from remuda.batch.pipeline.lenient import excerpt
from remuda.batch.pipeline.retry import judge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from remuda.batch.input.feed import InputRow
    from remuda.batch.jobs import Ask

#: What one try of one row came to.
Outcome = RowAnswer | RowError | Transient


class Performer(Protocol):
    """Tries rows. `size` rows go into one try at most."""

    size: int

    async def one(self, row: InputRow) -> Outcome:
        """Try one row; raises nothing but cancellation."""
        ...

    async def many(self, rows: Sequence[InputRow]) -> list[Outcome]:
        """Try several rows at once; outcomes in their order."""
        ...


def _refused(row: InputRow, column: str) -> RowError | None:
    """Why a row is not asked at all, None where it is."""
    if row.item is None:
        return RowError(f"the input column {column!r} is null")
    return RowError(row.item.message) if isinstance(row.item, BadLine) else None


class _Heard:
    """The last reply of one row, so that an error in reading it can carry the server's words."""

    __slots__ = ("_ask", "_reply")

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._reply: dict[str, Any] | None = None

    async def ask(self, path: str, body: bytes) -> dict[str, Any]:
        self._reply = None
        self._reply = reply = await self._ask(path, body)
        return reply

    def judge(self, error: Exception) -> RowError | Transient:
        """What an exception means that nobody foresaw."""
        if self._reply is None:
            return judge(error)
        words = f"{type(error).__name__}: {error}"
        return RowError(f"the answer cannot be read ({words}): {excerpt(self._reply)}")


class LeanPerformer:
    """Built-in jobs: straight from the item to the request."""

    size = 1

    def __init__(self, job: RequestJob, ask: Ask) -> None:
        self._answer = job.answer
        self._column = job.input_column_name
        self._ask = ask

    async def one(self, row: InputRow) -> Outcome:
        """See `Performer.one`."""
        if (refused := _refused(row, self._column)) is not None:
            return refused
        heard = _Heard(self._ask)
        try:
            return await self._answer(row.item, heard.ask)
        except (RowError, Transient) as error:
            return error
        except Exception as error:  # noqa: BLE001 - a row must not end the job
            return heard.judge(error)

    async def many(self, rows: Sequence[InputRow]) -> list[Outcome]:
        """See `Performer.many`."""
        return [await self.one(row) for row in rows]


class ItemsPerformer:
    """Users' jobs: `transform_items`, or `transform_streaming` where the class has its own."""

    def __init__(self, job: SwarmJob, *, batch: int) -> None:
        """`batch` items go into one call; 0 means one, or the checkpoint interval for a streaming job."""
        self._job = job
        self._names = job.output_names
        self._column = job.input_column_name
        self._streams = type(job).transform_streaming is not SwarmJob.transform_streaming
        self.size = batch or (max(1, job.checkpoint_interval) if self._streams else 1)

    async def one(self, row: InputRow) -> Outcome:
        """See `Performer.one`."""
        if self._streams:
            return (await self.many([row]))[0]
        if (refused := _refused(row, self._column)) is not None:
            return refused
        try:
            results = await self._job.transform_items([row.item])
            return self._answers(results, 1)[0]
        except Exception as error:  # noqa: BLE001 - a row must not end the job
            return judge(error)

    async def many(self, rows: Sequence[InputRow]) -> list[Outcome]:
        """See `Performer.many`. One row's lasting error does not take the others with it: they are tried alone."""
        outcomes: list[Outcome | None] = [_refused(row, self._column) for row in rows]
        asked = [index for index, refused in enumerate(outcomes) if refused is None]
        found = await self._call([rows[index].item for index in asked])
        if len(asked) > 1 and not self._streams and any(isinstance(outcome, RowError) for outcome in found):
            found = [await self.one(rows[index]) for index in asked]
        for index, outcome in zip(asked, found, strict=True):
            outcomes[index] = outcome
        return [outcome for outcome in outcomes if outcome is not None]

    async def _call(self, items: list[Any]) -> list[Outcome]:
        made: dict[int, Outcome] = {}
        try:
            if not self._streams:
                return self._answers(await self._job.transform_items(items), len(items))
            async for index, result in self._job.transform_streaming(items):
                made[index] = RowAnswer(split_result(result, self._names))
            rest: Outcome = RowError("the job gave no result for this row")
        except Exception as error:  # noqa: BLE001 - a row must not end the job
            rest = judge(error)
        return [made.get(index, rest) for index in range(len(items))]

    def _answers(self, results: Any, count: int) -> list[Outcome]:
        if not isinstance(results, (list, tuple)) or len(results) != count:
            got = f"{len(results)} results" if isinstance(results, (list, tuple)) else type(results).__name__
            raise RowError(f"transform_items returned {got} for {count} items")
        return [RowAnswer(split_result(result, self._names)) for result in results]


def performer_for(job: SwarmJob, ask: Ask | None, *, batch: int) -> Performer:
    """The way to perform `job`: lean unless the class overrides what the lean path leaves out."""
    if isinstance(job, RequestJob) and ask is not None:
        kind = type(job)
        own = (
            kind.transform_items is not RequestJob.transform_items
            or kind.transform_streaming is not SwarmJob.transform_streaming
        )
        if not own:
            return LeanPerformer(job, ask)
    return ItemsPerformer(job, batch=batch)

"""Ending jobs, however many: one look at the queue, and one call for each thousand of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from remuda.backends.slurm.gathered import Gathered
from remuda.backends.slurm.observing import Queue, is_alive

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from remuda.backends.base import Handle, Stray
    from remuda.backends.slurm.client import SlurmClient
    from remuda.backends.slurm.files import RunDirectories
    from remuda.backends.slurm.parsing.parse import QueueLine


class Ender:
    """Ends allocations of one cluster.

    Args:
        client: how to talk to Slurm.
        files: of this state directory.
    """

    def __init__(self, client: SlurmClient, files: RunDirectories) -> None:
        self._client = client
        self._files = files
        self._cancels: Gathered[tuple[Handle, bool]] = Gathered(self._cancel_all)
        self._removals: Gathered[tuple[Stray, bool]] = Gathered(self._remove_all)

    async def cancel(self, handle: Handle, *, force: bool) -> None:
        """End a job, or kill it; one that has not begun leaves the queue. See `SlurmBackend.cancel`.

        Raises:
            BackendUnreachable: no answer.
        """
        await self._cancels.ask((handle, force))

    async def remove(self, stray: Stray, *, force: bool) -> None:
        """End the job with that id if it still has that name; ids are given out again.

        Raises:
            BackendUnreachable: no answer.
        """
        await self._removals.ask((stray, force))

    async def _cancel_all(self, asked: Sequence[tuple[Handle, bool]]) -> Sequence[Exception | None]:
        # Before the queue is looked at: what comes into it later ends at once.
        claims = await asyncio.to_thread(self._files.bury_all, [handle.token for handle, _ in asked])
        queue = Queue(await self._client.queue())
        ends = [
            [] if isinstance(claim, Exception) else _to_end(_lines(queue, handle), began=claim.pid > 0, force=force)
            for (handle, force), claim in zip(asked, claims, strict=True)
        ]
        failed = await self._end_all(ends)
        return [claim if isinstance(claim, Exception) else error for claim, error in zip(claims, failed, strict=True)]

    async def _remove_all(self, asked: Sequence[tuple[Stray, bool]]) -> Sequence[Exception | None]:
        queue = Queue(await self._client.queue())
        ends = [
            _to_end((line for line in queue.named(stray.token) if line.job_id == stray.native), began=True, force=force)
            for stray, force in asked
        ]
        return await self._end_all(ends)

    async def _end_all(self, ends: Sequence[Sequence[tuple[QueueLine, bool]]]) -> list[Exception | None]:
        """End these jobs, those with True politely; what went wrong for each of `ends`."""
        all_of = list(
            {(line.job_id, is_polite): (line, is_polite) for pairs in ends for line, is_polite in pairs}.values()
        )
        politely, hard = ([line for line, is_polite in all_of if is_polite is how] for how in (True, False))
        said = await asyncio.gather(self._client.end(politely, politely=True), self._client.end(hard, politely=False))
        failed: dict[str, Exception] = said[0] | said[1]
        if hard and not failed and all(line.state == "PENDING" for line, _ in all_of):
            self._client.look_at_once()  # what waited has left the queue by now; what ran would need a while
        return [next((failed[line.job_id] for line, _ in pairs if line.job_id in failed), None) for pairs in ends]


def _lines(queue: Queue, handle: Handle) -> list[QueueLine]:
    line = queue.line(handle)
    return [line] if line is not None else [] if handle.native else queue.named(handle.token)


def _to_end(lines: Iterable[QueueLine], *, began: bool, force: bool) -> list[tuple[QueueLine, bool]]:
    """Those that live, each with whether its node program is asked to end it."""
    return [(line, began and not force and line.state == "RUNNING") for line in lines if is_alive(line)]

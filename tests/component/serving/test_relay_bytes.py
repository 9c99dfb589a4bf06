"""The table of requests over real connections: what a router got and a client was told, read by the strict reader."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.component.serving.relaying import ScriptedRouter, Talk, on_both_loops, relaying, until
from tests.relaycases import REQUESTS
from tests.relaysim import Message, read_answers, read_requests, say_ok

if TYPE_CHECKING:
    from pathlib import Path


class Recording:
    """A router that answers what it got whole, and never expects anything else."""

    def __init__(self) -> None:
        self.seen: list[Message] = []
        self.bad: list[bytes] = []
        self.router = ScriptedRouter(self._handle)

    async def _handle(self, talk: Talk) -> None:
        data, count = b"", 0
        while more := await talk.reader.read(1 << 20):
            data += more
            found, state = read_requests(data)
            if state == "bad":
                self.bad.append(data)
            for request in found[count:]:
                self.seen.append(request)
                await talk.say(say_ok(len(self.seen) - 1, request))
            count = len(found)


@on_both_loops
async def test_all_requests_of_the_table(tmp_path: Path) -> None:
    """Each on a connection of its own, whose client says all of it and ends its side."""
    wrong = []
    async with relaying(tmp_path) as bench:
        recording = Recording()
        await bench.front(recording.router)
        for case in REQUESTS:
            recording.seen.clear()
            talk = await bench.client()
            await talk.say(case.data)
            if case.later:
                await until(lambda: recording.seen and not bench.counters.in_flight)
                await talk.say(case.later)
            await talk.end()
            said = await talk.rest()
            answers = read_answers(said, [request.first[0] for request in recording.seen])
            told = tuple(int(answer.first[0]) for answer in answers)
            seen = tuple(b" ".join((request.first[1], request.body)).strip() for request in recording.seen)
            if (told, seen) != (case.told, case.seen):
                wrong.append((case.name, told, seen))
            talk.close()
        assert not wrong
        assert not recording.bad
        async with asyncio.timeout(120):
            while bench.relay.room.clients:
                await asyncio.sleep(0.01)
        assert bench.relay._budget.used == 0

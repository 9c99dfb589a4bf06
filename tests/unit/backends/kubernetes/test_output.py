"""Output that is asked for again and again, to the second: nothing twice, and nothing left out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from remuda.backends.kubernetes.output import Keeper, Place
from remuda.backends.left import Left

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

TIMES = st.lists(st.integers(0, 30), min_size=1, max_size=40).map(sorted)


def stamp(tenths: int) -> str:
    """As servers write times: zeros at the end are left out."""
    fraction = f".{tenths % 10}" if tenths % 10 else ""
    return f"2026-11-01T10:00:{tenths // 10:02}{fraction}Z"


@given(TIMES, st.lists(st.integers(0, 40), max_size=6))
def test_whatever_was_there_when_it_was_asked(times: list[int], cuts: list[int]) -> None:
    lines = [f"{stamp(at)} line {number}\n".encode() for number, at in enumerate(times)]
    place, taken = Place("u"), b""
    for end in [*sorted(cuts), len(lines)]:
        since = place.asked()
        taken += place.new(b"".join(line for line in lines[:end] if line[:19].decode() >= since[:19]))
        place = Place(place.pod, place.at, place.count)  # as another host reads it
    assert taken == b"".join(f"line {number}\n".encode() for number in range(len(lines)))


def test_a_line_in_pieces_is_one() -> None:
    place = Place("u")
    place.asked()
    assert place.new(b"2026-11-01T10:00:00.5Z 10%\r20%") + place.new(b"\r30%\n2026-11-01T10:00:01Z g\n") == (
        b"10%\r20%\r30%\ng\n"
    )


def test_a_node_has_a_zone_of_its_own_and_words_of_its_own() -> None:
    place = Place("u")
    place.asked()
    block = b"2026-11-01T12:00:00.000000001+02:00 a\nunable to retrieve container logs\n"
    assert place.new(block) == b"a\n"
    assert place.asked() == "2026-11-01T10:00:00Z"
    assert place.new(block + b"2026-11-01T12:00:00.000000002+02:00 b\n") == b"b\n"


class Server:
    """Whose answers end when they are let."""

    def __init__(self) -> None:
        self.asked: list[bool] = []
        self.answers = asyncio.Event()

    async def log(self, name: str, *, container: str, since: str, follow: bool) -> AsyncIterator[bytes]:
        self.asked.append(follow)
        yield b"2026-11-01T10:00:00Z begun\n"
        await (asyncio.Event() if follow else self.answers).wait()


async def test_nobody_waits_behind_somebody_who_follows(tmp_path: Path) -> None:
    server, keeper, pod = Server(), Keeper(Left(tmp_path)), {"metadata": {"name": "p", "uid": "u"}}

    async def fetch(*, follow: bool) -> None:
        client: Any = server
        await keeper.fetch(client, pod, "w.script.0.1.abcdefgh", follow=follow)

    first = asyncio.create_task(fetch(follow=False))
    while not server.asked:
        await asyncio.sleep(0)
    follower = asyncio.create_task(fetch(follow=True))
    await asyncio.sleep(0)
    await asyncio.wait_for(fetch(follow=False), 10)
    server.answers.set()
    await first
    while server.asked != [False, True]:
        await asyncio.sleep(0)
    await asyncio.wait_for(fetch(follow=False), 10)
    follower.cancel()
    await asyncio.wait({follower})
    await asyncio.wait_for(fetch(follow=False), 10)
    assert server.asked == [False, True, False]
    keeper.forget(set())
    assert not keeper._followed

"""The server that nodes of a fleet talk to: whose connections it keeps, and what is left of those that have ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiohttp
import pytest
from tests.ports import free_port

from remuda.base.errors import Rejected
from remuda.fleet import certificate
from remuda.host.fleet.server import MOST_OF_ONE, FleetServer
from remuda.wire.fleet import PATH

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


def known(said: str) -> str:
    if not said.startswith("Key "):
        raise Rejected("nobody knows it")
    return said.removeprefix("Key ")


async def answer(verb: str, name: str, _said: str, _body: bytes) -> str:
    return f"{verb} of {name}"


class Door:
    """A server that listens, and clients of it with a connection each."""

    def __init__(self, path: Path) -> None:
        certificate.make(path / "head.pem")
        self.server, self.port = FleetServer(path / "head.pem", known, answer), free_port()
        self.server.open("127.0.0.1", self.port)
        self.clients: list[aiohttp.ClientSession] = []

    async def ask(self, key: str, client: aiohttp.ClientSession | None = None) -> tuple[int, str]:
        if client is None:
            client = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False, limit=1))
            self.clients.append(client)
        url, headers = f"https://127.0.0.1:{self.port}{PATH}/beat", {"Authorization": key}
        async with client.post(url, headers=headers) as response:
            return response.status, await response.text()

    def kept(self) -> dict[str, int]:
        return {name: len(lines) for name, lines in self.server._members.items() if lines}

    async def until(self, kept: dict[str, int]) -> None:
        async with asyncio.timeout(60):
            while self.kept() != kept or len(self.server._lines) != sum(kept.values()):
                await asyncio.sleep(0.01)


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    one = Door(tmp_path)
    yield one
    for client in one.clients:
        await client.close()
    await one.server.close()


async def test_a_member_has_few_connections_and_those_that_ended_are_forgotten(door: Door) -> None:
    for _ in range(MOST_OF_ONE):
        assert await door.ask("Key box") == (200, "beat of box")
    assert await door.ask("Key other") == (200, "beat of other")
    await door.until({"box": MOST_OF_ONE, "other": 1})
    assert (await door.ask("Key box", door.clients[0]))[0] == 200, "one that is used is not the oldest any more"
    await door.ask("Key box")
    await door.until({"box": MOST_OF_ONE, "other": 1})
    await door.clients[1].close()  # it was closed by the server: the fifth took its place
    await door.until({"box": MOST_OF_ONE, "other": 1})
    for client in (door.clients[0], door.clients[2], door.clients[4]):
        await client.close()
    await door.until({"box": MOST_OF_ONE - 2})
    assert (await door.ask("Token x"))[0] == 403
    await door.until({"box": MOST_OF_ONE - 2})

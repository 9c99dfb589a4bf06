"""Whatever comes in whatever pieces: selectors, pages and logs are what was meant."""

from __future__ import annotations

import asyncio
import string
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any

from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes.clock import FakeClock

from remuda.backends.kubernetes.client import KubernetesClient
from remuda.backends.kubernetes.config import Access
from remuda.base.errors import BackendUnreachable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

words = st.text(string.ascii_letters + string.digits + "-_./=!,() &?#%+;:'\"\\\n\tü€", max_size=40)


@asynccontextmanager
async def asking(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[KubernetesClient]:
    """A client of a server that answers like that."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    client = KubernetesClient(Access(f"http://127.0.0.1:{port}", "ml"), FakeClock())
    try:
        yield client
    finally:
        await client.close()
        await runner.cleanup()


@given(st.lists(words, min_size=1, max_size=20))
def test_a_selector_arrives_as_it_was_meant(selectors: list[str]) -> None:
    async def main() -> None:
        asked: list[dict[str, str]] = []

        async def answer(request: web.Request) -> web.StreamResponse:
            asked.append(dict(request.query))
            return web.json_response({"kind": "PodList", "items": []})

        async with asking(answer) as client:
            for selector in selectors:
                await client.list("pods", selector)
        assert [one.get("labelSelector", "") for one in asked] == selectors
        assert {one["limit"] for one in asked} == {"500"}

    asyncio.run(main())


@given(st.lists(st.integers(0, 3), max_size=6), st.lists(st.sampled_from(["fine", "expired", "changed"]), max_size=30))
@settings(max_examples=200)
def test_pages_are_one_list_or_none(sizes: list[int], turns: list[str]) -> None:
    """The server forgets lists, and what there is changes between them: never twice, never half."""

    async def main() -> None:
        left, version = iter(turns), [0]
        seen: set[int] = set()

        def page(number: int, of: int) -> dict[str, Any]:
            items = [{"metadata": {"name": f"v{of}-p{number}-{one}"}} for one in range((sizes or [0])[number])]
            going_on = f"{of}/{number + 1}" if number + 1 < len(sizes) else ""
            return {"kind": "PodList", "metadata": {"continue": going_on} if going_on else {}, "items": items or None}

        async def answer(request: web.Request) -> web.StreamResponse:
            turn = next(left, "fine")
            version[0] += turn == "changed"
            token = request.query.get("continue", "")
            if token and turn == "expired":
                return web.json_response({"kind": "Status", "reason": "Expired", "message": "old"}, status=410)
            of, number = (int(word) for word in token.split("/")) if token else (version[0], 0)
            seen.add(of)
            return web.json_response(page(number, of))

        async with asking(answer) as client:
            try:
                found = [one["metadata"]["name"] for one in await client.list("pods")]
            except BackendUnreachable:
                assert turns.count("expired") >= 3
                return
        wanted = [[f"v{of}-p{number}-{one}" for number, size in enumerate(sizes) for one in range(size)] for of in seen]
        assert found in wanted

    asyncio.run(main())


@given(st.lists(st.binary(max_size=30).map(lambda text: text.replace(b"\x00", b"\n")), max_size=20))
def test_a_log_comes_in_whole_lines(pieces: list[bytes]) -> None:
    async def main() -> None:
        async def answer(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            for piece in pieces:
                if piece:
                    await response.write(piece)
                    await asyncio.sleep(0)
            return response

        async with asking(answer) as client, aclosing(client.log("p", container="main")) as blocks:
            found = [block async for block in blocks]
        assert b"".join(found) == b"".join(pieces)
        assert all(found)
        assert all(block.endswith(b"\n") for block in found[:-1])

    asyncio.run(main())

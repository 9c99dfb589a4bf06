"""The API's routes for what changes: a stream of server-sent events, and the same by long polls."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Header, Query
from fastapi.responses import Response, StreamingResponse

from remuda.base.errors import InputError, Unavailable
from remuda.host.feed import AGAIN_S, TOPICS, VIEWERS, BoardFeed, Viewer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from remuda.host.feed import FeedFrame

_HEADERS = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}
Since = Annotated[str, Query(description="Id of the last frame of the board that you have; empty: a snapshot")]


def add_stream(router: APIRouter, feed: BoardFeed) -> None:
    """Add the routes."""

    @router.get("/stream", summary="What changes, as server-sent events", response_class=StreamingResponse)
    async def stream(
        topics: str = "board",
        since: Since = "",
        after: Annotated[int | None, Query(description="Id of the last line of stories that you have")] = None,
        last_event_id: Annotated[str, Header()] = "",
    ) -> StreamingResponse:
        if len(feed.viewers) >= VIEWERS:
            raise Unavailable(f"{VIEWERS} clients follow the stream already", hint="end some, or ask for /board")
        asked = asyncio.current_task()
        assert asked is not None
        frames = _text(feed, Viewer(_topics(topics), since or last_event_id, after, asked.cancel))
        return StreamingResponse(frames, media_type="text/event-stream", headers=_HEADERS)

    @router.get("/board", summary="What has changed on the board, as soon as something has", response_class=Response)
    async def board(
        since: Since = "",
        wait: Annotated[float, Query(ge=0, le=60, description="Seconds to wait for a change")] = 0.0,
    ) -> Response:
        frames = b",".join(map(_json, await feed.next(Viewer(since=since), wait)))
        return Response(b'{"frames":[' + frames + b"]}", media_type="application/json")


def _topics(words: str) -> list[str]:
    """The topics that a list of them names.

    Raises:
        InputError: there is none of that name.
    """
    topics = words.split(",")
    for word in topics:
        if word not in TOPICS:
            raise InputError(f"there is no topic {word!r}", hint=f"topics are {' and '.join(TOPICS)}")
    return topics


async def _text(feed: BoardFeed, viewer: Viewer) -> AsyncGenerator[bytes, None]:
    yield b"retry: %d\n\n" % (1000 * AGAIN_S)
    async with aclosing(feed.frames(viewer)) as frames:
        async for frame in frames:
            yield _event(frame) if frame is not None else b": beat\n\n"


def _event(frame: FeedFrame) -> bytes:
    head = f"id: {frame.id}\n" if frame.id else ""
    return f"{head}event: {frame.event}\ndata: ".encode() + frame.data + b"\n\n"


def _json(frame: FeedFrame) -> bytes:
    return f'{{"id":"{frame.id}","event":"{frame.event}","data":'.encode() + frame.data + b"}"

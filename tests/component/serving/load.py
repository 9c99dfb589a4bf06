"""A closed loop of requests, and what came back. It is driven by answers, not by time: slow machines wait longer."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_S = 300.0


@dataclass
class Outcome:
    """Counts of what clients saw."""

    answers: Counter[str] = field(default_factory=Counter)
    """`ok`, or what went wrong."""
    begun: Counter[str] = field(default_factory=Counter)
    """Answers of which the head came, by the engine that gives them."""
    engines: Counter[str] = field(default_factory=Counter)
    """Good whole answers by the engine that gave them."""


def chat(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "tiny", "messages": [{"role": "user", "content": text}], **more}


def both_answer(outcome: Outcome) -> bool:
    """A moment to act: two engines have given answers, so each has requests in flight."""
    return len(outcome.engines) == 2


async def load(
    url: str,
    *,
    in_flight: int,
    after: int,
    when: Callable[[Outcome], bool] = lambda _: True,
    action: Callable[[], object] = lambda: None,
    **body: Any,
) -> Outcome:
    """Keep `in_flight` chat requests going; run `action` once `when` says so, and end some requests later.

    Args:
        url: of the router.
        in_flight: how many clients ask without pause.
        after: how many requests each client begins after the end of `action`.
        when: looks at what came so far.
        action: runs in a thread.
        body: fields of each request.
    """
    outcome = Outcome()
    acted = asyncio.Event()

    async def one(session: aiohttp.ClientSession, number: int) -> None:
        turn, left = 0, after
        while left > 0 or not acted.is_set():
            turn += 1
            left -= acted.is_set()
            await _ask(session, url, chat(f"request {number} {turn}", **body), outcome)

    async def act() -> None:
        deadline = time.monotonic() + PATIENCE_S
        try:
            while not when(outcome):
                assert time.monotonic() < deadline, outcome
                await asyncio.sleep(0.005)
            await asyncio.to_thread(action)
        finally:
            acted.set()

    timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        await asyncio.gather(act(), *(one(session, number) for number in range(in_flight)))
    return outcome


async def _ask(session: aiohttp.ClientSession, url: str, request: dict[str, Any], outcome: Outcome) -> None:
    try:
        async with session.post(f"{url}/v1/chat/completions", json=request) as answer:
            engine = answer.headers.get("x-engine", "")
            outcome.begun[engine] += 1
            text = await answer.text()
    except (aiohttp.ClientError, TimeoutError) as error:
        outcome.answers[f"{type(error).__name__} {error}"] += 1
        return
    if answer.status != 200:
        outcome.answers[f"{answer.status} {text[:200]}"] += 1
    elif request.get("stream") and not (text.rstrip().endswith("[DONE]") and '"error"' not in text):
        outcome.answers[f"stream: {text[-300:]}"] += 1
    else:
        outcome.answers["ok"] += 1
        outcome.engines[engine] += 1

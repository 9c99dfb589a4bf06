"""A closed loop of requests, and what came back."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Outcome:
    """Counts of what clients saw."""

    answers: Counter[str] = field(default_factory=Counter)
    """`ok`, or what went wrong."""
    engines: Counter[str] = field(default_factory=Counter)
    """Good answers by the engine that gave them."""


def chat(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "tiny", "messages": [{"role": "user", "content": text}], **more}


async def load(
    url: str,
    *,
    in_flight: int,
    seconds: float,
    at: float = 0.0,
    action: Callable[[], object] = lambda: None,
    timeout_s: float = 20.0,
    **body: Any,
) -> Outcome:
    """Keep `in_flight` chat requests going for `seconds`; run `action` after `at` seconds."""
    outcome = Outcome()
    end = time.monotonic() + seconds
    timeout = aiohttp.ClientTimeout(total=timeout_s)

    async def one(session: aiohttp.ClientSession, number: int) -> None:
        turn = 0
        while time.monotonic() < end:
            turn += 1
            request = chat(f"request {number} {turn}", **body)
            try:
                async with session.post(f"{url}/v1/chat/completions", json=request, timeout=timeout) as answer:
                    text = await answer.text()
            except (aiohttp.ClientError, TimeoutError) as error:
                outcome.answers[f"{type(error).__name__} {error}"] += 1
                continue
            if answer.status != 200:
                outcome.answers[f"{answer.status} {text[:200]}"] += 1
            elif body.get("stream"):
                clean = text.rstrip().endswith("[DONE]") and '"error"' not in text
                outcome.answers["ok" if clean else f"stream: {text[-300:]}"] += 1
            else:
                outcome.answers["ok"] += 1
                outcome.engines[answer.headers.get("x-engine", "")] += 1

    async def act() -> None:
        await asyncio.sleep(at)
        await asyncio.to_thread(action)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(act(), *(one(session, number) for number in range(in_flight)))
    return outcome

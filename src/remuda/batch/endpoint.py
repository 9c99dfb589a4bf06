"""What a first question tells about an endpoint."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import orjson

from remuda.base.endpoint import redirected, refused
from remuda.base.errors import Unavailable
from remuda.batch.pipeline.answer import Transient
from remuda.batch.pipeline.lenient import count

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from remuda.batch.pipeline.transport import Reply, Transport

#: How long a job waits at its start for an endpoint that does not listen (yet).
START_WAIT_S = 3.0
#: What servers whose requests share one prompt cache call themselves in `/v1/models`.
_ONE_CACHE = frozenset({"vllm", "sglang"})
_TRY_S = 10.0
#: Whoever says more is not believed.
_MOST_SLOTS = 4096


async def ask_models(
    transport: Transport,
    endpoint: str,
    *,
    wait_s: float = START_WAIT_S,
    check: Callable[[], None] = lambda: None,
    is_coming: Callable[[], bool] = lambda: False,
) -> list[str]:
    """Names of the models that the endpoint serves; empty when it has no `/v1/models`.

    Args:
        transport: to it.
        endpoint: its name in messages.
        wait_s: how long it is waited for.
        is_coming: asked around each question; that is over so long after the last True.
        check: called between tries; what it raises ends the wait.

    Raises:
        Unavailable: nobody answered within `wait_s` seconds.
        Rejected: the key was refused, or it points to another server.
    """
    reply = await _patient_get(transport, "/v1/models", endpoint, wait_s, check, is_coming)
    if reply.status in {401, 403}:
        raise refused(endpoint, reply.status)
    if 300 <= reply.status < 400:
        raise redirected(endpoint, f"redirects (HTTP {reply.status}) to {reply.location}")
    if reply.status != 200:
        return []
    try:
        return [str(item["id"]) for item in orjson.loads(reply.body)["data"]]
    except (ValueError, KeyError, TypeError):
        return []


async def ask_slots(transport: Transport) -> int | None:
    """How many requests the server works on at once, each with a prompt cache of its own.

    llama.cpp's server says so. 0 for servers whose requests share one cache (vLLM, SGLang); None where nobody says:
    a router in front of several servers, or a server that is not known.
    """
    try:
        async with asyncio.timeout(START_WAIT_S):
            reply = await transport.get("/props")
            if reply.status == 200:
                slots = count(orjson.loads(reply.body)["total_slots"])
                return slots if 0 < slots <= _MOST_SLOTS else None
            reply = await transport.get("/v1/models")
            owners = {str(item.get("owned_by")) for item in orjson.loads(reply.body)["data"]}
    except (Transient, TimeoutError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return 0 if owners and owners <= _ONE_CACHE else None


async def slots_of(urls: Sequence[str], key: str, wanted: int) -> int:
    """What `JobRequest.slots` says of a swarm, from one of its servers: all are alike."""
    from remuda.batch.pipeline.transport import AiohttpTransport

    if not urls:
        return -1
    transport = AiohttpTransport(urls[0], api_key=key)
    try:
        found = await ask_slots(transport)
    finally:
        await transport.close()
    return -1 if found is None else found * max(1, wanted)


async def _patient_get(
    transport: Transport,
    path: str,
    endpoint: str,
    wait_s: float,
    check: Callable[[], None],
    is_coming: Callable[[], bool],
) -> Reply:
    loop = asyncio.get_running_loop()
    until = loop.time() + wait_s
    try_s = min(max(wait_s, 0.5), _TRY_S)
    while True:
        check()
        was_coming, reason = is_coming(), ""
        try:
            async with asyncio.timeout(try_s):
                reply = await transport.get(path)
            if reply.status not in {502, 503, 504}:
                return reply
            reason = f"HTTP {reply.status}"
        except Transient as error:
            reason = error.message
        except TimeoutError:
            reason = f"no answer within {try_s:.0f} s"
        # What was coming when it was asked, and is not now, has come since: it is waited for from then on.
        if was_coming or is_coming():
            until = loop.time() + wait_s
        elif loop.time() + 0.25 > until:
            raise Unavailable(
                f"endpoint {endpoint} does not answer: {reason}",
                hint="see that it runs (`remuda status`) and that the address is right",
            )
        await asyncio.sleep(0.25)

"""What a URL, a key and a first question tell about an endpoint."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import orjson

from remuda.base.errors import InputError, Rejected, Unavailable
from remuda.base.secrets import SecretRef
from remuda.base.settings import sources
from remuda.batch.answer import Transient
from remuda.batch.lenient import count

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.batch.transport import Reply, Transport

#: How long a job waits at its start for an endpoint that does not listen (yet).
START_WAIT_S = 3.0
#: What servers whose requests share one prompt cache call themselves in `/v1/models`.
_ONE_CACHE = frozenset({"vllm", "sglang"})
_TRY_S = 10.0
_KEYS = ("OPENAI_API_KEY", "REMUDA_API_TOKEN", "DOMYN_SWARM_API_TOKEN", "API_TOKEN")
_ADDRESSES = ("OPENAI_BASE_URL", "ENDPOINT")
_OPENAI = "https://api.openai.com/v1"
#: Whoever says more is not believed.
_MOST_SLOTS = 4096


def base_url(endpoint: str) -> str:
    """The URL without `/v1` and trailing slashes.

    Raises:
        InputError: it is not an http(s) URL with a host, or carries a password.
    """
    text = endpoint.strip()
    if "://" not in text:
        text = f"http://{text}"
    parts = urlsplit(text)
    try:
        whole = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        whole = False
    if not whole:
        raise InputError(
            f"{endpoint!r} is not the URL of an endpoint", hint="write http://HOST:PORT", where="--endpoint"
        )
    if parts.username or parts.password:
        raise InputError("the endpoint's URL carries a user or password", hint="give a key by --api-key-env instead")
    path = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path}"


def default_key(endpoint: str) -> str:
    """The key that is meant for this endpoint, see `key_meant_for`; empty without one."""
    return key_meant_for(endpoint)[1]


def key_meant_for(endpoint: str) -> tuple[str, str]:
    """Name and value of the variable whose key may be shown to this endpoint unasked; two empty strings without one.

    A key goes where the same source (the environment, or one `.env` file) says that it belongs: to the endpoint that
    its `OPENAI_BASE_URL` or `ENDPOINT` names. One source's key never goes to another one's address, nor to whoever a
    flag names. `OPENAI_API_KEY` alone is meant for api.openai.com.
    """
    for _, values in sources():
        named = [values[name] for name in _ADDRESSES if values.get(name)]
        for name in _KEYS:
            meant = named or ([_OPENAI] if name == "OPENAI_API_KEY" else [])
            if values.get(name) and any(_is_same(address, endpoint) for address in meant):
                return name, values[name]
    return "", ""


def _is_same(one: str, other: str) -> bool:
    try:
        return base_url(one) == base_url(other)
    except InputError:
        return False


def read_key(endpoint: str, *, env: str, file: str) -> str:
    """The key by reference, or the one that is meant for the endpoint.

    Raises:
        InputError: the file or variable named is missing or empty.
    """
    if env or file:
        return SecretRef(file=file, env=env).read()
    return default_key(endpoint)


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


def refused(endpoint: str, status: int) -> Rejected:
    """The error for a key that an endpoint does not take."""
    return Rejected(
        f"{endpoint} refuses the API key (HTTP {status})",
        hint="name the key's variable with --api-key-env: unasked, a key goes only to the endpoint that "
        "OPENAI_BASE_URL names beside it",
    )


def redirected(endpoint: str, how: str) -> Rejected:
    """The error for an endpoint that sends its clients elsewhere; `how` is "redirects ... to URL"."""
    target = how.rpartition(" to ")[2]
    if not target.startswith(("http://", "https://")):
        hint = "see that --endpoint names the server itself, without a path"
    elif _server(target) == _server(base_url(endpoint)):
        hint = "it sends its clients back to itself; see that --endpoint has the right scheme and path, without /v1"
    else:
        hint = "a question and its key go to no other server unasked; if that is the right one, name it with --endpoint"
    return Rejected(f"{endpoint} {how}", hint=hint)


def _server(url: str) -> str:
    try:
        return urlsplit(url).netloc
    except ValueError:
        return ""


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


def pick_model(models: list[str], endpoint: str) -> str:
    """The only model served.

    Raises:
        InputError: there are several or none; the message names them.
    """
    if len(models) == 1:
        return models[0]
    if not models:
        raise InputError(f"{endpoint} does not say which model it serves", hint="name it with --model")
    raise InputError(f"{endpoint} serves several models: {', '.join(models)}", hint="choose one with --model")

"""How requests travel: a small seam, and aiohttp behind it (why: docs/decisions/0007-http-client.md)."""

from __future__ import annotations

import os
import re
import urllib.request
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from remuda.base.endpoint import base_url
from remuda.batch.pipeline.answer import Transient
from remuda.batch.pipeline.flights import Connector, Flights, NotOurs
from remuda.batch.pipeline.lenient import clean_text
from remuda.batch.pipeline.opening import Opening
from remuda.batch.pipeline.unheard import ReplyTimes

if TYPE_CHECKING:
    from collections.abc import Mapping

_CONNECT_S = 10.0
#: Larger bodies are no answers.
_LARGEST = 64 << 20
_MOST_HOPS = 5
#: Redirects after which the same body goes to the other place.
_KEEPS_QUESTION = frozenset({307, 308})


@dataclass(slots=True)
class Reply:
    """A whole HTTP answer."""

    status: int
    body: bytes
    retry_after: str = ""
    location: str = ""
    """Where an answer with a 3xx status points."""
    whole: bool = True
    """False where the body was too large and is cut."""


class Transport(Protocol):
    """Sends requests to one endpoint. Bounds on time are the caller's, who cancels."""

    async def post(self, path: str, body: bytes) -> Reply:
        """Send a JSON body to `path` (begins with `/`).

        Raises:
            Transient: no whole answer came.
        """
        ...

    async def get(self, path: str) -> Reply:
        """Fetch `path`.

        Raises:
            Transient: no whole answer came.
        """
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


_ENCODINGS: Final = "gzip, deflate"


class AiohttpTransport:
    """Keep-alive connections over aiohttp; one per request in flight.

    Args:
        endpoint: base URL.
        api_key: goes into a header and nowhere else.
        headers: sent with each request.
        hearing: what is known of the endpoint's answers; shared by all connections to it.
        is_own: whether it is a swarm of this user: then nothing is said to a program of another user on its port.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        api_key: str = "",
        headers: Mapping[str, str] | None = None,
        hearing: ReplyTimes | None = None,
        is_own: bool = False,
    ) -> None:
        """Prepare; must be called inside the event loop."""
        self._base = base_url(endpoint)
        self._urls: dict[str, URL] = {}
        self._opening = Opening()
        self._flights = Flights(hearing or ReplyTimes(), partial(self._send, "POST"))
        # Answers are small and the network is near: compressing them costs more than it saves. But a gateway that
        # compresses unasked takes what it likes best, and these two can be read here.
        fixed = {"Content-Type": "application/json", "Accept-Encoding": _ENCODINGS, **(headers or {})}
        if api_key:
            fixed["Authorization"] = f"Bearer {api_key}"
        proxy = proxy_of(self._base)
        self._session = aiohttp.ClientSession(
            connector=Connector(self._flights, is_own=is_own and not proxy),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
            headers=fixed,
            skip_auto_headers=("User-Agent",),
            **proxy,
        )

    async def get(self, path: str) -> Reply:
        """See `Transport.get`."""
        return await self._send("GET", path, None)

    async def close(self) -> None:
        """See `Transport.close`."""
        self._flights.close()
        await self._session.close()

    async def post(self, path: str, body: bytes) -> Reply:
        """See `Transport.post`. A question that nobody hears is asked once more on another connection."""
        opening = self._opening
        await opening.enter()
        try:
            reply = await self._flights.ask(path, body)
        except Transient:
            opening.leave(lost=True)
            raise
        except BaseException:
            opening.leave()
            raise
        opening.leave(heard=True)
        return reply

    async def _send(self, method: str, path: str, body: bytes | None) -> Reply:
        url = self._urls.get(path)
        if url is None:
            url = self._urls[path] = URL(self._base + path)
        for _ in range(_MOST_HOPS):
            reply, target = await self._once(method, url, body)
            if target is None:
                return reply
            if reply.status == 308:
                self._urls[path] = target
            url = target
        return reply

    async def _once(self, method: str, url: URL, body: bytes | None) -> tuple[Reply, URL | None]:
        """One answer, and where to ask instead if it says so and that is safe."""
        try:
            response = await self._session.request(method, url, data=body, allow_redirects=False)
            try:
                data, whole = await _read(response)
            except BaseException:
                response.close()
                raise
        except aiohttp.ClientConnectorError as error:
            raise Transient(f"no connection: {_words(error)}", sent=False) from error
        except NotOurs as error:
            raise Transient(f"no connection: {error}", sent=False) from error
        except TimeoutError as error:
            raise Transient(f"no connection within {_CONNECT_S:.0f} s", sent=False) from error
        except Exception as error:
            raise Transient(f"connection lost: {_words(error)}") from error
        status = response.status
        if status < 300:
            return Reply(status, data, whole=whole), None
        if status >= 400:
            return Reply(status, data, response.headers.get("Retry-After", ""), whole=whole), None
        location = response.headers.get("Location", "")
        reply = Reply(status, data, location=shown_location(url, location), whole=whole)
        return reply, safe_target(url, location) if body is None or status in _KEEPS_QUESTION else None


def safe_target(asked: URL, location: str) -> URL | None:
    """Where a redirect points, if that is the same server (or the same by https); None where it is anybody else."""
    try:
        target = asked.join(URL(location))
        same = target.origin() == asked.origin()
        secured = target.host == asked.host and (asked.scheme, target.scheme) == ("http", "https")
    except (ValueError, TypeError):
        return None
    plain = target.user is None and target.password is None
    safe = same or (secured and asked.is_default_port() and target.is_default_port())
    return target if location.strip() and plain and safe else None


def shown_location(asked: URL, location: str) -> str:
    """Where a redirect points, for a message: whole, without passwords and parameters."""
    try:
        location = str(asked.join(URL(location)))
    except (ValueError, TypeError):
        location = location.strip()
    return clean_text(re.sub(r"//[^/]*@", "//", location.partition("?")[0])[:300])


async def _read(response: aiohttp.ClientResponse) -> tuple[bytes, bool]:
    """The body, and whether that is all of it: nobody can send more than fits."""
    length = response.content_length
    if length is not None and length <= _LARGEST and "Content-Encoding" not in response.headers:
        return await response.read(), True
    parts: list[bytes] = []
    size = 0
    while part := await response.content.readany():
        parts.append(part)
        size += len(part)
        if size > _LARGEST:
            response.close()
            return b"", False
    return b"".join(parts), True


def _words(error: Exception) -> str:
    """What went wrong, in the system's words rather than in the library's."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"{error.host}:{error.port}: {error.os_error.strerror or error.os_error}"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the answer broke off"
    if isinstance(error, aiohttp.ClientResponseError):
        return f"the answer is not HTTP: {error.message.partition(chr(10))[0][:200]}"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    if isinstance(error, (aiohttp.ServerDisconnectedError, ConnectionError, aiohttp.ClientOSError)):
        return "the server closed it without an answer"
    return str(error) or type(error).__name__


def proxy_of(base: str) -> dict[str, Any]:
    """The proxy that the environment asks for, looked up once instead of for each request."""
    parts = urlsplit(base)
    proxy = urllib.request.getproxies().get(parts.scheme, "")
    if not proxy or urllib.request.proxy_bypass(parts.hostname or ""):
        return {}
    return {"proxy": proxy}

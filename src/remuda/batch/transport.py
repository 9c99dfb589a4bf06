"""How requests travel: a small seam, and aiohttp behind it (why: docs/decisions/batch-transport.md)."""

from __future__ import annotations

import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from remuda.batch.answer import Transient
from remuda.batch.endpoint import base_url

if TYPE_CHECKING:
    from collections.abc import Mapping

_CONNECT_S = 10.0


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


class AiohttpTransport:
    """Keep-alive connections over aiohttp; one per request in flight."""

    def __init__(self, endpoint: str, *, api_key: str = "", headers: Mapping[str, str] | None = None) -> None:
        """Prepare; must be called inside the event loop. The key goes into a header and nowhere else."""
        self._base = base_url(endpoint)
        self._urls: dict[str, URL] = {}
        fixed = {"Content-Type": "application/json", **(headers or {})}
        if api_key:
            fixed["Authorization"] = f"Bearer {api_key}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=300),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
            headers=fixed,
            # Answers are small and the network is near: compressing them costs more than it saves.
            skip_auto_headers=("Accept-Encoding", "User-Agent"),
            **proxy_of(self._base),
        )

    async def post(self, path: str, body: bytes) -> Reply:
        """See `Transport.post`."""
        return await self._send("POST", path, body)

    async def get(self, path: str) -> Reply:
        """See `Transport.get`."""
        return await self._send("GET", path, None)

    async def close(self) -> None:
        """See `Transport.close`."""
        await self._session.close()

    async def _send(self, method: str, path: str, body: bytes | None) -> Reply:
        url = self._urls.get(path)
        if url is None:
            url = self._urls[path] = URL(self._base + path)
        try:
            response = await self._session.request(method, url, data=body, allow_redirects=False)
            try:
                data = await response.read()
            except BaseException:
                response.close()
                raise
        except aiohttp.ClientConnectorError as error:
            raise Transient(f"no connection: {_words(error)}", sent=False) from error
        except (aiohttp.ClientError, ConnectionError) as error:
            raise Transient(f"connection lost: {_words(error)}") from error
        except TimeoutError as error:
            raise Transient(f"no connection within {_CONNECT_S:.0f} s", sent=False) from error
        return Reply(response.status, data, response.headers.get("Retry-After", "") if response.status >= 400 else "")


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


def proxy_of(base: str) -> dict[str, Any]:
    """The proxy that the environment asks for, looked up once instead of for each request."""
    parts = urlsplit(base)
    proxy = urllib.request.getproxies().get(parts.scheme, "")
    if not proxy or urllib.request.proxy_bypass(parts.hostname or ""):
        return {}
    return {"proxy": proxy}

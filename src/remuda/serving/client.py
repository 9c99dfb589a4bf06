"""A few small requests to a router: plain HTTP in a thread, so that the host needs no HTTP library for it.

A router of this machine belongs to this user. Whoever else has its port gets not a byte, and so no key.
"""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from remuda.base.errors import InputError, Rejected, Unavailable
from remuda.wire import peer

TIMEOUT_S: Final = 5.0
LIMIT: Final = 16 << 20
"""Longest answer read, in bytes."""


@dataclass(frozen=True)
class HttpReply:
    """Status and body of one answer."""

    status: int
    body: bytes

    def json(self) -> Any:
        """The body as JSON.

        Raises:
            Unavailable: it is none, so it says nothing.
        """
        try:
            return json.loads(self.body)
        except ValueError as error:
            text = self.body[:200].decode(errors="replace")
            raise Unavailable(f"a router answered {self.status} with invalid JSON: {text!r}") from error


async def call(method: str, url: str, *, body: Any = None, key: str = "", timeout_s: float = TIMEOUT_S) -> HttpReply:
    """One request.

    Raises:
        Unavailable: no answer within `timeout_s` seconds, or another user of this machine has the port.
        Rejected: the answer is 401 or 403.
    """
    import asyncio  # not by the launchers, which live as long as their router

    answer = await asyncio.to_thread(request, method, url, body=body, key=key, timeout_s=timeout_s)
    if answer.status in (401, 403):
        raise Rejected(f"{url} refuses the key ({answer.status})", hint="the router was started with another key")
    return answer


def request(method: str, url: str, *, body: Any = None, key: str = "", timeout_s: float = TIMEOUT_S) -> HttpReply:
    """The same in this thread, whatever the answer's status.

    Raises:
        Unavailable: no answer within `timeout_s` seconds, or another user of this machine has the port.
    """
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise InputError(f"{url!r} is not an http:// address")
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout_s)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    data = None if body is None else json.dumps(body).encode()
    if data is not None:
        headers["Content-Type"] = "application/json"
    try:
        connection.connect()
        if why_not := peer.refusal(connection.sock):
            raise Unavailable(f"{parts.netloc} is not a router: {why_not}")
        connection.request(method, parts.path + (f"?{parts.query}" if parts.query else ""), data, headers)
        response = connection.getresponse()
        return HttpReply(response.status, response.read(LIMIT))
    except (OSError, http.client.HTTPException) as error:
        reason = str(error) or type(error).__name__
        raise Unavailable(f"{parts.netloc} does not answer: {reason}") from error
    finally:
        connection.close()

"""A node's requests to its head: HTTPS to the very certificate that the token named, and nobody else's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

import aiohttp

from remuda.base.errors import HostUnreachable, Rejected, RemudaError, from_json
from remuda.wire.fleet import PATH, to_json, told

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.fleet.membership import Membership

T = TypeVar("T")
_LIMIT_S = 10.0


class Stranger(Rejected):
    """Something else than the head answers at its address; nothing was said to it."""


class Link:
    """The way to one head.

    Args:
        host: name or address of the head.
        port: where it answers clients.
        fingerprint: SHA-256 of its certificate, hexadecimal.
    """

    def __init__(self, host: str, port: int, fingerprint: str) -> None:
        self.host, self.port = host, port
        self._pinned = aiohttp.Fingerprint(bytes.fromhex(fingerprint))
        self._session: aiohttp.ClientSession | None = None

    @classmethod
    def of(cls, it: Membership) -> Link:
        """That of a membership."""
        return cls(it.host, it.http_port, it.fingerprint)

    async def ask(self, verb: str, authorization: str, message: Any, answer: Callable[[], T]) -> T:
        """One request.

        Raises:
            HostUnreachable: nothing answers, or not in time.
            Stranger: another certificate than the token's is shown there.
            RemudaError: what the head answered, as the class it has there.
        """
        try:
            data = message if isinstance(message, bytes) else to_json(message)
            return told(answer, await self._post(verb, authorization, data))
        except aiohttp.ServerFingerprintMismatch as error:
            raise Stranger(
                f"{self.host}:{self.port} shows another certificate than the fleet's own, and nothing was said to it",
                hint="see that this is the head's address, and ask there for a token: remuda host token",
            ) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            why = str(error) or "no answer in time"
            raise HostUnreachable(f"the head does not answer at {self.host}:{self.port}: {why}") from error
        except ValueError as error:
            raise RemudaError(f"the head at {self.host}:{self.port} answered something else: {error}") from error

    async def _post(self, verb: str, authorization: str, data: str | bytes) -> str:
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=self._pinned, limit=1, keepalive_timeout=30)
            limits = aiohttp.ClientTimeout(total=_LIMIT_S)
            self._session = aiohttp.ClientSession(
                connector=connector, timeout=limits, cookie_jar=aiohttp.DummyCookieJar()
            )
        url = f"https://{self.host}:{self.port}{PATH}/{verb}"
        async with self._session.post(
            url, data=data, headers={"Authorization": authorization}, allow_redirects=False
        ) as response:
            said = (await response.read()).decode()
            if response.status != 200:
                raise _refusal(said, response.status)
            return said

    async def close(self) -> None:
        """Hang up."""
        if self._session is not None:
            await self._session.close()
            self._session = None


def _refusal(said: str, status: int) -> RemudaError:
    try:
        return from_json(json.loads(said)["error"])
    except (ValueError, KeyError, TypeError):
        return RemudaError(f"the head answered with status {status}")

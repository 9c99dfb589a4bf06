"""Output of pods, brought into `child.log` of the allocation's directory, where it outlives them."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

from remuda.backends.kubernetes.render import CONTAINER
from remuda.base.disk.private import make_private
from remuda.base.errors import BackendUnreachable, RemudaError
from remuda.node.capped import CappedFile

if TYPE_CHECKING:
    from remuda.backends.kubernetes.client import KubernetesClient
    from remuda.backends.kubernetes.observing import Doc
    from remuda.backends.left import Left

LOG: Final = "child.log"
AT: Final = "child.log.at"
"""Beside it: of which pod it is, the time of its last line, and how many lines have that time."""
_FRACTION: Final = re.compile(r"\.(\d+)")
_MAX_BYTES: Final = 64 << 20
_FOLLOWS_S: Final = 0.5
"""Before a pod is told to end, so long its follower may take to be there."""


class Place:
    """Up to where the output of a pod was taken: no line is taken twice, and none is left out."""

    def __init__(self, pod: str = "", at: str = "", count: int = 0) -> None:
        self.pod, self.at, self.count = pod, at, count
        self._order = _order(at) if at else (0, "")
        self._again = 0
        """Lines of that time that came since it was asked again."""
        self._is_open = False
        """The last piece had no end: what comes next goes on with it."""

    def asked(self) -> str:
        """From where on to ask, to the second."""
        self._again, self._is_open = 0, False
        return f"{datetime.fromtimestamp(self._order[0], UTC):%Y-%m-%dT%H:%M:%SZ}" if self.at else ""

    def new(self, block: bytes) -> bytes:
        """Of lines those that were not taken yet, without their times."""
        found = []
        for line in BytesIO(block):  # at line feeds alone
            stamp, _, text = line.partition(b" ")
            if self._is_open:
                text = line
            elif not self._is_news(stamp.decode(errors="replace")):
                continue
            found.append(text)
            self._is_open = not line.endswith(b"\n")
        return b"".join(found)

    def _is_news(self, at: str) -> bool:
        if at != self.at:
            try:
                order = _order(at)
            except ValueError:  # the node says something itself
                return False
            if order > self._order:
                self.at, self._order, self.count, self._again = at, order, 1, 1
                return True
            if order < self._order:
                return False
        self._again += 1
        if self._again <= self.count:
            return False
        self.count = self._again
        return True


def _order(at: str) -> tuple[int, str]:
    """A time to compare, in seconds and nine digits: nodes have zones of their own, and may leave zeros out.

    Raises:
        ValueError: it is none.
    """
    fraction = _FRACTION.search(at)
    return int(datetime.fromisoformat(at).timestamp()), (fraction[1] if fraction else "").ljust(9, "0")


class Keeper:
    """Brings output here, of each allocation once at a time.

    Args:
        files: where to.
    """

    def __init__(self, files: Left) -> None:
        self._files = files
        self._locks: dict[str, asyncio.Lock] = {}
        self._followed: Counter[str] = Counter()
        """Tokens whose lock is held for long, or will be next: their output comes by itself."""
        self._followers: dict[str, asyncio.Task[None]] = {}

    async def fetch(
        self, client: KubernetesClient, pod: Doc, token: str, *, follow: bool = False, here: asyncio.Event | None = None
    ) -> None:
        """Take what is new of a pod's output; with `follow`, until its container has ended.

        Raises:
            RemudaError: it cannot be had now.
        """
        if self._followed[token] and not follow:
            return
        self._followed[token] += follow
        try:
            async with self._locks.setdefault(token, asyncio.Lock()):
                await self._fetch(client, pod, token, follow, here)
        finally:
            self._followed[token] -= follow

    async def _fetch(
        self, client: KubernetesClient, pod: Doc, token: str, follow: bool, here: asyncio.Event | None
    ) -> None:
        folder, name, uid = Path(self._files.folder(token)), pod["metadata"]["name"], pod["metadata"]["uid"]
        try:
            make_private(folder, below=self._files.workloads)
        except OSError as error:
            raise BackendUnreachable(f"cannot write the output of {token}: {error}") from error
        place, log = _read(folder / AT, uid), CappedFile(folder / LOG, _MAX_BYTES)
        try:
            async with aclosing(client.log(name, container=CONTAINER, since=place.asked(), follow=follow)) as blocks:
                async for block in blocks:
                    if here is not None:
                        here.set()
                    if news := place.new(block):
                        log.append(news)
                        _write(folder / AT, place)
        finally:
            log.close()

    async def follow(self, client: KubernetesClient, pod: Doc, token: str) -> None:
        """Have its output followed beside what goes on; returns when that has begun."""
        if token in self._followers:
            return
        here = asyncio.Event()

        async def followed() -> None:
            with suppress(RemudaError):
                await self.fetch(client, pod, token, follow=True, here=here)

        self._followers[token] = asyncio.create_task(followed(), name=f"output of {token}")
        with suppress(TimeoutError):
            async with asyncio.timeout(_FOLLOWS_S):
                await here.wait()

    async def finish(self, token: str) -> None:
        """What is followed of an allocation that has ended comes to its end."""
        if (task := self._followers.pop(token, None)) is not None:
            await asyncio.wait({task}, timeout=5)
            task.cancel()

    def forget(self, tokens: set[str]) -> None:
        """Drop what is known of others."""
        self._followed = +self._followed
        for token in self._followers.keys() - tokens:
            if self._followers[token].done():
                del self._followers[token]
        for token in self._locks.keys() - tokens - self._followers.keys():
            if not self._locks[token].locked():
                del self._locks[token]

    async def close(self) -> None:
        """Nothing is followed any more."""
        tasks = [*self._followers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _read(path: Path, uid: str) -> Place:
    with suppress(OSError, ValueError, TypeError):
        place = Place(**json.loads(path.read_text(encoding="utf-8")))
        if place.pod == uid:
            return place
    return Place(uid)


def _write(path: Path, place: Place) -> None:
    with suppress(OSError):
        path.write_text(json.dumps({"pod": place.pod, "at": place.at, "count": place.count}), encoding="utf-8")

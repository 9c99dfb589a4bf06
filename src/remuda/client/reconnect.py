"""What a command that stays does when the host goes away: it waits for the next one, and goes on where it was.

A host that died is started again, as every command does. One that somebody stopped is only waited for: who stopped it
wants it to be gone.
"""

from __future__ import annotations

import json
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from remuda.base.errors import HostUnreachable, RemudaError
from remuda.base.units import show_duration
from remuda.client.http import HostClient, start_host
from remuda.client.startup_wait import to_stderr
from remuda.wire.place import Place, unmarked
from remuda.wire.process import start_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from remuda.base.disk.paths import StatePaths

AWAY_S: Final = 60.0
"""How long the next host is waited for."""
_LOOK_AGAIN_S = 0.1
_SOON_S: Final = 5.0
"""An answer that goes on for longer before it breaks off is a new story."""


def get(client: HostClient, path: str, **query: object) -> Any:
    """`client.get`, of the next host where one goes away meanwhile.

    Raises:
        HostUnreachable: no other came, or none gives a whole answer.
    """
    return _answered(client, partial(client.get, path, **query))


def post(client: HostClient, path: str, body: object, **query: object) -> Any:
    """`client.post` of what may be asked for twice, as a host that went away may have done it already.

    Raises:
        HostUnreachable: no other came, or none gives a whole answer.
    """
    return _answered(client, partial(client.post, path, body, **query))


def _answered(client: HostClient, ask: Callable[[], Any]) -> Any:
    waiting = Waiting(client)
    while True:
        waiting.begin()
        try:
            return ask()
        except HostUnreachable as error:
            waiting.wait(error)


def follow(client: HostClient, path: str, **query: object) -> Iterator[str]:
    """Lines of output until the host says that it is over: each once, whatever becomes of hosts meanwhile.

    Raises:
        HostUnreachable: the host went away, and no other came, or none sends anything more.
    """
    place: Place | None = None
    since = 0  # lines that came behind that place
    waiting = Waiting(client)
    while True:
        known = since
        waiting.begin()
        try:
            for line in client.lines(path, follow="true", marks="true", after=place, **query):
                told, text = unmarked(line)
                if told is not None:
                    place, since, known = told, 0, 0
                elif known:
                    known -= 1
                else:
                    since += 1
                    waiting.went_on()
                    yield text
        except HostUnreachable as error:
            waiting.wait(error)
        else:
            return


class Waiting:
    """Waits for the next host again and again, but not for ever for one that breaks off every answer."""

    def __init__(self, client: HostClient) -> None:
        self._client = client
        self._asked = time.monotonic()
        self._fruitless: float | None = None

    def begin(self) -> None:
        """The host is asked."""
        self._asked = time.monotonic()

    def went_on(self) -> None:
        """The host sent something new."""
        self._fruitless = None

    def wait(self, error: HostUnreachable) -> None:
        """Return as soon as a host answers.

        Raises:
            HostUnreachable: none came, or answers have been broken off at once for as long as a host is waited for.
        """
        now = time.monotonic()
        if self._fruitless is None or now - self._asked > _SOON_S:
            self._fruitless = now
        elif now - self._fruitless > AWAY_S:
            raise HostUnreachable(
                f"the host has broken off every answer for {show_duration(AWAY_S)}: {error.message}",
                hint=f"what runs keeps running; see why: {self._client.paths.host_log}",
            ) from error
        wait_for_next(self._client, error)


def wait_for_next(client: HostClient, error: HostUnreachable, limit_s: float = AWAY_S) -> None:
    """Return as soon as a host answers.

    Args:
        client: of the one that went away.
        error: how that was seen.
        limit_s: how long to wait.

    Raises:
        HostUnreachable: none came.
    """
    look = HostClient(client.paths, timeout_s=client.timeout_s)
    deadline, told = time.monotonic() + limit_s, False
    while True:
        time.sleep(_LOOK_AGAIN_S)  # also where a host takes every call, and breaks it off
        if look.is_up():
            return
        if not told:
            told = True
            to_stderr("note: the host went away; waiting for the next")
        if _has_died(client.paths):
            try:
                start_host(look)
            except RemudaError as failed:
                error = HostUnreachable(str(failed), hint=failed.hint)
        if time.monotonic() >= deadline:
            raise HostUnreachable(
                f"the host went away, and none has come for {show_duration(limit_s)}: {error.message}",
                hint="what runs keeps running; start a host: remuda host start",
            ) from error


def _has_died(paths: StatePaths) -> bool:
    """Whether the last host left without putting its things away, which one that is stopped does."""
    try:
        pid = int(json.loads(paths.host_file.read_text())["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return not start_time(pid)

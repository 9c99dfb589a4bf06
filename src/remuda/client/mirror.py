"""A client's copy of the host's board, and the one way to wait for workloads: whoever waits is told, and never asks.

The copy goes on with the next host where one goes away, by the id of the last frame, or with a new snapshot.
"""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from itertools import chain
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from remuda.base.errors import Conflict, HostUnreachable, Unavailable
from remuda.base.ids import api_path
from remuda.client import reconnect
from remuda.views import columns

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from remuda.client.http import HostClient

    Cells = dict[str, Any]
    Delta = Mapping[str, Cells | None]
    Views = list[dict[str, Any]]

_QUIET_S: Final = 60.0
"""A host that sends nothing for so long, not even that it is there, has gone away."""
_LOOK_AGAIN_S = 0.5
"""Between two looks at a host that has no stream."""


class Told(NamedTuple):
    """A frame as it was received."""

    id: str
    event: str
    data: Any


class Mirror:
    """Rows of a host's board, as of the newest frame that was received."""

    def __init__(self, client: HostClient) -> None:
        self._client = client
        self.rows: dict[str, Cells] = {}
        self.id = ""
        """Of the newest frame."""

    def changes(self, until: float | None = None) -> Iterator[Delta | None]:
        """Follow the board over the ends of hosts: cells that may have changed, by row, None for a row that is gone.

        Of a snapshot these are all. None instead of them: anything may have changed, as this host does not tell.

        Args:
            until: when to end, as `time.monotonic` has it; None: never.

        Raises:
            HostUnreachable: the host went away, and no other came.
        """
        waiting = reconnect.Waiting(self._client)
        while until is None or time.monotonic() < until:
            waiting.begin()
            ended = HostUnreachable("the host has ended")
            try:
                for delta in self.life(until):
                    waiting.went_on()
                    yield delta
            except HostUnreachable as error:
                ended = error
            except (Conflict, Unavailable):  # it has no stream, as it is of an earlier version; or too many look
                yield None
                time.sleep(_LOOK_AGAIN_S)
                continue
            if until is None or time.monotonic() < until:
                waiting.wait(ended)

    def life(self, until: float | None = None) -> Iterator[Delta]:
        """The same of one host, as long as it is there; raises `Conflict` where it has no stream."""
        lines = self._client.lines("/stream", lambda: _left_s(until), since=self.id or None)
        return (self.take(told) for told in frames(lines) if told.event in ("snapshot", "delta"))

    def take(self, told: Told) -> Delta:
        """Take in a snapshot or a delta; its cells, and the rows that are gone."""
        rows: Delta = told.data["rows"]
        self.id = told.id
        if told.event == "snapshot":
            rows, self.rows = {**dict.fromkeys(self.rows), **rows}, {}
        for key, cells in rows.items():
            if cells is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = {**self.rows.get(key, {}), **cells}
        return rows


def _left_s(until: float | None) -> float:
    return _QUIET_S if until is None else min(_QUIET_S, max(0.01, until - time.monotonic()))


def frames(lines: Iterable[str]) -> Iterator[Told]:
    """Server-sent events in lines of text. Pure."""
    found: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if line:
            found[name] = value
            continue
        if "data" in found:
            yield Told(found.get("id", ""), found.get("event", ""), json.loads(found["data"]))
        found = {}


def wait(
    client: HostClient,
    names: Sequence[str],
    until: Callable[[Views], bool] = lambda _: False,
    limit_s: float | None = None,
) -> Iterator[Views]:
    """Views of workloads, in order: at once, and as soon as something of them has changed, over the ends of hosts.

    Args:
        client: of the host.
        names: of the workloads.
        until: whether there is nothing more to wait for; asked with each views that were yielded.
        limit_s: end after so many seconds all the same; None: never.

    Raises:
        NotFound: there is none of one of the names, or no more.
        HostUnreachable: the host went away, and no other came.
    """
    views: dict[str, dict[str, Any]] = {}
    changes = Mirror(client).changes(None if limit_s is None else time.monotonic() + limit_s)
    for delta in chain(changes, (None for _ in [0] if not views)):  # once at least
        changed = names if delta is None or not views else touched(delta)
        if asked := [name for name in names if name in changed]:
            views |= {name: reconnect.get(client, api_path(name)) for name in asked}
            yield [views[name] for name in names]
            if until([views[name] for name in names]):
                return


def touched(delta: Delta, *, numbers: bool = False) -> set[str]:
    """Names of the workloads of which something has changed; with `numbers` also where it is nothing but those."""
    return {key.split("/")[1] for key, cells in delta.items() if "/" in key and (numbers or columns.is_news(cells))}


def ticks(client: HostClient, names: Collection[str] | None, every_s: float) -> Iterator[bool]:
    """Whether there is news: as soon as there is, at first too, and whenever there was none for `every_s` seconds.

    News is of `names`, to which more may be added, with their numbers; where that is None of all, without numbers.
    """
    heard: SimpleQueue[BaseException | None] = SimpleQueue()

    def listen() -> None:
        try:
            for number, delta in enumerate(Mirror(client).changes()):
                changed = touched(delta or {}, numbers=names is not None)
                if not number or delta is None or (changed if names is None else not changed.isdisjoint(names)):
                    heard.put(None)
        except BaseException as error:  # noqa: BLE001 - it is raised where the news is read
            heard.put(error)

    threading.Thread(target=listen, name="mirror", daemon=True).start()
    while True:
        found = False
        with suppress(Empty):
            while True:
                if (error := heard.get(not found, every_s)) is not None:
                    raise error
                found = True
        yield found

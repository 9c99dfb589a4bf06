"""A client's copy of the host's board, and the one way to wait for workloads: whoever waits is told, and never asks.

The copy goes on with the next host where one goes away, by the id of the last frame, or with a new snapshot.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from remuda.base.errors import Conflict, HostUnreachable
from remuda.base.ids import api_path
from remuda.control import again
from remuda.control.columns import is_news

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from remuda.control.client import HostClient

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

    def changes(self, until: float | None = None) -> Iterator[Delta]:
        """Follow the board: cells that may have changed, by row, None for a row that is gone; of a snapshot all.

        Args:
            until: when to end, as `time.monotonic` has it; None: never.

        Raises:
            Conflict: the host has no stream; it is of an earlier version.
            HostUnreachable: the host went away, and no other came.
        """
        waiting = again.Waiting(self._client)
        while until is None or time.monotonic() < until:
            waiting.begin()
            ended = HostUnreachable("the host has ended")
            try:
                lines = self._client.lines("/stream", lambda: _left_s(until), since=self.id or None)
                for told in frames(lines):
                    waiting.went_on()
                    if told.event in ("snapshot", "delta"):
                        yield self.take(told)
            except HostUnreachable as error:
                ended = error
            if until is None or time.monotonic() < until:
                waiting.wait(ended)

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
    for changed in _changed(client, set(names), None if limit_s is None else time.monotonic() + limit_s):
        views |= {name: again.get(client, api_path(name)) for name in names if name in changed}
        found = [views[name] for name in names]
        yield found
        if until(found):
            return


def _changed(client: HostClient, names: Collection[str], until: float | None) -> Iterator[Collection[str]]:
    """Those of the names of which more than numbers has changed; at first all of them."""
    is_first = True
    try:
        for delta in Mirror(client).changes(until):
            changed = {key.split("/")[1] for key, cells in delta.items() if "/" in key and is_news(cells)}
            if is_first or not changed.isdisjoint(names):
                yield names if is_first else changed
            is_first = False
        if is_first:
            yield names
    except Conflict:  # an earlier version has no stream
        while until is None or time.monotonic() < until:
            yield names
            time.sleep(_LOOK_AGAIN_S)

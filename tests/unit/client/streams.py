"""A host that tells what changes, without one."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from remuda.base.errors import HostUnreachable
from remuda.host.feed import FeedFrame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def lines_of(frame: FeedFrame) -> list[str]:
    """A frame as a client reads it."""
    return [f"id: {frame.id}", f"event: {frame.event}", f"data: {frame.data.decode()}", ""]


class Streaming:
    """A host that says so often that a workload has changed, and nothing more."""

    told = 1

    def lines(self, path: str, quiet_s: Callable[[], float], /, **_: Any) -> Iterator[str]:
        assert path == "/stream"
        for number in range(self.told):
            rows = {"w/herd": {"state": str(number)}, "w/other": {"state": str(number)}}
            yield from ["", ": beat", ""]
            yield from lines_of(FeedFrame("delta", json.dumps({"rows": rows}).encode(), f"1-a.{number}"))
        time.sleep(quiet_s())
        raise HostUnreachable("timed out")

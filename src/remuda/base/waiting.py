"""Waiting for what tells nobody that it has happened: it is looked at again and again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def until(look: Callable[[], T], limit_s: float = float("inf"), pause_s: float = 0.05) -> T:
    """The first thing seen that is true, or the last that was seen within that time."""
    end = time.monotonic() + limit_s
    while not (found := look()) and time.monotonic() < end:
        time.sleep(pause_s)
    return found

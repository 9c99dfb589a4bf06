"""Copies as threads of one process, which meet in memory."""

from __future__ import annotations

import threading
import time
from itertools import count
from typing import TYPE_CHECKING, Any

from remuda.gang import ObjectStoreAllReduce

if TYPE_CHECKING:
    from collections.abc import Callable

_NUMBERS = count()


def new_url() -> str:
    """A store of its own."""
    return f"memory://gang-{next(_NUMBERS)}"


def store(url: str, rank: int, world_size: int, **options: Any) -> ObjectStoreAllReduce:
    """A copy's end of a run; it waits a thousandth of what it would."""
    options = {"sleep": lambda seconds: time.sleep(seconds / 1000), "timeout": 60.0, **options}
    return ObjectStoreAllReduce(url, run_id="run", rank=rank, world_size=world_size, **options)


def together(act: Callable[[int], Any], ranks: int) -> list[Any]:
    """Results of `act` for each rank, called at the same time. The first error is raised."""
    results: list[Any] = [None] * ranks
    errors: list[BaseException] = []

    def one(rank: int) -> None:
        try:
            results[rank] = act(rank)
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    threads = [threading.Thread(target=one, args=(rank,), daemon=True) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads)
    return results

"""The real worker code on a stage: one thread a copy, of which one moves at a time, in an order and time we choose.

A copy stands still before each request to the store. The stage picks one of those whose time has come. At chosen
requests something happens to a copy: it dies before or after the request, stalls, loses the answer, or reads less.
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from obstore.exceptions import GenericError

if TYPE_CHECKING:
    from collections.abc import Callable

REQUEST_S = 0.02
AGAIN_S = 5.0
"""After so long a copy that died is started again."""


class Mishap(Enum):
    """What can happen to a copy at a request."""

    DIE_BEFORE = "die before"
    DIE_AFTER = "die after"
    STALL = "stall"
    LOSE_ANSWER = "lose the answer"
    READ_LESS = "read less"


class Killed(BaseException):
    """The copy is gone; nothing of it catches this."""


@dataclass
class Copy:
    """One life of a rank on the stage."""

    rank: int
    wakes_at: float
    mishaps: dict[int, Mishap]
    requests: int = 0
    over: bool = False
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))


class Stage:
    """Runs copies until all are through.

    Args:
        act: what a copy does; gets the stage and itself.
        mishaps: by rank and life, what happens at which request.
        seed: of the order.
    """

    def __init__(
        self,
        act: Callable[[Stage, Copy], None],
        ranks: int,
        mishaps: dict[tuple[int, int], dict[int, Mishap]],
        seed: int,
    ) -> None:
        self.now = 0.0
        self.errors: list[BaseException] = []
        self.lives: dict[int, int] = dict.fromkeys(range(ranks), 0)
        self._act, self._mishaps, self._order = act, mishaps, random.Random(seed)
        self._back = threading.Semaphore(0)
        self._copies: list[Copy] = []
        self._stalls = (40.0, 90.0, 400.0)
        for rank in range(ranks):
            self._begin(rank, 0.0)

    def _begin(self, rank: int, at: float) -> None:
        copy = Copy(rank, at, self._mishaps.get((rank, self.lives[rank]), {}))
        self.lives[rank] += 1
        self._copies.append(copy)
        threading.Thread(target=self._live, args=(copy,), daemon=True).start()

    def _live(self, copy: Copy) -> None:
        copy.go.acquire()
        try:
            self._act(self, copy)
        except Killed:
            self._begin(copy.rank, self.now + AGAIN_S)
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self.errors.append(error)
        copy.over = True
        self._back.release()

    def run(self, limit: int = 20_000) -> None:
        """Move copies until nobody is left; the first error of one is raised."""
        for _ in range(limit):
            there = [copy for copy in self._copies if not copy.over]
            if not there or self.errors:
                break
            ready = [copy for copy in there if copy.wakes_at <= self.now]
            if not ready:
                self.now = min(copy.wakes_at for copy in there)
                continue
            self._order.choice(ready).go.release()
            self._back.acquire()
        if self.errors:
            raise self.errors[0]
        assert all(copy.over for copy in self._copies), "it does not come to an end"

    def wait(self, copy: Copy, seconds: float) -> None:
        """Let others move until so much time has passed."""
        copy.wakes_at = self.now + seconds
        self._back.release()
        copy.go.acquire()

    def request(self, copy: Copy, act: Callable[[], Any]) -> Any:
        """One request to the store."""
        copy.requests += 1
        mishap = copy.mishaps.get(copy.requests)
        self.wait(copy, self._order.choice(self._stalls) if mishap is Mishap.STALL else REQUEST_S)
        if mishap is Mishap.DIE_BEFORE:
            raise Killed
        result = act()
        if mishap is Mishap.DIE_AFTER:
            raise Killed
        if mishap is Mishap.LOSE_ANSWER:
            raise GenericError("the answer was lost")
        return result[: len(result) // 2] if mishap is Mishap.READ_LESS and isinstance(result, bytes) else result


class Staged:
    """A store whose requests are made on the stage."""

    def __init__(self, raw: Any, stage: Stage, copy: Copy, note: Callable[[str, bytes], None]) -> None:
        self._raw, self._stage, self._copy, self._note = raw, stage, copy, note

    def put(self, path: str, file: Any, **options: Any) -> Any:
        def act() -> Any:
            result = self._raw.put(path, file, **options)
            self._note(path, bytes(file))
            return result

        return self._stage.request(self._copy, act)

    def get(self, path: str) -> Any:
        return self._stage.request(self._copy, lambda: self._raw.get(path))

    def get_range(self, path: str, *, start: int, end: int) -> Any:
        return self._stage.request(self._copy, lambda: bytes(self._raw.get_range(path, start=start, end=end)))

    def list(self, prefix: str) -> Any:
        return self._stage.request(self._copy, lambda: list(self._raw.list(prefix)))

    def delete(self, paths: Any) -> Any:
        return self._stage.request(self._copy, lambda: self._raw.delete(paths))

    def copy(self, from_: str, to: str, *, overwrite: bool) -> Any:
        return self._stage.request(self._copy, lambda: self._raw.copy(from_, to, overwrite=overwrite))

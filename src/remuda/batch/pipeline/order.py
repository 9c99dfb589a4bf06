"""In which order rows are asked: as they come, or so that rows with a long common beginning follow each other.

An engine that keeps the beginnings of prompts (its prefix cache) computes a common beginning once, if the rows that
share it come one after the other. Sorting alone makes that worse on engines with slots: neighbours are asked at the
same time, land in different slots, and each computes the beginning anew. So a window of rows is sorted and cut into
*lanes*, one for each slot; a worker goes on in its own lane, and takes the later half of the longest one when its own
is at its end. Rows keep their positions: what is asked first changes no output.
"""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Sequence

    from remuda.batch.input.feed import InputRow

ORDERS: Final = ("auto", "input", "prefix")
#: Rows that are sorted together; as many again wait for their turn.
WINDOW_ROWS: Final = 4096
#: A window ends earlier when its prompts have this many characters.
WINDOW_CHARS: Final = 32 << 20
#: Characters of a prompt that count for its place.
KEY_CHARS: Final = 32768
#: Rows are fetched before they run out, so that workers need not wait for them together.
_LOW: Final = 512
#: `auto` orders when neighbours would share this part of their characters, and this many of them on the average.
_WORTH: Final = 0.1
_WORTH_CHARS: Final = 32


def key_of(item: Any) -> str:
    """The text whose beginning an engine may keep: prompts as they are, conversations message by message.

    Two items whose keys begin alike make prompts that begin alike. Never raises: what is no prompt gets a place, too.
    """
    if isinstance(item, str):
        return item[:KEY_CHARS]
    if isinstance(item, (list, tuple)):
        return "".join(_message(entry) for entry in item)[:KEY_CHARS]
    return _message(item)[:KEY_CHARS]


def _message(entry: Any) -> str:
    if isinstance(entry, str):
        return entry + "\0"
    if isinstance(entry, dict) and isinstance(entry.get("role"), str):
        content = entry.get("content")
        said = content if isinstance(content, str) else _text(content)
        return f"{entry['role']}\0{said}\0"
    return _text(entry) + "\0"


def _text(value: Any) -> str:
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY).decode()
    except TypeError:
        return str(value)


def common_length(one: str, other: str) -> int:
    """How many characters two texts have in common at their beginning."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    step = 16
    while low + step < high and one[low : low + step] == other[low : low + step]:
        low += step
        step *= 2
    high = min(high, low + step)
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low + (high > low and one[low] == other[low])


def is_worth_ordering(keys: Sequence[str]) -> bool:
    """Whether rows of these keys share beginnings that an order can bring together.

    What all of them share does not count: that is in the cache whatever the order is.
    """
    if len(keys) < 2:
        return False
    ordered = sorted(keys)
    by_all = common_length(ordered[0], ordered[-1])
    shared = sum(common_length(one, other) - by_all for one, other in itertools.pairwise(ordered))
    return shared >= _WORTH * sum(map(len, ordered)) and shared >= _WORTH_CHARS * len(ordered)


def cut(rows: Sequence[InputRow], lanes: int) -> list[deque[InputRow]]:
    """`rows` in `lanes` pieces that follow each other; their sizes differ by one at most, and some may be empty."""
    ends = [len(rows) * number // lanes for number in range(lanes + 1)]
    return [deque(rows[begin:end]) for begin, end in itertools.pairwise(ends)]


class RowOrder:
    """Rows that wait for a worker. `len()` is how many may be taken now.

    Args:
        order: `input`, `prefix`, or `auto`: the first window decides.
        window: rows that are sorted together. At most twice as many (and one chunk) are held.

    Attributes:
        chosen: `input` or `prefix`; empty while `auto` has not seen a window.
        lanes: pieces of a window, for as many slots of the engine; read when a window is cut.
    """

    def __init__(self, order: str, *, window: int = WINDOW_ROWS) -> None:
        self.chosen = "" if order == "auto" else order
        self.lanes = 1
        self._window = window
        self._line: deque[InputRow] = deque()
        self._staged: list[tuple[str, InputRow]] = []
        self._staged_chars = 0
        self._open: list[deque[InputRow]] = []
        self._left = 0
        self._ended = False

    def __len__(self) -> int:
        if self.chosen == "input":
            return len(self._line)
        return self._left or (len(self._staged) if self._is_staged() else 0)

    @property
    def is_low(self) -> bool:
        """Whether more rows should be fetched."""
        return len(self._line) < _LOW if self.chosen == "input" else not self._is_full()

    def add(self, rows: Sequence[InputRow]) -> None:
        """Take more rows, in input order."""
        if self.chosen == "input":
            self._line.extend(rows)
            return
        for row in rows:
            key = key_of(row.item)
            self._staged_chars += len(key)
            self._staged.append((key, row))
        self._choose()

    def keep_input(self) -> None:
        """Take back that rows are sorted; nothing may have been taken yet."""
        self.chosen = "input"
        self._line.extend(row for _, row in self._staged)
        self._staged, self._staged_chars = [], 0

    def end(self) -> None:
        """No more rows will come."""
        self._ended = True
        self._choose()

    def take(self, worker: int, size: int) -> list[InputRow]:
        """Up to `size` rows for the worker of this number; there must be some."""
        if self.chosen == "input":
            line = self._line
            return [line.popleft()] if size == 1 else [line.popleft() for _ in range(min(size, len(line)))]
        if not self._left:
            self._cut()
        number = worker % len(self._open)
        lane = self._open[number] or self._halve(number)
        taken = [lane.popleft() for _ in range(min(size, len(lane)))]
        self._left -= len(taken)
        return taken

    def _is_full(self) -> bool:
        return len(self._staged) >= self._window or self._staged_chars >= WINDOW_CHARS

    def _is_staged(self) -> bool:
        return self._ended or self._is_full()

    def _choose(self) -> None:
        if self.chosen or not self._is_staged():
            return
        if is_worth_ordering([key for key, _ in self._staged]):
            self.chosen = "prefix"
        else:
            self.keep_input()

    def _cut(self) -> None:
        # By position where keys are equal: a window's order does not depend on how its rows were read.
        self._staged.sort(key=lambda entry: (entry[0], entry[1].position))
        self._open = cut([row for _, row in self._staged], max(1, self.lanes))
        self._left = len(self._staged)
        self._staged, self._staged_chars = [], 0

    def _halve(self, number: int) -> deque[InputRow]:
        """Give the lane of this number the later half of the longest one."""
        longest = max(self._open, key=len)
        mine = self._open[number]
        for _ in range((len(longest) + 1) // 2):
            mine.appendleft(longest.pop())
        return mine

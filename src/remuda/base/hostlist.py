"""Lists of hosts as Slurm writes them, `node[001-003,7],gpu5`: taken apart, and written short. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from remuda.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST = 100_000
"""More names than any cluster has: a slip of the pen must not fill the memory."""
_HINT = "write names and ranges: node001, node[001-003,7],gpu5"
_ITEM = re.compile(r"(?:[\w.-]+|\[[\d,\s-]+\])+", re.ASCII)
_PART = re.compile(r"\[([^\]]*)\]|([^\[]+)")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)
_COMMA = re.compile(r",(?![^\[]*\])")
_LAST_NUMBER = re.compile(r"^(.*?)(\d+)(\D*)$")


def expand(text: str) -> tuple[str, ...]:
    """Names in `text`, in its order, each once. Leading zeros are kept: `n[08-10]` is n08, n09, n10.

    Raises:
        InputError: it is not such a list, it is empty, or it names more than `MOST` hosts.
    """
    names: dict[str, None] = {}
    for item in (part.strip() for part in _COMMA.split(text)):
        if not item:
            continue
        if _ITEM.fullmatch(item) is None:
            raise _wrong(text)
        parts = [_numbers(inside, text) if inside else [plain] for inside, plain in _PART.findall(item)]
        if len(names) + prod(map(len, parts)) > MOST:
            raise _too_many(text)
        names |= dict.fromkeys("".join(words) for words in product(*parts))
    if not names:
        raise InputError("the list of nodes is empty", hint=_HINT)
    return tuple(names)


def compress(names: Iterable[str]) -> str:
    """The short form of a set of names, as Slurm writes it: sorted, ranges where numbers follow each other."""
    groups: dict[tuple[str, str, int], set[int]] = defaultdict(set)
    plain: set[str] = set()
    for name in names:
        match = _LAST_NUMBER.match(name)
        if match is None:
            plain.add(name)
            continue
        prefix, digits, suffix = match.groups()
        # A number without leading zeros is of no width: 9 and 10 are one range, 09 and 010 are none.
        width = len(digits) if digits.startswith("0") and len(digits) > 1 else 0
        groups[prefix, suffix, width].add(int(digits))
    written = [(name, name) for name in plain]
    for (prefix, suffix, width), numbers in groups.items():
        written.append((f"{prefix}{suffix}", f"{prefix}{_ranges(sorted(numbers), width)}{suffix}"))
    return ",".join(text for _, text in sorted(written))


def compress_numbers(numbers: Iterable[int]) -> str:
    """`0-7,9` of a set of numbers, as array indices are written."""
    return _ranges(sorted(set(numbers)), 0, brackets=False)


def _ranges(numbers: list[int], width: int, *, brackets: bool = True) -> str:
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    texts = [f"{low:0{width}}" if low == high else f"{low:0{width}}-{high:0{width}}" for low, high in spans]
    if not brackets or (len(texts) == 1 and "-" not in texts[0]):
        return ",".join(texts)
    return f"[{','.join(texts)}]"


def _numbers(inside: str, text: str) -> list[str]:
    """What a pair of brackets stands for: `001-003,7` is 001, 002, 003, 7."""
    words: list[str] = []
    for piece in inside.split(","):
        match = _RANGE.fullmatch(piece.strip())
        if match is None or len(piece) > 40:
            raise _wrong(text)
        first, last = match.group(1), match.group(2) or match.group(1)
        if int(last) < int(first):
            raise _wrong(text)
        if int(last) - int(first) + len(words) >= MOST:
            raise _too_many(text)
        words += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return words


def _wrong(text: str) -> InputError:
    return InputError(f"{text!r} is not a list of nodes", hint=_HINT)


def _too_many(text: str) -> InputError:
    return InputError(f"{text!r} names more than {MOST:,} nodes", hint=_HINT)

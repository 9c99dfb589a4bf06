"""Lists of hosts as Slurm writes them, `node[001-003,7],gpu5`, taken apart. Pure."""

from __future__ import annotations

import re
from itertools import product
from math import prod

from remuda.base.errors import InputError

MOST = 100_000
"""More names than any cluster has: a slip of the pen must not fill the memory."""
_HINT = "write names and ranges: node001, node[001-003,7],gpu5"
_ITEM = re.compile(r"(?:[\w.-]+|\[[\d,\s-]+\])+", re.ASCII)
_PART = re.compile(r"\[([^\]]*)\]|([^\[]+)")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)
_COMMA = re.compile(r",(?![^\[]*\])")


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

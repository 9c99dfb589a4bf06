"""Slurm's short form of node lists, `a[1-3,07],b`: written out and written short. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_HOSTS = 200_000
_LAST_NUMBER = re.compile(r"^(.*?)(\d+)(\D*)$")
_NO_HOSTS = frozenset({"", "(null)", "None assigned", "n/a", "N/A", "None"})


def expand(text: str) -> list[str]:
    """The single names of a list, in its order.

    Raises:
        ValueError: brackets that do not match, a range that is none, or more than `MAX_HOSTS` names.
    """
    if text.strip() in _NO_HOSTS:
        return []
    names: list[str] = []
    for part in _parts(text.strip()):
        names += _expand_one(part)
        if len(names) > MAX_HOSTS:
            raise ValueError(f"{text[:80]!r} names more than {MAX_HOSTS} nodes")
    return names


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


def _parts(text: str) -> Iterator[str]:
    """The pieces between commas that are outside of brackets."""
    depth, begin = 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if depth not in (0, 1):
            raise ValueError(f"{text!r} is not a list of nodes: its brackets do not match")
        if letter == "," and depth == 0:
            yield text[begin:at]
            begin = at + 1
    if depth:
        raise ValueError(f"{text!r} is not a list of nodes: its brackets do not match")
    yield text[begin:]


def _expand_one(part: str) -> list[str]:
    head, bracket, rest = part.partition("[")
    if not bracket:
        return [part] if part else []
    inside, _, tail = rest.partition("]")
    tails = _expand_one(tail) or [""]
    numbers = list(_numbers(inside, part))
    if len(numbers) * len(tails) > MAX_HOSTS:  # two short ranges may name more than memory holds
        raise ValueError(f"{part[:80]!r} names more than {MAX_HOSTS} nodes")
    return [f"{head}{number}{end}" for number in numbers for end in tails]


def _numbers(inside: str, part: str) -> Iterator[str]:
    for piece in inside.split(","):
        low, dash, high = piece.partition("-")
        if not low.isdigit() or (dash and not high.isdigit()) or (dash and int(high) < int(low)):
            raise ValueError(f"{part!r} is not a list of nodes: {piece!r} is no range")
        if not dash:
            yield low
            continue
        if int(high) - int(low) >= MAX_HOSTS:
            raise ValueError(f"{part!r} names more than {MAX_HOSTS} nodes")
        for number in range(int(low), int(high) + 1):
            yield f"{number:0{len(low)}}"

"""Arguments that an engine does not know, told from its `--help`. Pure: the text is obtained elsewhere."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_FLAG = re.compile(r"(?:^|[\s,/\[|])(--?[A-Za-z][\w.-]*)")
_USAGE_FLAG = re.compile(r"[\[|(]\s*(--?[A-Za-z][\w.-]*)")


@dataclass(frozen=True)
class UnknownFlag:
    """An argument that the engine would refuse."""

    flag: str
    nearest: str
    """A known one that was perhaps meant; empty when none is near."""

    def __str__(self) -> str:
        return f"{self.flag} (did you mean {self.nearest}?)" if self.nearest else self.flag


def known_flags(help_text: str) -> frozenset[str]:
    """All flags that a help page lists, from its usage and from the lines that begin with a flag.

    Flags that a description only mentions do not count.
    """
    flags: set[str] = set()
    for line in help_text.splitlines():
        stripped = re.sub(r"\x1b\[[0-9;]*m", "", line).strip(" │|")
        if stripped.startswith("-"):
            head = re.split(r"(?<![,\s])\s{2,}", stripped)[0]
            flags |= set(_FLAG.findall(re.sub(r"\{[^}]*\}", "", head)))
        elif stripped.startswith(("usage:", "[", "Usage:")):
            flags |= set(_USAGE_FLAG.findall(stripped))
    return frozenset(flag.rstrip(".") for flag in flags)


def unknown_flags(args: Sequence[str], help_text: str) -> tuple[UnknownFlag, ...]:
    """Flags in `args` that the help does not know, in order.

    Counted as known: `--flag=value`, `_` for `-`, an unambiguous beginning of a flag, `--no-flag`, `--flag.key` of a
    flag that takes JSON, and everything after `--`. A help page without any flag says nothing, so nothing is unknown.
    """
    known = known_flags(help_text)
    if not known:
        return ()
    words = list(args)
    words = words[: words.index("--")] if "--" in words else words
    found = []
    for word in words:
        if re.match(r"--?[A-Za-z]", word) is None:
            continue
        flag = word.split("=", maxsplit=1)[0]
        if not _is_known(flag, known):
            found.append(UnknownFlag(flag, _nearest(flag, known)))
    return tuple(found)


def _is_known(flag: str, known: frozenset[str]) -> bool:
    same = {_dashed(name) for name in known}
    dashed = _dashed(flag)
    if dashed in same or _dashed(flag.split(".", maxsplit=1)[0]) in same:
        return True
    if not flag.startswith("--"):
        return any(name in known for name in (flag[:2],)) and len(flag) > 2
    if dashed.startswith("--no-") and f"--{dashed[5:]}" in same:
        return True
    return len({name for name in same if name.startswith(dashed)}) == 1


def _dashed(flag: str) -> str:
    return flag.replace("_", "-")


def _nearest(flag: str, known: frozenset[str]) -> str:
    close = difflib.get_close_matches(_dashed(flag), sorted(known), n=1, cutoff=0.7)
    return close[0] if close else ""

"""Flags of engines: as documents say them, those that only the launcher may say, and those that none knows. Pure."""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from remuda.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

TP: Final = ("tensor-parallel-size", "tp-size", "tp")
PP: Final = ("pipeline-parallel-size", "pp-size", "pp")
DP: Final = ("data-parallel-size", "dp-size", "dp")
_ALIASES: Final = (TP, PP, DP, ("expert-parallel-size", "ep-size", "ep"))
"""Names of one flag."""
_FLAG: Final = re.compile(r"(?:^|[\s,/\[|])(--?[A-Za-z][\w.-]*)")
_USAGE_FLAG: Final = re.compile(r"[\[|(]\s*(--?[A-Za-z][\w.-]*)")


def counted(said: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that count: null is nothing, and of two names of one flag the later counts, as engines read them."""
    last: dict[str, str] = {}
    for name, value in said.items():
        if value is not None:
            flag = dashed(name).removeprefix("--")
            last[next((names[0] for names in _ALIASES if flag in names), flag)] = name
    return {name: said[name] for name in said if name in last.values()}


def words(flags: Mapping[str, Any], *, negates: bool = False, as_written: bool = False) -> tuple[str, ...]:
    """`--flag value` for each flag: true is the flag alone, null is nothing, a list is all after it.

    Args:
        flags: name -> value.
        negates: false is `--no-flag`; otherwise it is nothing.
        as_written: for programs whose flags have `_`.
    """
    out: list[str] = []
    for name, value in flags.items():
        if value is None or (value is False and not negates):
            continue
        flag = f"--{name.lstrip('-')}" if as_written else dashed(name)
        if value is False:
            out.append(f"--no-{flag.removeprefix('--')}")
            continue
        out.append(flag)
        if value is True:
            continue
        items = value if isinstance(value, (list, tuple)) else [value]
        out += [json.dumps(item) if isinstance(item, (dict, list, tuple)) else str(item) for item in items]
    return tuple(out)


def dashed(name: str) -> str:
    """`tp_size`, `tp-size` and `--tp-size` are one flag."""
    return "--" + name.lstrip("-").replace("_", "-")


def has(said: Mapping[str, Any], flags: Iterable[str]) -> bool:
    """Whether one of these flags is said."""
    known = {dashed(flag) for flag in flags}
    return any(dashed(name) in known for name in said)


def number(said: Mapping[str, Any], flags: Iterable[str], default: int) -> int:
    """The value of the first of these flags that is said, as a number; else `default`."""
    known = [dashed(flag) for flag in flags]
    for name, value in said.items():
        if dashed(name) in known and str(value).isdigit():
            return int(str(value))
    return default


def merged(own: Mapping[str, Any], said: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Flags of the launcher, and those of the recipe that it does not say itself.

    Args:
        own: the launcher's: flag, with dashes -> value.
        said: the recipe's.
        where: dotted path of the recipe's.

    Raises:
        InputError: the recipe says one of the launcher's with another value.
    """
    out = dict(own)
    for name, value in said.items():
        flag = dashed(name)
        if flag not in own:
            out[flag] = value
        elif str(value) != str(own[flag]):
            raise InputError(
                f"`{where}.{name}` is {value!r}, and {flag} is set to {own[flag]!r} for each worker",
                hint="leave it out", where=f"{where}.{name}",
            )  # fmt: skip
    return out


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
    given = list(args)
    given = given[: given.index("--")] if "--" in given else given
    found = []
    for word in given:
        if re.match(r"--?[A-Za-z]", word) is None:
            continue
        flag = word.split("=", maxsplit=1)[0]
        if not _is_known(flag, known):
            close = difflib.get_close_matches(flag.replace("_", "-"), sorted(known), n=1, cutoff=0.7)
            found.append(UnknownFlag(flag, "".join(close)))
    return tuple(found)


def _is_known(flag: str, known: frozenset[str]) -> bool:
    same = {name.replace("_", "-") for name in known}
    flag = flag.replace("_", "-")
    if flag in same or flag.split(".", maxsplit=1)[0] in same:
        return True
    if not flag.startswith("--"):
        return flag[:2] in known and len(flag) > 2
    if flag.startswith("--no-") and f"--{flag[5:]}" in same:
        return True
    return sum(name.startswith(flag) for name in same) == 1

"""Flags of engines as recipes say them, and those that only the launcher may say. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from remuda.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TP: Final = ("tensor-parallel-size", "tp-size", "tp")
PP: Final = ("pipeline-parallel-size", "pp-size", "pp")
DP: Final = ("data-parallel-size", "dp-size", "dp")
_ALIASES: Final = (TP, PP, DP, ("expert-parallel-size", "ep-size", "ep"))
"""Names of one flag."""


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

"""What a point costs: GPUs x price x hours of its window, and that by tokens. Pure.

GPUs are those that are allocated, busy or not: an idle one is paid for, too.
"""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import yaml

from remuda.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_KEYS: Final = ("type", "also", "currency", "per_gpu_hour", "source", "as_of")
#: What a price given as a bare number is in.
CURRENCY: Final = "USD"


@dataclass(frozen=True)
class Price:
    """Of one GPU for one hour.

    Attributes:
        type: of the GPU; empty where the user gave a number alone.
        per_gpu_hour: in `currency`.
        currency: three letters.
        source: who says so.
        as_of: when, `2026-05-01`; empty where nobody says.
        also: other names of the type.
    """

    type: str
    per_gpu_hour: float
    currency: str = CURRENCY
    source: str = ""
    as_of: str = ""
    also: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """What it is found by."""
        return (self.type, *self.also)


def read_prices(text: str, where: str) -> list[Price]:
    """The prices of a file.

    Args:
        text: YAML, a list of `{type, currency, per_gpu_hour, source, as_of}`.
        where: its name.

    Raises:
        InputError: it is none, or an entry is wrong; says which.
    """
    hint = "write a list of {type: H100 SXM, currency: EUR, per_gpu_hour: 2.50, source: contract, as_of: 2026-05-01}"
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError("is not valid YAML", where=where, hint=hint) from error
    if not isinstance(data, list) or not data:
        raise InputError("holds no list of prices", where=where, hint=hint)
    return [_price(entry, f"{where}: price {number}", hint) for number, entry in enumerate(data, 1)]


def _price(entry: object, where: str, hint: str) -> Price:
    if not isinstance(entry, dict) or not entry.get("type"):
        raise InputError("has no type", where=where, hint=hint)
    if strange := [str(key) for key in entry if key not in _KEYS]:
        raise InputError(f"has {', '.join(strange)}", where=where, hint=f"a price has {', '.join(_KEYS)}")
    value = entry.get("per_gpu_hour")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise InputError(f"has per_gpu_hour = {value!r}, which is not a price", where=where, hint=hint)
    also = entry.get("also") or []
    if not isinstance(also, list):
        raise InputError(f"has also = {also!r}, which is not a list of names", where=where, hint=hint)
    return Price(
        str(entry["type"]), float(value), str(entry.get("currency") or CURRENCY), str(entry.get("source") or ""),
        str(entry.get("as_of") or ""), tuple(str(name) for name in also),
    )  # fmt: skip


def find_price(prices: Sequence[Price], gpu_type: str) -> Price | None:
    """The price of a type of GPU, under any of its names; None without."""
    wanted = _plain(gpu_type)
    return next((price for price in prices if wanted and wanted in map(_plain, price.names)), None)


def nearest(prices: Sequence[Price], gpu_type: str) -> list[str]:
    """Types of the list whose names are like this one; those with the same letters or number where none is."""
    names = {_plain(name): price.type for price in prices for name in price.names}
    near = difflib.get_close_matches(_plain(gpu_type), names, 6, 0.5)
    return list(dict.fromkeys(names[name] for name in near))[:3]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def cost_of(metrics: Mapping[str, Any], gpus: int, price: Price | None) -> dict[str, Any] | None:
    """`cost` of a point; None without GPUs, a price or a window.

    Tokens are those that were delivered in the window, so that a million of them costs what it costs while the load
    lasts.
    """
    seconds = metrics.get("window_s") or 0.0
    if price is None or gpus < 1 or seconds <= 0:
        return None
    total = gpus * price.per_gpu_hour * seconds / 3600
    return {
        "currency": price.currency, "per_gpu_hour": price.per_gpu_hour, "gpu_type": price.type,
        "source": price.source, "as_of": price.as_of, "gpus": gpus, "window_s": seconds, "total": total,
        "per_m_output": _per_million(total, metrics.get("output_tok_s"), seconds),
        "per_m_total": _per_million(total, metrics.get("total_tok_s"), seconds),
    }  # fmt: skip


def _per_million(total: float, rate: float | None, seconds: float) -> float | None:
    return total / (rate * seconds) * 1e6 if rate else None

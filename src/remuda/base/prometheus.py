"""Numbers out of Prometheus text: only what routers and engines tell, no library."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = re.compile(r"[A-Za-z_:][\w:]*")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class PrometheusSample:
    """One line."""

    name: str
    labels: Mapping[str, str]
    value: float


Samples = tuple[PrometheusSample, ...]


def parse(text: str) -> Samples:
    """All samples; comments and lines that are none are passed over."""
    found = (_sample(line) for line in text.splitlines() if line and line[0] != "#")
    return tuple(sample for sample in found if sample is not None)


def _sample(line: str) -> PrometheusSample | None:
    """Cut at the braces: a pattern for the whole line goes back and forth in it, and there are hundreds of lines."""
    name, brace, rest = line.partition("{")
    labels, closed, tail = rest.rpartition("}")
    if not brace:
        name, _, tail = line.partition(" ")
    fields = tail.split()
    if bool(brace) != bool(closed) or len(fields) not in (1, 2) or _NAME.fullmatch(name.strip()) is None:
        return None
    try:
        value = float(fields[0])
    except ValueError:
        return None
    return PrometheusSample(name.strip(), dict(_LABEL.findall(labels)) if labels else {}, value)


def chosen(samples: Samples, name: str, **labels: frozenset[str]) -> list[PrometheusSample]:
    """Samples of that name whose labels have one of the given values."""
    return [
        sample
        for sample in samples
        if sample.name == name and all(sample.labels.get(label) in values for label, values in labels.items())
    ]


def total(samples: Samples, name: str, **labels: frozenset[str]) -> float:
    """Sum over the chosen samples, 0 without any."""
    return sum(sample.value for sample in chosen(samples, name, **labels))


def quantile(samples: Samples, name: str, share: float, **labels: frozenset[str]) -> float:
    """Upper bound of the bucket in which the share lies; of the last finite one beyond that; 0 without samples."""
    counts: dict[float, float] = {}
    for sample in chosen(samples, f"{name}_bucket", **labels):
        bound = float(sample.labels.get("le", "inf"))
        counts[bound] = counts.get(bound, 0.0) + sample.value
    finite = sorted(bound for bound in counts if bound != float("inf"))
    whole = counts.get(float("inf"), 0.0)
    if not whole or not finite:
        return 0.0
    return next((bound for bound in finite if counts[bound] >= share * whole), finite[-1])

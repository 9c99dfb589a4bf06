"""Numbers out of Prometheus text: only what routers and engines tell, no library."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_LINE = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+\S+)?\s*")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Sample:
    """One line."""

    name: str
    labels: Mapping[str, str]
    value: float


Samples = tuple[Sample, ...]


def parse(text: str) -> Samples:
    """All samples; comments and lines that are none are passed over."""
    found: list[Sample] = []
    for line in text.splitlines():
        match = _LINE.fullmatch(line) if line and line[0] != "#" else None
        if match is None:
            continue
        try:
            value = float(match.group(3))
        except ValueError:
            continue
        found.append(Sample(match.group(1), dict(_LABEL.findall(match.group(2) or "")), value))
    return tuple(found)


def chosen(samples: Samples, name: str, **labels: frozenset[str]) -> list[Sample]:
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

"""The text of a cluster file that is written for the user. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from remuda.base.text import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

_HEAD: Final = "# What every recipe for this cluster would say again. A recipe wins over it.\n"
_ALIASES: Final = """
# Short names for recipes: `model: {path: r1, container: sglang}`.
# model_paths:
#   r1: /models/DeepSeek-R1
# containers:
#   sglang: /images/sglang.sqsh
"""


@dataclass(frozen=True)
class DraftLine:
    """One key of a cluster file."""

    key: str
    value: str | int | None
    """None: not known; the line is left to the user, as a comment."""
    why: str
    """Where the value came from, or why there is none."""
    is_open: bool = False
    """Whether the user may know better."""


def render(lines: Sequence[DraftLine]) -> str:
    """A cluster file that `cluster.read` reads: each value, and behind it where it came from."""
    said = [f"{line.key}: {json.dumps(line.value)}" if line.value is not None else f"# {line.key}:" for line in lines]
    width = max(map(len, said), default=0)
    rows = [f"{text.ljust(width)}  # {clean(line.why, one_line=True)}" for text, line in zip(said, lines, strict=True)]
    return _HEAD + "\n".join(rows) + "\n" + _ALIASES

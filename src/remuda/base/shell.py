"""Command lines for people: everything that is rendered into a shell is quoted here."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def show_command(argv: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    """One line that a POSIX shell reads back as exactly `argv`, with `env` before it."""
    settings = [f"{name}={shlex.quote(value)}" for name, value in (env or {}).items()]
    return " ".join([*settings, shlex.join(argv)])

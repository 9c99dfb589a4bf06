"""A directory for an engine's sockets: private, a short path, nobody's guess, the same on all nodes of a replica."""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.node.child.ports import make_safe
from remuda.wire.spread import SCRATCH_MARK

if TYPE_CHECKING:
    from collections.abc import Sequence


def make(words: Sequence[str]) -> str:
    """A new directory on this node, if one of the words asks for it; else only a name.

    Raises:
        OSError: it cannot be made.
    """
    while True:
        path = Path(f"/tmp/rr{secrets.token_hex(4)}")  # noqa: S108 - sockets need a short path; nobody knows this one
        if not _is_meant(words):
            return str(path)
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            continue
        return str(path)


def share(path: str, words: Sequence[str]) -> str:
    """Make the same on another node, or see that it is ours there; empty when no word asks for it.

    Raises:
        UnsafeDirectory: somebody else has made it.
        OSError: it cannot be made.
    """
    if not path or not _is_meant(words):
        return ""
    make_safe(Path(path))
    return path


def remove(path: str) -> None:
    """All of it."""
    if path:
        shutil.rmtree(path, ignore_errors=True)


def _is_meant(words: Sequence[str]) -> bool:
    return any(SCRATCH_MARK in word for word in words)

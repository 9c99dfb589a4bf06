"""Whether this allocation still counts, and whether the one before has noticed that it does not.

A fence file that is missing or cannot be read is silence, not a fence.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from remuda.node.claim import CLAIM
from remuda.wire.process import ProcessId, boot_id, is_alive

if TYPE_CHECKING:
    from pathlib import Path


class Fence:
    """Two files, looked at again and again: one names the allocation that counts, one its process.

    Args:
        path: `ChildSpec.fence_file`, None for none.
        token: of this allocation.
        claim: of this allocation; a scheduler that starts it again elsewhere replaces it.
        own: the process that this program claimed as.
    """

    def __init__(self, path: Path | None, token: str, claim: Path, own: ProcessId) -> None:
        self._files = {"fence": path, "claim": claim}
        self._token = token
        self._own = own
        self._seen: dict[str, tuple[int, int] | None] = {}

    def broken_by(self) -> str:
        """Who counts instead of us, in one sentence; empty while we do."""
        named = self._changed("fence")
        token = named.get("token") if named is not None else None
        if isinstance(token, str) and token and token != self._token:
            return f"{token} counts now, not {self._token}"
        claim = self._changed("claim")
        if claim is None:
            return ""
        try:
            other = ProcessId(**claim)
        except TypeError:
            return ""
        return f"{self._token} was started again on {other.node}" if other != self._own else ""

    def _changed(self, name: str) -> dict[str, Any] | None:
        """Content of a file that is new since the last look."""
        path = self._files[name]
        if path is None:
            return None
        try:
            # Opened, not only looked at: a network file system answers a look from memory for up to a minute.
            with path.open(encoding="utf-8") as file:
                stat = os.fstat(file.fileno())
                signature = (stat.st_mtime_ns, stat.st_ino)
                if self._seen.get(name) == signature:
                    return None
                data: Any = json.loads(file.read())
        except (OSError, ValueError):
            return None
        self._seen[name] = signature
        return data if isinstance(data, dict) else None


class Previous:
    """The attempt before, until it has said its last word or is surely gone.

    Args:
        folder: its directory.
        wait_s: longest wait.
        now: seconds, on the clock that `look` is asked with.
    """

    def __init__(self, folder: Path, wait_s: float, now: float) -> None:
        self._folder = folder
        self._wait_s = wait_s
        self._until = now + wait_s

    def look(self, now: float) -> str | None:
        """None while it may still run; then what there is to say about it, empty for nothing."""
        if not (self._folder / CLAIM).exists() or (self._folder / "exit.json").exists():
            return ""
        if self._is_gone():
            return "the attempt before ended without a word"
        if now >= self._until:
            return f"the attempt before has not ended within {self._wait_s:g} s; this one starts all the same"
        return None

    def _is_gone(self) -> bool:
        """Only its own machine, in the same boot, can tell."""
        try:
            process = ProcessId.from_json((self._folder / CLAIM).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        here = process.node == os.uname().nodename and process.boot == boot_id()
        return bool(process.boot) and here and not is_alive(process)

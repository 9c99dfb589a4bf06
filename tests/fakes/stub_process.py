"""The stub server as a process of its own, for tests and benchmarks: start, look, change, kill, start again."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from typing import Any, Self


class StubProcess:
    """A running stub; `with` ends it.

    Args:
        flags: of `python -m tests.fakes.stub_server`; the port is chosen and kept over restarts.
    """

    def __init__(self, *flags: str) -> None:
        self._flags = flags
        self.port = 0
        self._process: subprocess.Popen[str] | None = None
        self.start()

    @property
    def url(self) -> str:
        """Base URL without `/v1`."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start, on the port it had before; returns when it listens."""
        argv = [sys.executable, "-m", "tests.fakes.stub_server", "--port", str(self.port), *self._flags]
        self._process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def kill(self) -> None:
        """End it at once, with all that it was doing."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._process = None

    def set(self, **behaviour: Any) -> None:
        """Change `Behaviour` fields."""
        self._call("/stub/set", json.dumps(behaviour).encode())

    def stats(self) -> dict[str, Any]:
        """Requests so far; `prompts` maps each prompt to how often it was asked."""
        return self._call("/stub/stats")

    def forget(self) -> None:
        """Count requests and prompts from here on."""
        self._call("/stub/forget")

    def _call(self, path: str, body: bytes | None = None) -> dict[str, Any]:
        request = urllib.request.Request(self.url + path, data=body)
        with urllib.request.urlopen(request, timeout=120) as reply:
            return json.loads(reply.read())  # type: ignore[no-any-return]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

"""Clients of commands that only look: they start no host, and make no directory, where there is nothing to see."""

from __future__ import annotations

from typing import Any

from remuda.base.errors import NotFound
from remuda.base.text import brief
from remuda.control.client import HostClient, connect


def looking() -> HostClient:
    """A client of a host that answers; where the state directory holds no workload, of none.

    Raises:
        HostUnreachable: as `connect`.
    """
    client = _Idle()
    return client if client.is_idle() else connect()


class _Idle(HostClient):
    """Answers as the host of a state directory without workloads does, until there is one."""

    def is_idle(self) -> bool:
        """Whether no host runs or has died here, and none would have anything to tell."""
        if self.paths.socket.exists() or self.paths.host_file.exists():
            return False
        self.paths.check()
        self.paths.check_socket()
        if self.paths.workloads.is_dir() and any(self.paths.workloads.iterdir()):
            return False  # perhaps the database was lost, which a host tells
        from remuda.control.wiring import database_url
        from remuda.store.peek import peek

        seen = peek(database_url(self.paths))
        return not seen.exists or (not seen.problem and not seen.workloads)

    def call(self, method: str, path: str, body: Any = None, *, query: dict[str, object] | None = None) -> Any:
        """One question; see `HostClient.call`."""
        if not self.is_idle():
            return super().call(method, path, body, query=query)
        if path in ("/workloads", "/host"):
            return [] if path == "/workloads" else {}
        name = body["names"][0] if body else path.split("/")[2]
        raise NotFound(f"nothing is called {brief(name)!r}", hint="`remuda status` lists what there is")

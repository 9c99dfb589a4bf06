"""Talks to the API server of a cluster: what there is, making, changing and ending it, and logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remuda.base.errors import Conflict

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from remuda.backends.kubernetes.config import Access
    from remuda.base.clock import Clock

Doc = dict[str, Any]


class Exists(Conflict):
    """There is an object of that name: ours, when its labels and annotations say so."""


class KubernetesClient:
    """One user's view of one namespace of one cluster.

    A kind is its plural: `jobs`, `pods`, `secrets`, `configmaps`, `services`, `events`, `podgroups`, and `nodes`, which
    are of the whole cluster. Every verb raises, beside what it says itself:

    - `BackendUnreachable`: no answer, one that is no API server's, or one that says to ask later. What was asked for may
      have been done all the same.
    - `Rejected`: the server refused, with its own words (400, 403, …); `Impossible` where it always will (413, 422).
    - `NotFound`: there is no such namespace.
    - `InputError`: the server does not know who asks, though the credentials were renewed; or they cannot be had.

    No token is in an error.

    Args:
        access: where and who.
        clock: for pauses and for credentials that expire; the machine's own where None.
        timeout_s: after which an answer has not come.
    """

    def __init__(self, access: Access, clock: Clock | None = None, *, timeout_s: float = 30.0) -> None:
        raise NotImplementedError

    async def create(self, kind: str, body: Doc) -> Doc:
        """Make an object; as the server has it.

        After `BackendUnreachable` it may be there: whoever asked reads it, or creates it once more and takes `Exists`
        for what its first try made, if uid or annotations agree.

        Raises:
            Exists: one of that name is there.
        """
        raise NotImplementedError

    async def read(self, kind: str, name: str) -> Doc | None:
        """One object; None: there is none of that name."""
        raise NotImplementedError

    async def list(self, kind: str, selector: str = "") -> list[Doc]:
        """All objects of a kind that have the labels, as of one moment; their `kind` and `apiVersion` are left out.

        Args:
            kind: of what.
            selector: of labels, as kubectl's `-l` has it.
        """
        raise NotImplementedError

    async def patch(self, kind: str, name: str, body: Doc) -> Doc | None:
        """Change an object by a merge patch (RFC 7396): it as it is then; None: it has gone.

        Raises:
            Conflict: the patch names a `resourceVersion` that is no longer the object's.
        """
        raise NotImplementedError

    async def delete(self, kind: str, name: str, *, uid: str = "", grace_s: int | None = None) -> bool:
        """End an object, and in the background what it owns; False: it has gone, or the name is another object's now.

        Args:
            kind: of what.
            name: of which.
            uid: only the object that has it.
            grace_s: seconds that a pod has in place of its own grace; never 0.
        """
        raise NotImplementedError

    def log(
        self,
        pod: str,
        *,
        container: str,
        since: str = "",
        tail: int | None = None,
        limit: int | None = None,
        follow: bool = False,
        timestamps: bool = True,
    ) -> AsyncGenerator[bytes, None]:
        """Output of a container: whole lines with their ends, as many as were at hand; only the last may lack its end.

        A line that is longer than a megabyte comes in pieces. `BackendUnreachable` can come in the middle, also where
        nothing came for minutes while it was followed: go on with `since`.

        Args:
            pod: its name.
            container: of the pod.
            since: time of RFC 3339, from which on (to the second); empty: from the beginning.
            tail: the last lines only.
            limit: at most so many bytes.
            follow: until the container ends.
            timestamps: put its time before each line.

        Raises:
            NotFound: there is no such pod.
            Rejected: its container has not started, with the server's words.
        """
        raise NotImplementedError

    async def may(self, verb: str, resource: str) -> bool:
        """Whether who asks may do that; `resource` is a kind, or below one: `pods/log`."""
        raise NotImplementedError

    async def version(self) -> tuple[int, int]:
        """The server's version, e.g. `(1, 36)`."""
        raise NotImplementedError

    async def discover(self) -> frozenset[str]:
        """Groups and versions that are served, e.g. `v1`, `batch/v1`; asked once."""
        raise NotImplementedError

    async def dry_run(self, kind: str, body: Doc) -> None:
        """Let the server check what `create` would make, quotas and webhooks too, without making it.

        Raises:
            Exists: one of that name is there.
        """
        raise NotImplementedError

    async def close(self) -> None:
        """Close the connections."""
        raise NotImplementedError

"""The router seam: how the members of an endpoint's router are set.

A router is a task of the workload like any other. It starts with no members and answers 503; the supervisor tells it
which replicas answer, again after each restart, so that nothing about membership is kept in two places.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from remuda.base.errors import InputError
from remuda.plan.model import Role

if TYPE_CHECKING:
    from collections.abc import Iterable

NAMES: Final = ("smg", "nginx", "dynamo")


@dataclass(frozen=True)
class Keys:
    """Key values, read just before use; never shown, never stored."""

    api: str = field(default="", repr=False)
    """What clients of the endpoint send."""
    control: str = field(default="", repr=False)
    """What changes the membership."""
    worker: str = field(default="", repr=False)
    """What the replicas ask for."""


NO_KEYS: Final = Keys()


@dataclass(frozen=True)
class Member:
    """One server that a router sends requests to."""

    url: str
    """Its base address."""
    role: Role = Role.REPLICA
    bootstrap_port: int = 0
    """Where a prefill server hands its cache over; 0 if it has no such port."""


@dataclass(frozen=True)
class MemberChanges:
    """What one `sync` did, by address of the member."""

    added: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()
    pending: frozenset[str] = frozenset()
    """Asked for, and not serving yet: the next `sync` looks again."""

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.pending)


@dataclass(frozen=True)
class WorkerStats:
    """One member as the router sees it."""

    url: str
    healthy: bool
    requests: int = 0
    """Sent there so far, retries included."""
    running: int = 0


@dataclass(frozen=True)
class RouterStats:
    """What a router counted since it started."""

    requests: int = 0
    errors: int = 0
    """Answers that were not a success, as the client saw them."""
    running: int = 0
    retries: int = 0
    """-1: it does not count them."""
    mean_s: float = 0.0
    """Mean time of a request, 0 before the first."""
    p50_s: float = 0.0
    p99_s: float = 0.0
    """Upper bounds from the router's own histogram: as fine as its buckets are."""
    workers: tuple[WorkerStats, ...] = ()


class Router(Protocol):
    """One kind of router."""

    name: str
    roles: frozenset[Role]
    """What its members may be."""

    async def sync(
        self, base_url: str, members: frozenset[Member], keys: Keys = ..., *, wait_s: float = ...
    ) -> MemberChanges:
        """Make the members exactly `members`. May be called again at any time; without a difference it changes nothing.

        Args:
            base_url: `http://host:port` of the router.
            members: the servers that shall be sent requests.
            keys: `control` (else `api`) opens the router, `worker` is what it sends to the replicas.
            wait_s: how long to wait until new members serve.

        Raises:
            InputError: the router does not know the role of one of them.
            Unavailable: the router does not answer, or not in a way that says anything.
            Rejected: the router refuses the key.
        """
        ...

    async def stats(self, base_url: str, keys: Keys = ...) -> RouterStats:
        """What the router counted.

        Raises:
            Unavailable: the router does not answer.
            Rejected: the router refuses the key.
        """
        ...


def check_roles(router: Router, roles: Iterable[Role]) -> None:
    """Refuse members that a router does not know how to ask.

    Raises:
        InputError: says which.
    """
    unknown = sorted(set(roles) - router.roles)
    if unknown:
        known = " and ".join(sorted(router.roles))
        raise InputError(f"{router.name} cannot send to a {unknown[0]} server", hint=f"it knows {known}; smg knows all")


def router_named(name: str, model: str = "") -> Router:
    """The router of that name.

    Args:
        name: one of `NAMES`.
        model: what the replicas serve, where they do not tell it themselves.

    Raises:
        InputError: there is none.
    """
    if name == "smg":
        from remuda.serving.smg import SmgRouter

        return SmgRouter(model)
    if name == "dynamo":
        from remuda.serving.dynamo import DynamoRouter

        return DynamoRouter()
    if name == "nginx":
        from remuda.serving.nginx import NginxRouter

        return NginxRouter()
    raise InputError(f"there is no router {name!r}", hint=f"known: {', '.join(NAMES)}")

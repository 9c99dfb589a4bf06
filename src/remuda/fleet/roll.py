"""Who may join and who has joined: the head's record, one file that is written whole before anything is answered.

Only the host writes it. A token's use and the node that it let in are one write, so neither is there without the other.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final

from remuda.base.disk.files import write_atomic
from remuda.base.errors import NotFound, RemudaError
from remuda.base.text import did_you_mean
from remuda.fleet.token import Ticket, digest, is_secret
from remuda.wire.fields import alike, known

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from remuda.fleet.token import JoinToken
    from remuda.wire.fleet import Joining

ROLL: Final = "roll.json"
"""Its file, in the folder of the head."""
KEPT_S = 30 * 86400.0
"""How long tokens that open nothing any more are listed."""


@dataclass(frozen=True)
class FleetNode:
    """A node of the fleet."""

    name: str
    digest: str
    """Of its key."""
    address: str
    slurm: str
    remuda: str
    cpus: int
    memory: int
    gpus: str
    joined_at: float
    token: str
    """Id of the token that let it in."""
    leaving: bool = False


class Roll:
    """Tokens and members.

    Args:
        path: of the file; mode 0600.

    Raises:
        RemudaError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.tickets: Mapping[str, Ticket] = {}
        self.members: Mapping[str, FleetNode] = {}
        try:
            kept = json.loads(path.read_text())
            self.tickets = {one["id"]: Ticket(**known(Ticket, one)) for one in kept["tickets"]}
            self.members = {one["name"]: FleetNode(**known(FleetNode, one)) for one in kept["members"]}
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RemudaError(f"{path} cannot be read: {error}", hint="bring a copy of it back") from error

    def _write(
        self, tickets: Mapping[str, Ticket] | None = None, members: Mapping[str, FleetNode] | None = None
    ) -> None:
        """Write both, and only then believe it.

        Raises:
            RemudaError: the disk is full, or the folder is gone; nothing has changed.
        """
        tickets = self.tickets if tickets is None else tickets
        members = self.members if members is None else members
        kept = {"tickets": list(map(asdict, tickets.values())), "members": list(map(asdict, members.values()))}
        try:
            write_atomic(self._path, json.dumps(kept, indent=1), mode=0o600)
        except OSError as error:
            raise RemudaError(f"{self._path} cannot be written: {error.strerror}") from error
        self.tickets, self.members = tickets, members

    def add(self, ticket: Ticket) -> None:
        """Take a new token's ticket in; those that ended long ago go."""
        kept = {name: one for name, one in self.tickets.items() if one.ends_at > ticket.made_at - KEPT_S}
        self._write(tickets=kept | {ticket.id: ticket})

    def revoke(self, name: str) -> Ticket:
        """Let a token open nothing any more. Nodes that joined with it stay.

        Raises:
            NotFound: there is no such token.
        """
        if name not in self.tickets:
            hint = did_you_mean(name, list(self.tickets), "`remuda host token list` lists them")
            raise NotFound(f"there is no token {name!r}", hint=hint)
        self._write(tickets={**self.tickets, name: replace(self.tickets[name], revoked=True)})
        return self.tickets[name]

    def opens(self, name: str, secret: str, now: float) -> str:
        """Why a token opens nothing, in a sentence; empty when it does."""
        ticket = self.tickets.get(name)
        if ticket is None or not is_secret(secret, ticket.digest):
            return "this fleet has no such token"
        return ticket.refusal(now)

    def by_key(self, key: str) -> FleetNode | None:
        """The member whose key that is."""
        kept = digest(key)
        return next((one for one in self.members.values() if one.digest == kept), None)

    def join(self, said: Joining, token: JoinToken | None, now: float) -> FleetNode:
        """Record a node as it says that it is; a token is used up by one unless the node is known by its key."""
        before = self.members.get(said.name)
        is_back = before is not None and is_secret(said.key, before.digest)
        by = before.token if before is not None and is_back else token.id if token is not None else ""
        kept = (
            {"joined_at": before.joined_at, "leaving": before.leaving and not said.stays} if before and is_back else {}
        )
        member = FleetNode(
            **alike(FleetNode, said) | {"digest": digest(said.key), "token": by, "joined_at": now} | kept
        )
        tickets = dict(self.tickets)
        if token is not None and not is_back:
            tickets[token.id] = replace(tickets[token.id], uses=tickets[token.id].uses + 1)
        self._write(tickets, {**self.members, said.name: member})
        return member

    def leave(self, name: str) -> None:
        """A node gets nothing new from now on."""
        self._write(members={**self.members, name: replace(self.members[name], leaving=True)})

    def forget(self, name: str) -> None:
        """A node is none any more."""
        self._write(members={key: one for key, one in self.members.items() if key != name})

"""The fleet whose head this host is: its controller, who may join, who has joined, and what they said last."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from base64 import b64encode
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from remuda import __version__
from remuda.base.errors import Conflict, NotFound, Rejected, RemudaError, Unavailable
from remuda.fleet import admission, certificate, head, scontrol, token, tree
from remuda.fleet.daemons import Controller
from remuda.fleet.health import QUIET_S, Heard, faults
from remuda.fleet.roll import ROLL, FleetNode, Roll
from remuda.host.fleet.carrying import VERBS, Carrying
from remuda.host.reporting import site_controller
from remuda.views.nodes import unknown_node
from remuda.wire.fleet import Beat, Joined, Joining, Leaving, Levels, to_json, told

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from remuda.base.disk.paths import StatePaths
    from remuda.host.fleet.server import FleetServer
    from remuda.wire.report import Report

_LOG = logging.getLogger("remuda.host.fleet")
TEND_S: Final = 3.0
"""Between two looks whether the controller lives."""
LOOK_S: Final = 10.0
"""Between two questions which nodes Slurm gives no work."""


class Fleet:
    """What the host does as the head of a fleet; without one it does nothing.

    Args:
        paths: of the state directory.
        begun: what is done when the controller is up: nodes now reach this machine by the fleet's network.
        take: is given reports of carried allocations.
    """

    def __init__(self, paths: StatePaths, begun: Callable[[], Awaitable[None]], take: Callable[[Report], None]) -> None:
        self.paths, self._tell_begun = paths, begun
        self.folder = paths.fleet
        self.head: head.Head | None = None
        self.trouble = ""
        """Why the controller or the server is not there, in a sentence; empty while all is well."""
        self.heard: dict[str, Heard] = {}
        self.carrying = Carrying(paths, take)
        self._since = time.monotonic()
        self._closed: Mapping[str, str] = {}
        """Nodes that Slurm gives no work, and why."""
        self._looked = 0.0
        self._roll: Roll | None = None
        self._controller: Controller | None = None
        self._server: FleetServer | None = None
        self._fingerprint = ""
        self._turn = asyncio.Lock()
        self._begun = asyncio.Event()

    # --- being a head ------------------------------------------------------------------------------------------------

    async def begin(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Become the head of a fleet, or one with other settings; what `view` says.

        Raises:
            InputError: a setting cannot be.
            Conflict: a port is in use, or a site's Slurm answers here.
            Unavailable: a program is missing.
        """
        async with self._turn:
            before = await asyncio.to_thread(self._recorded)
            wanted = await asyncio.to_thread(head.planned, before, asked)
            if self.head is None or wanted != self.head:
                await self._close()
                await asyncio.to_thread(self._check, wanted, before)
                await asyncio.to_thread(head.write, self.folder / "head.json", wanted)
                await self._start(wanted)
        if self.trouble:
            raise Unavailable(self.trouble, hint="see remuda host logs; the host tries again by itself")
        return self.view()

    def _recorded(self) -> head.Head | None:
        self.paths.folder(self.folder)
        return head.read(self.folder / "head.json")

    def _check(self, wanted: head.Head, before: head.Head | None) -> None:
        """See that a head can be here, before anything is recorded."""
        if before is None and (site := site_controller(os.environ)):
            raise Conflict(
                f"this machine belongs to a cluster: its Slurm answers at {site}",
                hint="use it (--backend slurm), or start the fleet with a REMUDA_HOME of its own and SLURM_CONF unset",
            )
        tree.find(head=True, unpacked=self._unpacked(wanted))
        running = before is not None and self._make_controller(before).alive()
        for flag, port in wanted.ports.items():
            if not (running and before is not None and port == before.conf.port):
                head.check_port(wanted.conf.address, port, flag)

    def _unpacked(self, wanted: head.Head) -> Path | None:
        return Path(wanted.unpacked) if wanted.unpacked else None

    def _make_controller(self, wanted: head.Head) -> Controller:
        return Controller(self.folder, wanted.conf, tree.find(head=True, unpacked=self._unpacked(wanted)))

    async def keep(self) -> None:
        """Go on with what is recorded, and look after it for ever."""
        if not (self.folder / "head.json").exists():
            await self._begun.wait()
        while True:
            async with self._turn:
                try:
                    await self._tend()
                except (RemudaError, OSError) as error:
                    self._complain(error)
            await asyncio.sleep(TEND_S)

    async def _tend(self) -> None:
        if self.head is not None and self._controller is not None and self._server is not None:
            for sentence in await asyncio.to_thread(self._controller.tend):
                _LOG.warning("fleet: %s", sentence)
            self.trouble = ""
            if self.members() and time.monotonic() > self._looked + LOOK_S:
                self._closed = await asyncio.to_thread(scontrol.closed, self._controller)
                self._looked = time.monotonic()
            return
        recorded = await asyncio.to_thread(head.read, self.folder / "head.json")
        if recorded is not None:
            await self._start(recorded)

    async def _start(self, wanted: head.Head) -> None:
        self.head = wanted
        self._begun.set()
        try:
            if self._roll is None:
                self._roll = await asyncio.to_thread(Roll, self.folder / ROLL)
            self._fingerprint = await asyncio.to_thread(certificate.make, self.folder / "head.pem")
            controller = await asyncio.to_thread(self._make_controller, wanted)
            await asyncio.to_thread(controller.start)
            self._controller = controller
            await self._tell_begun()
            if self._server is None:
                from remuda.host.fleet.server import FleetServer  # hosts without a fleet need no HTTPS

                server = FleetServer(self.folder / "head.pem", self._known, self._answer)
                server.open(wanted.conf.address, wanted.http_port)
                self._server = server
        except (RemudaError, OSError) as error:
            self._complain(error)
            return
        self.trouble = ""
        _LOG.info("head of a fleet: slurmctld at %s:%d, clients at port %d", wanted.conf.address, wanted.conf.port,
                  wanted.http_port)  # fmt: skip

    def _complain(self, error: Exception) -> None:
        said = f"the fleet is not up: {error}"
        if said != self.trouble:
            _LOG.error("%s", said)
        self.trouble = said

    async def end(self) -> None:
        """Drain the nodes and end the controller: this machine is a head no more. Nodes and tokens stay recorded.

        Raises:
            NotFound: it is none.
        """
        async with self._turn:
            if self.head is None:
                raise head.no_head()
            controller = self._controller
            if controller is None:
                controller = await asyncio.to_thread(self._make_controller, self.head)
            await asyncio.to_thread(controller.stop, drain=True)
            (self.folder / "head.json").unlink(missing_ok=True)
            self.paths.fleet_carried.unlink(missing_ok=True)
            await self._close()
            self.head = None

    async def _close(self) -> None:
        if self._server is not None:
            await self._server.close()
        self._server = self._controller = None

    async def close(self) -> None:
        """The host ends; controller and nodes go on."""
        await self._close()

    # --- who may join ------------------------------------------------------------------------------------------------

    async def _settled(self) -> tuple[head.Head, Roll]:
        """Head and roll, also where this host has just begun to be one.

        Raises:
            NotFound: this host is no head.
            Unavailable: it cannot be one now.
        """
        async with self._turn:
            if self.head is None:
                raise head.no_head()
            if self._roll is None or not self._fingerprint:
                raise Unavailable(self.trouble)
            return self.head, self._roll

    async def mint(self, life_s: float, most: int) -> dict[str, Any]:
        """A new token, as text, and where it is good; errors as `_settled`."""
        it, roll = await self._settled()
        made, ticket = token.mint(self._fingerprint, time.time(), life_s=life_s, most=most)
        roll.add(ticket)
        return {"token": str(made), "id": made.id, "ends_at": ticket.ends_at, "uses": most, **_where(it)}

    async def tickets(self) -> list[dict[str, Any]]:
        """All tokens, without what opens: newest last; errors as `_settled`."""
        _, roll = await self._settled()
        now = time.time()
        return [_shown(one, now) for one in roll.tickets.values()]

    async def revoke(self, name: str) -> dict[str, Any]:
        """Let a token open nothing any more; errors as `_settled`, and NotFound where there is no such token."""
        _, roll = await self._settled()
        return _shown(roll.revoke(name), time.time())

    # --- what nodes say ----------------------------------------------------------------------------------------------

    def _up(self) -> tuple[head.Head, Roll, Controller]:
        """What nodes are answered from. A node that is not found gives up for good, so that is not said lightly.

        Raises:
            Unavailable: it is not there at the moment.
        """
        if self.head is None or self._roll is None or self._controller is None:
            raise Unavailable(self.trouble or "the head of this fleet is about to start, or to end")
        return self.head, self._roll, self._controller

    def _known(self, said: str) -> str:
        """Who says an `Authorization`: the member's name; empty for a token that opens.

        Raises:
            Rejected: the token opens nothing.
            NotFound: no member has that key.
        """
        _, roll, _ = self._up()
        kind, _, value = said.partition(" ")
        if kind == "Token":
            name, _, secret = value.partition(".")
            if why := roll.opens(name, secret, time.time()):
                raise Rejected(why, hint="ask for another on the head: remuda host token")
            return ""
        member = roll.by_key(value) if kind == "Key" and value else None
        if member is None:
            raise NotFound("this fleet has no node with that key: it left, or another machine has its name now")
        return member.name

    async def _answer(self, verb: str, name: str, said: str, body: bytes) -> str:
        if verb == "join":
            return to_json(await self._join(name, said, told(Joining, body)))
        if verb == "beat" and name:
            return to_json(self._beat(name, told(Beat, body)))
        if verb == "leave" and name:
            return to_json(await self._leave(name, told(Leaving, body)))
        if verb in VERBS and name:
            _, _, controller = self._up()
            return await self.carrying.answer(verb, name, body, controller.ask)
        raise Rejected(f"a fleet knows no {verb[:40]!r} of this machine")

    async def _join(self, name: str, said: str, joining: Joining) -> Joined:
        it, roll, controller = self._up()
        if name and joining.name != name:
            raise Rejected(f"this machine is node {name} of the fleet, and cannot be {joining.name}")
        version = tuple(controller.tree.version)
        why = admission.refusal(joining, uid=it.conf.user, now=time.time(), slurm=version)
        if why:
            raise Rejected(why)
        used = None if name else token.of_words(said.partition(" ")[2])
        before = roll.members.get(joining.name)
        if before is not None and not token.is_secret(joining.key, before.digest):
            why = admission.taken(joining.name, before.address, self.silent_s(joining.name))
            if why:
                raise Conflict(why)
        other = roll.by_key(joining.key)
        if other is not None and other.name != joining.name:
            raise Conflict(f"this machine is node {other.name} of the fleet already", hint="remuda client disconnect")
        roll.join(joining, used, time.time())
        self.heard[joining.name] = Heard(time.monotonic(), Beat(address=joining.address, gpus=joining.gpus))
        if before is not None and before.leaving and not roll.members[joining.name].leaving:
            with suppress(RemudaError):
                await asyncio.to_thread(scontrol.put, controller, joining.name, "resume")
        _LOG.info("node %s joined from %s", joining.name, joining.address)
        key = await asyncio.to_thread(lambda: controller.munge_key)
        proof = await asyncio.to_thread(self.carrying.proof)
        return Joined(b64encode(key).decode(), controller.slurm_conf, asdict(it.conf), proof)

    def _beat(self, name: str, beat: Beat) -> Levels:
        self.heard[name] = Heard(time.monotonic(), beat, beat.at - time.time())
        are_all = all(one in self.heard and self.heard[one].beat.shares for one in self.members())
        self.carrying.heard(name, shares=beat.shares, are_all=are_all)
        return self._levels(name)

    def _levels(self, name: str, *, is_empty: bool = False) -> Levels:
        _, roll, controller = self._up()
        conf = head.digest_of(controller.munge_key, controller.slurm_conf)
        return Levels(leaving=roll.members[name].leaving, is_empty=is_empty, conf=conf)

    async def _leave(self, name: str, leaving: Leaving) -> Levels:
        """Each call does what is still to be done, so that one that was lost is asked again."""
        _, roll, controller = self._up()
        if leaving.gone:
            with suppress(Rejected):  # Slurm did not know it, or still looks after what ran there
                await asyncio.to_thread(scontrol.delete, controller, name)
            roll.forget(name)
            self.heard.pop(name, None)
            _LOG.info("node %s left", name)
            return Levels(leaving=True, is_empty=True)
        if not roll.members[name].leaving:
            roll.leave(name)
        there = await asyncio.to_thread(scontrol.look, controller, name)
        if leaving.force and not there.is_empty:
            await asyncio.to_thread(scontrol.put, controller, name, "down", scontrol.LEAVES)
        elif not there.is_closed:
            await asyncio.to_thread(scontrol.put, controller, name, "drain", scontrol.LEAVES)
        await asyncio.to_thread(scontrol.end_recorders, controller, name)
        there = await asyncio.to_thread(scontrol.look, controller, name)
        return self._levels(name, is_empty=there.is_empty and there.is_closed)

    async def lose(self, name: str, *, force: bool = False) -> None:
        """Take somebody's word that a machine is off: what ran there has failed with it, and starts elsewhere.

        Raises:
            NotFound: no node has this name, or this host is no head.
            Conflict: it was heard a moment ago, and not `force`.
            Unavailable: the controller does not answer.
        """
        _, roll = await self._settled()
        _, _, controller = self._up()
        if name not in roll.members:
            raise unknown_node(name, roll.members, "the fleet")
        if not force and (silent := self.silent_s(name)) <= QUIET_S:
            raise Conflict(
                f"{name} is not off: it was heard {silent:.1f} s ago",
                hint="to give up what runs there: remuda client disconnect --force on it, or --force here",
            )
        await asyncio.to_thread(scontrol.put, controller, name, "down", scontrol.LOST)

    # --- what is shown -----------------------------------------------------------------------------------------------

    def silent_s(self, name: str) -> float:
        """For how long nothing was heard of a node; of one that this host never heard: since it began."""
        last = self.heard.get(name)
        return time.monotonic() - (last.at if last is not None else self._since)

    def members(self) -> Mapping[str, FleetNode]:
        """The nodes, by name; none where this host is no head."""
        return self._roll.members if self.head is not None and self._roll is not None else {}

    def said(self) -> dict[str, tuple[float, tuple[str, ...]]]:
        """Of each node: for how long nothing was heard, and what is wrong with it."""
        return {name: (round(self.silent_s(name), 1), tuple(self._faults(one))) for name, one in self.members().items()}

    def _faults(self, one: FleetNode) -> list[str]:
        closed = self._closed.get(one.name, "")
        return faults(one, self.heard.get(one.name), self.silent_s(one.name), __version__, closed)

    def view(self) -> dict[str, Any]:
        """The fleet for whoever looks; empty where this host is no head."""
        if self.head is None:
            return {}
        nodes = [self._node(one) for one in self.members().values()]
        return {**_where(self.head), "trouble": self.trouble, "lease_s": self.head.conf.lease_s, "nodes": nodes}

    def _node(self, one: FleetNode) -> dict[str, Any]:
        last, silent = self.heard.get(one.name), self.silent_s(one.name)
        kept = {name: value for name, value in asdict(one).items() if name not in ("digest", "token")}
        more = {"problems": self._faults(one), "heard_s": round(silent, 1)}
        return kept | more | {"free_bytes": last.beat.free_bytes if last is not None else None}


def _where(it: head.Head) -> dict[str, Any]:
    conf = it.conf
    return {"address": conf.address, "port": conf.port, "http_port": it.http_port, "model_port": it.model_port}


def _shown(ticket: token.Ticket, now: float) -> dict[str, Any]:
    kept = {name: value for name, value in asdict(ticket).items() if name != "digest"}
    return kept | {"refusal": ticket.refusal(now)}

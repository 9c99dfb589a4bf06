"""The use cases, as the host carries them out. The only writer of intents."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from remuda.base.errors import Conflict, InputError, RemudaError, Unwritable
from remuda.base.ids import check_name, check_uid
from remuda.host.grouping import begun_again, counted, group_named
from remuda.host.orphan_scan import EndingView, StrayView, endings, sweep
from remuda.look import run_dirs
from remuda.look.allocate import (
    check_alone,
    check_count,
    check_replaceable,
    is_same,
    taken_gpus,
    with_devices,
    with_free_devices,
    with_port,
)
from remuda.look.ports import Reserved, keeps
from remuda.plan import order
from remuda.store import ops
from remuda.store.rows import StoryLine, WorkloadRow
from remuda.supervise.loop import Supervisor, all_ended
from remuda.supervise.model import TAKEN_DOWN, Want
from remuda.supervise.records import want_of
from remuda.supervise.summary import ENDED, front_group, summarise
from remuda.views.actions import no_pause
from remuda.views.queries import Queries

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from remuda.base.clock import Clock
    from remuda.base.disk.paths import StatePaths
    from remuda.plan.model import Workload
    from remuda.supervise.records import StoreJournal
    from remuda.views.workloads import WorkloadView

_LOG = logging.getLogger("remuda.host")

Verb = Literal["down", "restart", "pause", "unpause"]


@dataclass(frozen=True)
class NewWorkload:
    """A workload to record."""

    workload: Workload
    spec: str = ""
    """What the user wrote, resolved."""
    running: bool = True
    """False: it is recorded, and stays down."""
    paused: bool = False
    note: str = "brought up"
    """First line of its story."""


class Service(Queries):
    """Use cases over one supervisor. Not thread-safe: the host calls it from its event loop.

    Each is one transaction, and memory follows what was recorded: a use case that raises has changed nothing.
    """

    def __init__(self, journal: StoreJournal, supervisor: Supervisor, paths: StatePaths, clock: Clock) -> None:
        super().__init__(journal, supervisor, clock)
        self.paths = paths
        self._unrecorded: dict[str, str] = {}
        """Workloads that end although that could not be recorded yet, and why they do."""
        self.ports = Reserved(paths.ports, paths.root, paths.own_ports)
        self.accepting = asyncio.Lock()
        self.address = "127.0.0.1"
        """Of this machine, as nodes of a cluster reach it."""

    def still_forgotten(self) -> list[str]:
        """Those of which there still are directories, and no other workload has the name."""
        names = [name for name in self.forgotten if name not in self.supervisor.wants]
        return [name for name in names if self.paths.workload(name).exists()]

    def same(self, workload: Workload, spec: str = "") -> WorkloadView | None:
        """The one of its name that is up and asks for the same; one that has ended by itself was an earlier answer."""
        self._know()
        old = self.supervisor.wants.get(workload.name)
        if old is None or not old.running:
            return None
        said = ("" if old.workload.digest else self.journal.store.workload(workload.name).spec, spec)
        view, is_one = self.view(workload.name), old.workload.uid == workload.uid
        is_over = bool(old.workload.ends_with) and not is_one and view.phase in ENDED
        return view if not is_over and is_same(old.workload, workload, said) else None

    def create(self, workload: Workload, spec: str = "") -> WorkloadView:
        """Record a new workload; the supervisor brings it up.

        The same workload asked for again is the one that is there already, so a command that was killed can be typed
        again.

        Raises:
            Conflict: another workload of that name is up; a port or the GPUs are taken.
            InputError: the name cannot be one.
        """
        return self.same(workload, spec) or self.create_many([NewWorkload(workload, spec)])[0]

    def create_many(self, starts: Sequence[NewWorkload]) -> list[WorkloadView]:
        """Record new workloads, all or none, in one transaction.

        Raises:
            Conflict: one of them is up, or named twice; a port or the GPUs are taken.
            InputError: a name cannot be one, or there is no such backend.
        """
        self._know()
        names = [start.workload.name for start in starts]
        name, count = Counter(names).most_common(1)[0] if names else ("", 0)
        if count > 1:
            raise Conflict(f"{name!r} is given {count} times in one request")
        for start in starts:
            self.check_new(start.workload, start.spec)
        wants: list[Want] = []
        try:
            for start in starts:
                settled = self._settle(start.workload, wants)
                want = Want(settled, start.running, 1, paused=start.paused, note=start.note)
                wants.append(replace(want, ends_at=self._end_of_life(want)))
            self._insert(wants, starts)
        except BaseException:
            for want in wants:
                self.ports.give_back(want.workload.name, want.workload.endpoint.port if want.workload.endpoint else 0)
            raise
        return [self.view(name) for name in names]

    def check_new(self, workload: Workload, spec: str = "") -> None:
        """See that a workload could be recorded; raises what `create_many` would."""
        check_name(workload.name)
        check_uid(workload.uid)
        run_dirs.check(workload, self.paths)
        for backend in dict.fromkeys([workload.backend, *(group.backend for group in workload.groups)]):
            if backend and backend not in self.supervisor.backends:
                known = ", ".join(sorted(self.supervisor.backends))
                raise InputError(f"this host has no backend {backend!r}", hint=f"known: {known}")
        order.check(workload)
        for group in workload.groups:
            check_count(workload, group.name, group.at_once(group.count))
        self._check_alone(workload)
        old = self.supervisor.wants.get(workload.name)
        if old is not None:
            said = (self.journal.store.workload(workload.name).spec, spec)
            check_replaceable(old, self.supervisor.tasks(workload.name), workload.kind, said)

    def _insert(self, wants: Sequence[Want], starts: Sequence[NewWorkload]) -> None:
        now = self.clock.now()
        made = [want.workload for want in wants if run_dirs.make(want.workload, self.paths)]
        replaced = [want.workload.name for want in wants if want.workload.name in self.supervisor.wants]
        rows = [_new_row(want, start.spec, now) for want, start in zip(wants, starts, strict=True)]
        lines = [StoryLine(now, start.workload.name, "intent", start.note) for start in starts]
        try:
            with self.journal.transaction():
                self.journal.begin(rows, lines, replaced)
                for want in wants:
                    self.journal.then(partial(self._follow, want, now))
        except BaseException:
            for workload in made:
                with suppress(OSError):
                    self.paths.workload(workload.name).rmdir()
            raise

    def _follow(self, want: Want, now: float) -> None:
        """Begin to follow a workload that is recorded, in place of one of its name."""
        name = want.workload.name
        self._drop(name)
        self.created[name] = now
        self.supervisor.adopt(want)

    def _drop(self, name: str) -> None:
        """Follow a workload no more: its record is gone."""
        self.supervisor.forget(name)
        self.created.pop(name, None)

    def _settle(self, workload: Workload, more: Sequence[Want] = ()) -> Workload:
        """Choose what must be unique on this machine: the endpoint's port, and the GPUs. `more` come with it."""
        others = [*(want for want in self.supervisor.wants.values() if self._holds(want)), *more]
        if workload.is_here:
            workload = with_devices(workload, self._gpus_of(others))
        elif workload.endpoint is None or not front_group(workload).backend:
            return workload
        return with_port(workload, others, self.ports, self.address)

    def _gpus_of(self, wants: Sequence[Want]) -> dict[str, str]:
        return taken_gpus((want, self.supervisor.tasks(want.workload.name)) for want in wants)

    def _begun_anew(self, want: Want) -> Want:
        """The same with GPUs that are its own: those it had may have been given to others since it ended.

        Raises:
            Conflict: there are not enough, or another gang trains what it did.
        """
        self._check_alone(want.workload)
        others = [item for item in self.supervisor.wants.values() if item is not want and self._holds(item)]
        return with_free_devices(want, self._gpus_of(others))

    def _check_alone(self, workload: Workload) -> None:
        """Two gangs in one place would be taken for one, with two ranks of each number."""
        wants = self.supervisor.wants.items()
        check_alone(workload, ((want, self.supervisor.tasks(name)) for name, want in wants if name != workload.name))

    def _holds(self, want: Want) -> bool:
        return keeps(want, self.supervisor.tasks(want.workload.name))

    def _end_of_life(self, want: Want) -> float:
        """When the lifetime of what is brought up now is over, 0 for never."""
        return self.clock.now() + want.workload.lifetime_s if want.workload.lifetime_s else 0.0

    def down(self, name: str, why: str = TAKEN_DOWN) -> WorkloadView:
        """Record that the workload is not wanted any more. It is DOWN when `view` says so."""
        self._end([self.known(name)], why)
        return self.view(name)

    def check_meant(self, uids: Mapping[str, str]) -> None:
        """See that names mean the workloads that a caller knows by uid; an empty one is any.

        Raises:
            NotFound: there is none of one of the names.
            Conflict: one is another workload by now.
        """
        for name, uid in uids.items():
            if uid and self.known(name).workload.uid != uid:
                raise Conflict(f"{name!r} is another workload by now", hint=f"look at it first: remuda status {name}")

    def take_down(self, names: Sequence[str]) -> None:
        """`down` for several, in one transaction, all or none.

        Raises:
            NotFound: there is none of one of the names.
        """
        self._end([self.known(name) for name in names], TAKEN_DOWN)

    def _end(self, wants: Sequence[Want], why: str) -> None:
        """Let them end: recorded, or where nothing can be recorded now all the same, and recorded as soon as it can.

        So a run can be ended that has filled the disk. A host that dies before it is recorded is the price.
        """
        ending = [replace(want, running=False) for want in wants if want.running or want.has_failed]
        try:
            if ending:
                self._record_end(ending, why)
        except Unwritable as error:
            for want in ending:
                _LOG.warning("%s is ended, which cannot be recorded now: %s", want.workload.name, error)
                self._unrecorded[want.workload.name] = why
                self.supervisor.adopt(replace(want, note=why))
        self.supervisor.wake()

    def _record_end(self, ending: Sequence[Want], why: str) -> None:
        """Record that they are not wanted any more: a thousand at once cost little more than one."""
        names, now = [want.workload.name for want in ending], self.clock.now()
        with self.journal.transaction():
            now_at = self.journal.store.end_workloads(self.journal.fence, names, changed_at=now, note=why)
            self.journal.record(lines=[StoryLine(now, name, "intent", why) for name in names])
            for want in ending:
                generation = now_at.get(want.workload.name, want.generation + 1)
                self.journal.then(partial(self.supervisor.adopt, replace(want, generation=generation, note=why)))

    def settle(self) -> None:
        """Make memory and database the same again, after a time in which the database did not answer or had no room.

        Raises:
            RemudaError: it still does not answer.
        """
        if self.journal.in_doubt:
            self._reload()
        self.record_ends()

    def _reload(self) -> None:
        """Follow what is recorded; but what ends although it could not be recorded stays as it is."""
        rows = [row for row in self.journal.store.workloads() if row.name not in self._unrecorded]
        recorded = {row.name: want_of(row) for row in rows}
        for name, known in list(self.supervisor.wants.items()):
            want = recorded.get(name)
            if name not in self._unrecorded and (want is None or want.workload.uid != known.workload.uid):
                self._drop(name)
        for row in rows:
            self.created[row.name] = row.created_at
            if self.supervisor.wants.get(row.name) != recorded[row.name]:
                self.supervisor.adopt(recorded[row.name])
        self.journal.in_doubt = False

    def known(self, name: str) -> Want:
        """See `Queries.known`."""
        self._know()
        return super().known(name)

    def _know(self) -> None:
        """Before something is concluded from memory."""
        if self.journal.in_doubt:
            with suppress(RemudaError):
                self._reload()

    def record_ends(self) -> None:
        """Record what was ended while nothing could be; what still cannot be stays for the next time."""
        for name, why in list(self._unrecorded.items()):
            want = self.supervisor.wants.get(name)
            if want is not None and not want.running:
                try:
                    self._change(want, why)
                except Unwritable:
                    return
            self._unrecorded.pop(name, None)

    def restart(self, name: str, group: str = "") -> WorkloadView:
        """Ask for a workload again: what failed or ended gets a new attempt.

        What runs is left alone, but for a run, a gang, or a `group` or indices of an array (`7,9`) that are named: that
        is begun again, without counting a failure.

        Raises:
            NotFound: there is no such workload, group or index.
            Conflict: there are not enough GPUs; a group of what is down or paused cannot be begun again alone.
        """
        want = self.known(name)
        if group and (want.workload.is_array or not want.workload.kind.traits.is_restarted_whole):
            note = f"{group} restarted on request"
            begun = replace(begun_again(want, group), workload=self._begun_anew(want).workload, note=note)
            marks, plan = json.dumps(dict(begun.group_marks)), begun.workload.model_dump_json()
            self.amend(begun, note, note=note, group_marks=marks, plan=plan)
            return self.view(name)
        if group:  # the only one
            group_named(want.workload, group)
        want = self._begun_anew(want)
        if want.workload.kind.traits.is_restarted_whole:
            begun = replace(want, running=True, paused=False, restart_mark=want.restart_mark + 1)
            self._change(begun, ("no longer paused, and " if want.paused else "") + "restarted on request")
        else:
            ends_at = want.ends_at if want.running else self._end_of_life(want)
            self._change(replace(want, running=True, ends_at=ends_at), "restarted on request")
        return self.view(name)

    def amend(self, want: Want, line: str, **changes: Any) -> None:
        """Record a change of an intent without a new generation: that would revive what ended meanwhile."""
        name, now = want.workload.name, self.clock.now()
        with self.journal.transaction():
            changed = replace(self.journal.store.workload(name), changed_at=now, **changes)
            self.journal.store.replace_workload(self.journal.fence, changed)
            self.journal.record(lines=[StoryLine(now, name, "intent", line)])
            self.journal.then(partial(self.supervisor.adopt, want))

    def pause(self, name: str, *, paused: bool) -> WorkloadView:
        """Leave alone what runs and begin nothing new, or go on doing so. Asking again is fine.

        Raises:
            Conflict: it has ended.
        """
        want = self.known(name)
        verb = "paused" if paused else "unpaused"
        if want.paused is not paused:
            if why := no_pause(summarise(want, self.supervisor.tasks(name)).phase, verb):
                raise Conflict(f"{name!r} is {why}", hint=f"start it again: remuda restart {name}")
            self.amend(replace(want, paused=paused, note=verb), verb, paused=paused, note=verb)
        return self.view(name)

    def change_many(self, verb: Verb, names: Sequence[str]) -> list[WorkloadView]:
        """Change the intent of several workloads in one transaction, all or none.

        Raises:
            NotFound: there is none of one of the names.
            Conflict: the state of one forbids it.
        """
        for name in (wanted := list(dict.fromkeys(names))):
            self.known(name)
        if verb == "down":
            self.take_down(wanted)
            return [self.view(name) for name in names]
        verbs: dict[Verb, Callable[[str], WorkloadView]] = {
            "restart": self.restart,
            "pause": partial(self.pause, paused=True),
            "unpause": partial(self.pause, paused=False),
        }
        with self.journal.transaction():
            for name in wanted:
                verbs[verb](name)
        return [self.view(name) for name in names]

    def scale(self, name: str, asked: Mapping[str, int]) -> WorkloadView:
        """Record another number of tasks of some groups, see `grouping.counted`.

        Raises:
            NotFound: there is no such group.
            InputError: a group cannot be scaled, the number is below 1, or the router is missing.
            Conflict: the GPUs are taken.
        """
        want = self.known(name)
        counts = counted(want.workload, asked)
        others = [item for item in self.supervisor.wants.values() if item is not want and self._holds(item)]
        workload = want.workload
        if workload.is_here:
            workload = with_devices(workload, self._gpus_of(others), {**want.counts, **counts})
        told = " and ".join(f"{group} scaled to {count}".lstrip() for group, count in asked.items())
        self._change(replace(want, workload=workload, counts={**want.counts, **counts}), told)
        return self.view(name)

    def _change(self, want: Want, note: str) -> None:
        name, now = want.workload.name, self.clock.now()
        why = note if want.running else want.note or note  # what is down stays so for the reason that it has
        with self.journal.transaction():
            row = self.journal.store.workload(name)
            plan = want.workload.model_dump_json()
            changed = replace(row, plan=plan, ends_at=want.ends_at)
            if want.running and not row.running:  # nobody has asked it yet
                changed = replace(changed, used_at=0.0, usage="")
            if changed != row:
                self.journal.store.replace_workload(self.journal.fence, changed)
            generation = self.journal.store.set_intent(
                self.journal.fence, name, running=want.running, counts=json.dumps(dict(want.counts)),
                changed_at=now, note=why, paused=want.paused, restart_mark=want.restart_mark,
            )  # fmt: skip
            self.journal.record(lines=[StoryLine(now, name, "intent", note)])
            self.journal.then(partial(self.supervisor.adopt, replace(want, generation=generation, note=why)))

    def announce(self, want: Want, *, announced: bool) -> None:
        """Remember whether the endpoint was up since the workload was brought up."""
        name, now = want.workload.name, self.clock.now()
        with self.journal.transaction():
            self.journal.announce(name, announced=announced)
            if announced:
                self.journal.record(lines=[StoryLine(now, name, "endpoint", "the endpoint is announced")])
            self.journal.then(partial(self.supervisor.adopt, replace(want, announced=announced)))

    async def sweep(self, name: str, *, force: bool = False) -> list[StrayView]:
        """What backends still run of a workload that is down; it is asked to end, or killed. Empty: nothing is left.

        Raises:
            NotFound: there is none of that name.
            BackendUnreachable: no answer.
        """
        self.known(name)
        return await sweep(self.supervisor, name, force=force)

    async def endings(self, names: Sequence[str], **how: Any) -> list[EndingView]:
        """How workloads that are to end stand, and what is left of those that are down; see `orphan_scan.endings`."""
        return await endings(self.supervisor, names, **how)

    def remove(self, name: str) -> str:
        """Forget a workload that is down, with its run directory; its story stays until it is pruned.

        Returns:
            A folder that is left because it is not remuda's to remove; empty when there is none.

        Raises:
            Conflict: it is up, or something of it is left.
        """
        want = self.known(name)
        if want.running or not all_ended(self.supervisor.tasks(name).values()):
            raise Conflict(f"{name!r} is not down", hint=f"remuda down {name}")
        with self.journal.transaction():
            self._forget(want)
        return self._remove_files(want)

    def _forget(self, want: Want) -> None:
        self.journal.store.remove_workload(self.journal.fence, want.workload.name)
        self.journal.then(partial(self._drop, want.workload.name))

    def _remove_files(self, want: Want) -> str:
        left = run_dirs.remove(want.workload, self.paths)
        if left:
            _LOG.warning("%s is forgotten; its folder %s was not made by remuda and is left", want.workload.name, left)
        return left

    def prune(self, before: float) -> ops.Pruned:
        """Forget workloads that have been down, or done, since before `before` (since the epoch), and old stories."""
        gone = [want for name, want in self.supervisor.wants.items() if self._is_old(name, before)]
        with self.journal.transaction():
            for want in gone:
                if want.running:
                    self.journal.record(lines=[StoryLine(self.clock.now(), want.workload.name, "intent", "pruned")])
                self._forget(want)
            pruned = ops.prune(self.journal.store, self.journal.fence, before)
        for want in gone:
            self._remove_files(want)
        return pruned

    def _is_old(self, name: str, before: float) -> bool:
        since = max((task.since for task in self.supervisor.tasks(name).values()), default=0.0)
        if self.view(name).phase not in ("DOWN", "DONE", "STOPPED") or since >= before:
            return False
        return self.journal.store.workload(name).changed_at < before


def _new_row(want: Want, spec: str, now: float) -> WorkloadRow:
    workload = want.workload
    known = {name: getattr(want, name) for name in ("running", "generation", "paused", "ends_at", "note")}
    return WorkloadRow(
        workload.name, workload.uid, workload.kind.value, workload.backend, workload.model_dump_json(), spec,
        created_at=now, changed_at=now, **known,
    )  # fmt: skip

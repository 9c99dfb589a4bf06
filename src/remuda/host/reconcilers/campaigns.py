"""Carries campaigns out: creates what is due, gives it its job once it is up, and takes it down again.

Each deed is recorded before it is done, and may be done again: a host that dies leaves the rest to the next.
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import orjson

from remuda.base.disk.files import write_atomic
from remuda.base.errors import Conflict, Fenced, RemudaError, Unavailable
from remuda.base.ids import check_name
from remuda.base.secrets import SecretRef
from remuda.batch.endpoint import slots_of
from remuda.host.accept import accept, with_secrets
from remuda.host.reconcilers.campaign_bodies import PlannedRow, counted, is_known, points_of, unknown
from remuda.host.service import NewWorkload
from remuda.plan.job import SLOTS, filled
from remuda.plan.model import Role
from remuda.store.rows import CampaignItemRow, CampaignRow
from remuda.supervise import campaign as states
from remuda.supervise.campaign import DONE, ENDING, FAILED, OVER, STARTING, SWEEP, WAITING, WORKING, RowSeen, Step, due
from remuda.supervise.jobs import ENDED, LOST, UNSEEN
from remuda.supervise.model import Phase
from remuda.supervise.reconciler import Due, Moment, Reconciler, Turns
from remuda.supervise.summary import summarise

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from remuda.host.reconcilers.campaign_bodies import CampaignBody
    from remuda.host.reconcilers.job_rows import JobKeeper
    from remuda.host.service import Service
    from remuda.views.workloads import WorkloadView

    Known = tuple[CampaignRow, list[CampaignItemRow]]

_LOG = logging.getLogger("remuda.host.reconcilers.campaigns")
_LOOK_S: Final = 1.0
"""Between two looks at what has limits to keep, or could not be done."""
_BEGUN: Final = frozenset({Phase.STARTING, Phase.READY, Phase.UNHEALTHY})


class Campaigns(Reconciler[str, object]):
    """All campaigns. Not thread-safe: the host calls it from its event loop."""

    def __init__(self, service: Service, jobs: JobKeeper) -> None:
        self._service, self._jobs, self._journal = service, jobs, service.journal
        self._known: dict[str, Known] = {one.name: (one, rows) for one, rows in service.journal.store.campaigns()}
        self._seen: dict[str, RowSeen] = {}
        self._names: set[str] = set()
        """Of workloads and jobs of campaigns that are not over."""
        self._marks: dict[str, object] = {}
        self._measured: dict[str, list[str]] = {}
        """By address of a row: those of its points."""
        self._offset = self._clock_offset()
        self._alone = asyncio.Lock()
        self.turns: Turns = Turns(self._turn, "campaigns")

    def due(self, at: Moment) -> Due[str, object]:
        """Which workload of a campaign has changed."""
        name = at.want.workload.name
        if name not in self._names:
            return Due()
        mark = (at.want.workload.uid, at.want.generation, summarise(at.want, at.tasks).phase, _has_begun(at))
        return Due({} if self._marks.get(name) == mark else {name: mark})

    def act(self, actions: Mapping[str, object]) -> None:
        """Look at the campaigns soon."""
        self._marks |= actions
        self.turns.wake()

    # What faces ask for

    async def begin(self, body: CampaignBody) -> dict[str, Any]:
        """Record a campaign and carry it out: what runs goes on, what is done stays so, what failed begins anew.

        Raises:
            Conflict: something of it runs that is not asked for any more.
            InputError: the name cannot be one.
        """
        check_name(body.name)
        async with self._alone:
            known, rows = self._known.get(body.name, (None, []))
            if known is not None and known.kind != body.kind:
                raise Conflict(f"{body.name!r} is a {known.kind}", hint=f"give the {body.kind} another name")
            before, asked = {row.address: row for row in rows}, {row.address for row in body.rows}
            ending = f"cancel {body.name}" if body.kind == SWEEP else f"-c {body.document} --cancel"
            for row in rows:
                if row.state not in (WAITING, OVER) and row.address not in asked:
                    raise Conflict(
                        f"{body.kind} {body.name!r} was asked for otherwise before, and {row.name} is {row.state}",
                        hint=f"wait for it, or end it: remuda {body.kind} {ending}",
                    )
            made = [self._row(body, number, before) for number in range(len(body.rows))]
            campaign = CampaignRow(body.name, body.kind, body.document, body.bound)
            if body.secrets and any(row.state != OVER for row in made):
                path = self._secrets(body.name)
                self._service.paths.folder(path.parent)
                await asyncio.to_thread(write_atomic, path, json.dumps(body.secrets), mode=0o600)
            self._journal.store.record_campaign(self._journal.fence, made, campaign)
            self._known[body.name] = (campaign, made)
            self.turns.wake()
            return self.view(body.name)

    def _row(self, body: CampaignBody, number: int, before: Mapping[str, CampaignItemRow]) -> CampaignItemRow:
        asked = body.rows[number]
        old = before.get(asked.address)
        if old is not None and not (old.state == OVER and (body.again or old.outcome == FAILED)):
            return replace(old, idx=number)
        called = asked.workload.name if asked.workload is not None else asked.name
        same = {name: getattr(asked, name) for name in ("keeps", "queue_timeout_s", "wait_s", "outcome", "reason")}
        return CampaignItemRow(
            body.name, number, called, asked.address, asked.model_dump_json(exclude_defaults=asked.workload is None),
            OVER if asked.outcome else WAITING, points=asked.job.name if asked.job else "",
            since=self._service.clock.now(), **same,
        )  # fmt: skip

    async def cancel(self, name: str, kind: str = "") -> dict[str, Any]:
        """End what is left of a campaign; see `view`."""
        self.view(name, kind)
        async with self._alone:
            for row in list(self._known[name][1]):
                if row.state == WAITING:
                    self._put(row, state=OVER, outcome=FAILED, reason="cancelled")
                elif row.state not in (ENDING, OVER):
                    self._take_down(row, FAILED, "cancelled")
            self.turns.wake()
            return self.view(name)

    def view(self, name: str, kind: str = "", *, with_points: bool = False) -> dict[str, Any]:
        """A campaign for faces, `with_points` of what its rows measure.

        Raises:
            NotFound: there is none, or it is of another kind.
        """
        campaign, rows = self._known.get(name, (None, []))
        if campaign is None or kind not in ("", campaign.kind):
            raise unknown(name, kind, self._known.values())
        found = {"name": name, "kind": campaign.kind, "document": campaign.document, "bound": campaign.bound}
        found |= {"points": [*points_of(rows)]} if with_points else {}
        return {**found, "rows": [*map(self._shown, rows)]}

    def views(self, kind: str) -> list[dict[str, Any]]:
        """All campaigns, or those of a kind, each with how many of its rows are how far."""
        return [counted(*known) for known in self._known.values() if kind in ("", known[0].kind)]

    def _shown(self, row: CampaignItemRow) -> dict[str, Any]:
        seen, job = self._seen.get(row.name, RowSeen()), self._jobs.rows.get(row.points)
        done, total = (job.progress.get("done"), job.progress.get("total")) if job else (None, None)
        progress = f"{done:,}/{total:,} rows" if done is not None and total else job.state if job else ""
        same = {
            name: getattr(row, name) for name in ("name", "uid", "outcome", "reason", "is_ours", "since", "started_at")
        }
        more = {"phase": seen.phase, "job": seen.job, "told": seen.reason, "progress": progress}
        return {**same, "key": row.address, "step": row.state, "job_id": row.points if job else "", **more}

    def prune(self, before: float) -> int:
        """Forget campaigns that were over before `before`, seconds since the epoch."""
        rows = {name: rows for name, (_, rows) in self._known.items()}
        old = [name for name in rows if all(row.state == OVER and row.since < before for row in rows[name])]
        for name in old:
            self._journal.store.record_campaign(self._journal.fence, [], removed=name)
            del self._known[name]
        return len(old)

    # Beside the loop

    async def _turn(self) -> float | None:
        async with self._alone:
            by, self._offset = self._clock_offset() - self._offset, self._clock_offset()
            going = [one for one in self._known.values() if any(row.state != OVER for row in one[1])]
            self._names = {name for _, rows in going for row in rows for name in (row.name, row.points)}
            try:
                pauses = [await self._look(*one, by) for one in going]
            except RemudaError as error:
                _LOG.warning("campaigns cannot be carried out now: %s", error)
                return _LOOK_S
        return min((pause for pause in pauses if pause is not None), default=None)

    def _clock_offset(self) -> float:
        return self._service.clock.offset + self._service.clock.missed()

    async def _look(self, campaign: CampaignRow, rows: list[CampaignItemRow], by: float) -> float | None:
        """One round of one campaign; seconds until the next though nothing changes."""
        if by:  # that the clock was set, or this host stood still, is held against nobody
            rows[:] = [
                replace(row, since=row.since + by, started_at=row.started_at + by if row.started_at else 0.0)
                for row in rows
            ]
        if working := [row.points for row in rows if row.state == WORKING]:
            await self._jobs.look(working)
        self._seen |= (seen := {row.name: self._see(row) for row in list(rows)} | self._held(campaign, rows))
        before = [*rows]
        steps = due(rows, seen, campaign.bound, self._service.clock.now())
        for step in steps:
            await self._take(next(row for row in rows if row.name == step.name), step)
        if all(row.state == OVER for row in rows):
            self._secrets(campaign.name).unlink(missing_ok=True)
            return None
        if before != rows:
            return 0.0
        has_limits = any(row.state in (STARTING, ENDING) or seen[row.name].job_reason == UNSEEN for row in rows)
        return _LOOK_S if steps or has_limits else None

    def _held(self, campaign: CampaignRow, rows: list[CampaignItemRow]) -> dict[str, RowSeen]:
        """Rows of a sweep that wait until another has measured a point of theirs, or has ended what has their name."""
        others = [
            row for other, found in self._known.values() if {campaign.kind, other.kind} == {SWEEP} and other != campaign
            for row in found if row.state not in (WAITING, OVER)
        ]  # fmt: skip
        taken = {key: row.campaign for row in others for key in self._measures(row)}
        held = {}
        for row in rows if taken else ():
            busy = [taken[key] for key in self._measures(row) if key in taken] if row.state == WAITING else []
            if busy:
                held[row.name] = RowSeen(reason=f"sweep {busy[0]!r} measures points of it now", is_held=True)
        return held

    def _measures(self, row: CampaignItemRow) -> list[str]:
        """Its name, and the addresses of its points."""
        if row.address not in self._measured:
            self._measured[row.address] = [one["address"] for one in points_of([row])]
        return [row.name, *self._measured[row.address]]

    def _see(self, row: CampaignItemRow) -> RowSeen:
        """What there is to see of a row; a job that was never sent is none."""
        seen, wants = RowSeen(), self._service.supervisor.wants
        want, job = wants.get(row.name), self._jobs.rows.get(row.points)
        if want is not None and want.workload.uid == _uid(row):
            tasks = self._service.supervisor.tasks(row.name)
            if row.state == STARTING and row.uid and not row.started_at and _has_begun(Moment(want, tasks)):
                self._put(row, started_at=self._service.clock.now())
            summary = summarise(want, tasks)
            seen = RowSeen(summary.phase, summary.reason, ends=want.workload.ends_by_itself)
        if row.state != WORKING or job is None:
            return seen
        if job.id not in wants and (job.state not in ENDED or job.state == LOST):
            return seen  # a host that was killed had written its folder, and not recorded it yet
        return replace(seen, job=job.state, job_reason=job.reason, failed_rows=int(job.summary.get("failed") or 0))

    async def _take(self, row: CampaignItemRow, step: Step) -> None:
        try:
            if step.verb == states.CREATE:
                await self._create(self._put(row, state=STARTING, uid="", started_at=0.0))
            elif step.verb == states.SUBMIT:
                await self._submit(self._put(row, state=WORKING))
            elif step.verb == states.TAKE_DOWN:
                self._take_down(row, step.outcome, step.reason)
            else:
                self._put(row, state=OVER, outcome=step.outcome, reason=step.reason)
        except (Unavailable, Fenced):
            return  # asked again after the next look, of this host or of the next
        except RemudaError as error:
            said, row = f"{error}" + (f" ({error.hint})" if error.hint else ""), self._known[row.campaign][1][row.idx]
            if step.verb == states.SUBMIT:
                self._take_down(row, FAILED, said)
            else:
                self._put(row, state=OVER, outcome=FAILED, reason=said)

    async def _create(self, row: CampaignItemRow) -> None:
        if await asyncio.to_thread(is_known, row.plan, self._service.paths.root):
            self._put(row, state=OVER, outcome=DONE)
            return
        planned, path = PlannedRow.model_validate_json(row.plan), self._secrets(row.campaign)
        values = json.loads(path.read_text()) if path.is_file() else {}
        assert planned.workload is not None
        start = NewWorkload(with_secrets(planned.workload, values), planned.spec)
        (view,) = await accept(self._service, [start], again=True)
        self._put(row, uid=view.uid, is_ours=view.uid == planned.workload.uid)

    async def _submit(self, row: CampaignItemRow) -> None:
        planned, view = PlannedRow.model_validate_json(row.plan), self._service.view(row.name)
        if planned.job is not None and planned.workload is not None:
            slots = await _slots(view) if any(SLOTS in text for text in planned.job.files.values()) else -1
            uids, now = (planned.workload.uid, view.uid), self._service.clock.now()
            job = filled(planned.job, view.endpoint, uids, now, slots)
            await accept(self._service, [NewWorkload(job)], again=True)

    def _take_down(self, row: CampaignItemRow, outcome: str, reason: str) -> None:
        """With its job, where that still runs."""
        row = self._put(row, state=ENDING, outcome=outcome, reason=reason)
        wants, job = self._service.supervisor.wants, self._jobs.rows.get(row.points)
        if row.points in wants and (job is None or job.state not in ENDED):
            self._service.down(row.points)
        if row.is_ours and row.name in wants and wants[row.name].workload.uid == _uid(row):
            self._service.down(row.name)

    def _put(self, row: CampaignItemRow, **changes: Any) -> CampaignItemRow:
        """The row with changes, in the database first of all."""
        if changes.get("state", row.state) != row.state:
            changes["since"] = self._service.clock.now()
        new = replace(row, **changes)
        if new != row:
            self._journal.store.record_campaign(self._journal.fence, [new])
            self._known[row.campaign][1][row.idx] = new
        return new

    def _secrets(self, name: str) -> Path:
        return self._service.paths.root / "campaigns" / f"{name}.json"


def _uid(row: CampaignItemRow) -> str:
    """Of its workload, whether or not a host lived to record that it was created."""
    return row.uid or (orjson.loads(row.plan).get("workload") or {}).get("uid", "")


async def _slots(view: WorkloadView) -> int:
    urls = [task.url for task in view.tasks if Role(task.role).answers and task.url]
    key = await asyncio.to_thread(SecretRef(file=view.api_key_file).read) if view.api_key_file else ""
    return await slots_of(urls, key, view.wanted)


def _has_begun(at: Moment) -> bool:
    """Whether a replica has left the queue; routers and relays, which start sooner, say nothing of that."""
    serving = {group.name for group in at.want.workload.groups if group.role.serves}
    return any(task.phase in _BEGUN for key, task in at.tasks.items() if key.group in serving)

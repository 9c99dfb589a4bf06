"""Carries a pool out: brings swarms up, so many at a time, runs each one's job, and takes each down again.

A client of the host. What it does is recorded before it is done, so the same command goes on where it was killed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import sys
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from remuda.base.clock import LATE_S, SystemClock, steady
from remuda.base.disk.files import write_atomic
from remuda.base.errors import Conflict, HostUnreachable, InputError, NotFound, RemudaError, Unavailable
from remuda.base.extras import need_batch
from remuda.base.ids import api_path, slug
from remuda.batch.request import JobRequest
from remuda.client import mirror, swarms
from remuda.client import reconnect as again
from remuda.client.http import HostClient, connect
from remuda.client.jobs import batches, drivers, targets
from remuda.client.jobs.pool_plan import Action, Entry, Outcome, Seen, Step, Verb, is_over, moved, plan
from remuda.look import planning
from remuda.look.kinds.swarm import plan_loaded
from remuda.plan.model import Role
from remuda.specs.reading.load import load_swarm
from remuda.specs.reading.pools import CheckedPool, build_inline
from remuda.supervise.jobs import LOST, UNSEEN
from remuda.views.job_folders import JobFolder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from remuda.base.disk.paths import StatePaths
    from remuda.client.jobs.targets import Target
    from remuda.look.facts import Looked
    from remuda.plan.compile import Plan
    from remuda.specs.pool import PoolJob, PoolSwarm
    from remuda.specs.reading.load import Loaded
    from remuda.specs.swarm import SwarmSpec

_TICK_S = 0.5
"""Between two looks at the clock while nothing changes."""


@dataclass
class PoolMember:
    """One swarm of the pool: what was asked, and what is recorded of it."""

    entry: Entry
    said: PoolSwarm
    planned: Plan
    key: str
    """Of all that was asked: another one is another swarm."""
    uid: str = ""
    """Of its creation by this pool."""
    tries: int = 0
    job_id: str = ""
    seen: Seen = field(default_factory=Seen)
    progress: str = ""
    """Of its job, for eyes."""

    def to_json(self) -> dict[str, Any]:
        """What is recorded."""
        return {
            "name": self.entry.name, "key": self.key, "uid": self.uid, "tries": self.tries, "job_id": self.job_id,
            "step": self.entry.step.value, "outcome": self.entry.outcome.value, "reason": self.entry.reason,
            "is_ours": self.entry.is_ours, "is_sent": self.entry.is_sent, "since": self.entry.since,
            "started_at": self.entry.started_at,
        }  # fmt: skip

    def remember(self, record: Mapping[str, Any]) -> None:
        """Go on from a record; what failed is tried again."""
        if record["key"] != self.key:
            return
        self.uid, self.tries, self.job_id = record["uid"], record["tries"], record["job_id"]
        step, outcome = Step(record["step"]), Outcome(record["outcome"])
        if step is Step.OVER and outcome is Outcome.FAILED:
            return
        same = {name: record[name] for name in ("reason", "is_ours", "is_sent", "since", "started_at")}
        self.entry = replace(self.entry, step=step, outcome=outcome, **same)


def plan_pool(pool: CheckedPool, facts: Looked) -> list[PoolMember]:
    """Plan every swarm of a pool. Nothing is started or written.

    Raises:
        InputError: something is wrong; says where, in the pool's document or in the swarm's own.
    """
    members: list[PoolMember] = []
    names: dict[str, int] = {}
    for index, said in enumerate(pool.spec.swarms):
        planned = _planned(pool, index, facts)
        name = planned.workload.name
        if name in names:
            hint = "give one of them a `name`"
            raise InputError(f"two swarms are called {name!r}", hint=hint, where=pool.where("swarms", index))
        names[name] = index
        members.append(_member(pool, said, planned))
    return members


def _planned(pool: CheckedPool, index: int, facts: Looked) -> Plan:
    said = pool.spec.swarms[index]
    _check_job(pool, index)
    fallback = f"{pool_name(pool)}-{index}"

    def plan_as(name: str) -> Plan:
        if said.swarm is not None:
            return plan_loaded(cast("Loaded[SwarmSpec]", build_inline(pool, index)), facts, name)
        return plan_loaded(load_swarm(pool.path(said.config or ""), pool.overrides(index)), facts, name)

    if said.config is not None and not Path(pool.path(said.config)).is_file():
        where = pool.resolved.origin(("swarms", index, "config")).where
        hint = f"relative paths begin at {pool.folder}"
        raise InputError(f"there is no file {pool.path(said.config)}", hint=hint, where=where)
    planned = plan_as("")
    # A name that is made anew each time would not be found again.
    return planned if planned.spec.name else plan_as(fallback)


def _check_job(pool: CheckedPool, index: int) -> None:
    job = pool.spec.swarms[index].job
    if job is not None and job.script is None:
        need_batch("a batch job takes")
    if job is not None and job.script is not None and not Path(pool.path(job.script)).is_file():
        where = pool.resolved.origin(("swarms", index, "job", "script")).where
        raise InputError(f"there is no file {pool.path(job.script)}", where=where)


def _member(pool: CheckedPool, said: PoolSwarm, planned: Plan) -> PoolMember:
    address = planned.workload.endpoint
    entry = Entry(
        planned.workload.name, has_job=said.job is not None, keeps=said.stays, queue_timeout_s=said.queue_timeout,
        wait_s=address.wait_s if address else 600.0,
    )  # fmt: skip
    if said.job is not None and said.job.input is not None and said.job.output is not None:
        paths = {"input": pool.path(said.job.input), "output": pool.path(said.job.output)}
        said = said.model_copy(update={"job": said.job.model_copy(update=paths)})
    elif said.job is not None and said.job.script is not None:
        said = said.model_copy(update={"job": said.job.model_copy(update={"script": pool.path(said.job.script)})})
    asked = [planned.spec.model_dump_json(), said.model_dump_json()]
    return PoolMember(entry, said, planned, hashlib.sha256("\n".join(asked).encode()).hexdigest()[:16])


def pool_name(pool: CheckedPool) -> str:
    """What the pool is called."""
    return pool.spec.name or slug(Path(pool.document.name).stem)


class PoolRun:
    """One command that carries a pool out."""

    def __init__(self, pool: CheckedPool, members: Sequence[PoolMember], paths: StatePaths) -> None:
        self.pool = pool
        self.members = list(members)
        self.paths = paths
        tag = hashlib.sha256(str(Path(pool.document.name).absolute()).encode()).hexdigest()[:8]
        self.folder = paths.root / "pools" / f"{pool_name(pool)}-{tag}"
        self.names: set[str] = set()  # of swarms, and of their jobs
        self.host = HostClient(paths)
        self.clock = SystemClock()

    @property
    def _record(self) -> Path:
        return self.folder / "pool.json"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep others from carrying out the same pool.

        Raises:
            Conflict: somebody does.
        """
        self.paths.folder(self.folder)
        descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise Conflict(f"pool {pool_name(self.pool)!r} is being carried out by another command") from None
        try:
            yield
        finally:
            os.close(descriptor)

    def resume(self, *, again: bool) -> None:
        """Take in what an earlier command has recorded, unless all is to be done `again`."""
        try:
            records = {} if again else json.loads(self._record.read_text())["swarms"]
        except (OSError, ValueError, KeyError):
            records = {}
        for member in self.members:
            if member.entry.name in records:
                member.remember(records[member.entry.name])
                latest = max(member.entry.since, member.entry.started_at)
                member.entry = moved(member.entry, min(0.0, self.clock.now() - latest))

    def run(self) -> Iterator[Sequence[PoolMember]]:
        """Go on until nothing more is to be done; yields the members after each look.

        Raises:
            Unavailable: the host cannot be started.
        """
        self.host = connect()
        self.names |= {name for member in self.members for name in (member.entry.name, member.job_id)}
        ticks = mirror.ticks(self.host, self.names, _TICK_S)
        is_due = True
        while True:
            if is_due:
                self._look()
            seen = {member.entry.name: member.seen for member in self.members}
            now, entries = self.clock.now(), [member.entry for member in self.members]
            for action in plan(entries, seen, self.pool.spec.bound, now):
                self._apply(action)
            yield self.members
            if is_over([member.entry for member in self.members]):
                return
            is_due = self._wait(ticks) or any(member.seen.job_reason == UNSEEN for member in self.members)

    def _wait(self, ticks: Iterator[bool]) -> bool:
        """Wait for news, or a moment. That the clock was set, or this command stood still, is held against nobody."""
        asleep = steady()
        is_news = next(ticks)
        late_s, set_by = steady() - asleep - _TICK_S, self.clock.drift()
        self.clock.follow(set_by)
        for member in self.members:
            member.entry = moved(member.entry, set_by + (late_s if late_s > LATE_S else 0.0))
        return is_news

    def _look(self) -> None:
        """See how the swarms and their jobs are; silence changes nothing."""
        views = {view["name"]: view for view in again.get(self.host, "/workloads", everything="true")}
        try:
            for member in self.members:
                self._look_at(member, views)
        except HostUnreachable:
            self._look()  # the next host goes on with what is recorded

    def _look_at(self, member: PoolMember, views: Mapping[str, Mapping[str, Any]]) -> None:
        view = views.get(member.entry.name, {})
        mine = view if view and member.uid in ("", view["uid"]) else {}
        seen = Seen(mine.get("phase", ""), mine.get("reason", ""))
        if member.entry.step is Step.STARTING and not member.entry.started_at and _has_begun(mine):
            self._put(member, started_at=self.clock.now())
        if member.entry.step is Step.WORKING:
            seen = self._with_job(member, seen, is_known=member.job_id in views)
        member.seen = seen

    def _with_job(self, member: PoolMember, seen: Seen, *, is_known: bool) -> Seen:
        """What there is to see, with its job; a job that was never sent is none."""
        try:
            job = batches.job_state(self.paths, self.host, member.job_id)
        except NotFound:
            return seen
        if not is_known and (job.state not in batches.ENDED or job.state == LOST):
            return seen  # a command that was killed had not sent it yet
        done, total = job.progress.get("done"), job.progress.get("total")
        member.progress = f"{done:,}/{total:,} rows" if done is not None and total else job.state
        rows = int(job.summary.get("failed") or 0)
        return replace(seen, job=job.state, job_reason=job.reason, failed_rows=rows)

    # Deeds: each is recorded first, and may be repeated

    def _apply(self, action: Action) -> None:
        member = next(member for member in self.members if member.entry.name == action.name)
        try:
            match action.verb:
                case Verb.BRING_UP:
                    self._bring_up(member)
                case Verb.SUBMIT:
                    self._forget_unsent(member)
                    member.tries += 1
                    member.job_id = f"{member.entry.name[:40]}-{member.key[:6]}-{member.tries}"
                    self.names.add(member.job_id)
                    self._put(member, step=Step.WORKING)
                    self._submit(member)
                case Verb.TAKE_DOWN:
                    self._put(member, step=Step.ENDING, outcome=action.outcome, reason=action.reason)
                    self._take_down(member)
                case Verb.FINISH:
                    self._put(member, step=Step.OVER, outcome=action.outcome, reason=action.reason)
        except Unavailable:
            return  # asked again after the next look
        except RemudaError as error:
            said = f"{error}" + (f" ({error.hint})" if error.hint else "")
            is_up = member.seen.phase not in ("", "DOWN") and member.entry.is_ours
            step = Step.ENDING if is_up and action.verb is Verb.SUBMIT else Step.OVER
            self._put(member, step=step, outcome=Outcome.FAILED, reason=said)
            if step is Step.ENDING:
                self._take_down(member)

    def _bring_up(self, member: PoolMember) -> None:
        before, member.uid = member.uid, member.planned.workload.uid
        if before and member.seen.phase not in ("", "DOWN", "FAILED"):
            member.uid = before
        self._put(member, step=Step.STARTING, is_sent=False, started_at=0.0, outcome=Outcome.NONE, reason="")
        view = swarms.bring_up(member.planned, planning.facts_of(self.paths), self.host)
        is_ours = view["uid"] in (member.uid, before)
        member.uid = view["uid"]
        member.seen = Seen(view["phase"], view["reason"])
        self._put(member, is_ours=is_ours, is_sent=True)

    def _forget_unsent(self, member: PoolMember) -> None:
        """A command that was killed may have left the folder of a job that the host never heard of."""
        if member.entry.step is Step.WORKING and member.job_id:
            shutil.rmtree(JobFolder(self.paths, member.job_id).path, ignore_errors=True)

    def _submit(self, member: PoolMember) -> None:
        assert member.said.job is not None
        target = targets.of_swarm(member.entry.name, "", "", lambda _: None)
        place = drivers.place_of(self.host, member.entry.name)
        folder = JobFolder(self.paths, member.job_id)
        job = member.said.job
        if job.script is not None:
            retries = job.retries if "retries" in job.model_fields_set else 0
            sent = drivers.script(folder, _script(job, target), max_failures=retries + 1, place=place)
            folder.begin("script", job.script, member.entry.name, target.backend)
        else:
            request = _request(job, target)
            sent = drivers.batch(folder, request, place)
            folder.begin("batch", request.job, member.entry.name, target.backend, request)
        drivers.send(self.host, folder, sent)

    def _take_down(self, member: PoolMember) -> None:
        if member.job_id:
            with suppress(Conflict, NotFound):  # it may have ended
                batches.cancel_job(self.paths, self.host, member.job_id)
        if member.entry.is_ours:
            with suppress(NotFound):
                self.host.post(api_path(member.entry.name, "down"))

    def _put(self, member: PoolMember, **changes: Any) -> None:
        """Change the record of one, on disk first of all."""
        if changes.get("step", member.entry.step) is not member.entry.step:
            changes["since"] = self.clock.now()
        member.entry = replace(member.entry, **changes)
        known = {one.entry.name: one.to_json() for one in self.members}
        write_atomic(self._record, json.dumps({"swarms": known}, indent=1), mode=0o600)


def _has_begun(view: Mapping[str, Any]) -> bool:
    """Whether a replica has left the queue; routers and relays, which start sooner, say nothing of that."""
    return any(
        Role(task["role"]).serves and task["phase"] in ("starting", "ready", "unhealthy")
        for task in view.get("tasks", ())
    )


def _request(job: PoolJob, target: Target) -> JobRequest:
    same = {
        name: getattr(job, name)
        for name in (
            "job", "job_kwargs", "input_column", "output_columns", "id_column", "checkpoint_tag", "retry_errors",
            "max_concurrency", "retries", "limit", "num_threads",
        )
    }  # fmt: skip
    return JobRequest(
        endpoint=target.endpoint, swarm_dir=target.swarm_dir, model=target.model,
        input=job.input or "", output=job.output or "",
        api_key_env=target.api_key_env, api_key_file=target.api_key_file, slots=target.slots,
        checkpoint_dir=job.checkpoint_dir or "", timeout_s=job.timeout, **same,
    )  # fmt: skip


def _script(job: PoolJob, target: Target) -> drivers.Script:
    return drivers.Script(
        argv=(sys.executable, str(job.script), *job.args), endpoint=target.endpoint, model=target.model,
        endpoint_file=target.endpoint_file, key_file=target.api_key_file, key_env=target.api_key_env,
    )  # fmt: skip


def to_json(members: Sequence[PoolMember]) -> list[dict[str, Any]]:
    """What came of each, for programs."""
    return [{**member.to_json(), "phase": member.seen.phase, "job": asdict(member.seen)["job"]} for member in members]

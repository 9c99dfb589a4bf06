"""Slurm as a place where tasks run: a job, or a task of an array, is an allocation, and its name is the token."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.backends.base import (
    Cluster,
    Ending,
    Feature,
    Handle,
    Life,
    Log,
    Observed,
    Rendered,
    Request,
    Stray,
    pack_token,
)
from remuda.backends.lastword import buried
from remuda.backends.logs import Logs
from remuda.backends.slurm import carried, observing, strays
from remuda.backends.slurm.arrays import Call, array_name, in_calls, merge, one_by_one
from remuda.backends.slurm.check import check
from remuda.backends.slurm.client import SlurmClient
from remuda.backends.slurm.ending import Ender
from remuda.backends.slurm.files import RunDirectories
from remuda.backends.slurm.logs import find_log, until_ended, until_written
from remuda.backends.slurm.observing import Queue, is_of
from remuda.backends.slurm.pace import Pace
from remuda.backends.slurm.render import SlurmSite, render
from remuda.base.clock import Clock, SystemClock, lived
from remuda.base.disk.paths import StatePaths
from remuda.base.errors import BackendUnreachable, Impossible, Rejected, RemudaError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from remuda.backends.slurm.parsing.parse import AccountLine, QueueLine
    from remuda.wire.place import Place


class SlurmBackend:
    """Runs allocations as jobs of the Slurm cluster that this machine's commands talk to.

    Args:
        site: where files are.
        client: how to talk to Slurm.
        poll_s: between two looks when nothing happens.
        hurry_s: the same on average while something is about to end.
        gone_after_s: how long a job must be unknown to squeue and sacct before it is gone.
        clock: for `gone_after_s`.
    """

    name = "slurm"
    features = frozenset({Feature.EXCLUDE_NODES, Feature.POOLS})

    def __init__(
        self,
        site: SlurmSite,
        client: SlurmClient | None = None,
        *,
        poll_s: float = 15.0,
        hurry_s: float = 5.0,
        gone_after_s: float = 30.0,
        clock: Clock | None = None,
    ) -> None:
        self.site = site
        self.client = client or SlurmClient()
        self.poll_s = poll_s
        self.hurry_s = hurry_s
        self._pace = Pace(hurry_s)
        self.files = RunDirectories(site.workloads)
        self._heard = StatePaths(site.workloads.parent).fleet_heard
        self._logs = Logs()
        self._ender = Ender(self.client, self.files)
        self._gone_after_s = gone_after_s
        self._clock = clock or SystemClock()
        self._last: dict[str, Observed] = {}
        self._missing_since: dict[str, float] = {}
        self._requeues: dict[str, int] = {}
        self._asked: set[str] = set()
        self._just_held: dict[str, str] = {}

    def render(self, request: Request) -> Rendered:
        """Say what `submit` would send. Pure.

        Raises:
            InputError: Slurm cannot be asked for it.
        """
        return (carried.render if self.site.is_carried else render)(request, self.site)

    def as_sent(self, rendered: Sequence[Rendered]) -> Sequence[Rendered]:
        """Tasks of one array are one `sbatch`."""
        return in_calls(rendered)

    async def check(self, calls: Sequence[Rendered]) -> None:
        """Ask `sbatch --test-only` with the very words and scripts that are sent.

        Raises:
            InputError: Slurm refuses a job for good.
        """
        await check(calls, self.client)

    # --- submitting --------------------------------------------------------------------------------------------------

    async def submit(self, rendered: Sequence[Rendered]) -> Sequence[Handle | Exception]:
        """Submit jobs, held; those that exist already are found instead."""
        outcomes: dict[str, Handle | Exception] = {}
        known = [item.token for item in rendered if self.files.has_folder(item.token)]
        try:
            outcomes.update(await self._existing(known) if known else {})
        except RemudaError as error:
            outcomes.update(dict.fromkeys(known, error))
        fresh = {item.token: item for item in rendered if item.token not in outcomes}
        for sent in await asyncio.gather(*(self._send(call, fresh) for call in merge(list(fresh.values())))):
            outcomes.update(sent)
        await self._settle_twins(outcomes, list(fresh))
        return [outcomes[item.token] for item in rendered]

    async def _existing(self, tokens: Sequence[str]) -> dict[str, Handle]:
        """Allocations that need not be submitted: they exist, or were cancelled before they could."""
        found = dict(await self.find(tokens))
        for token in tokens:
            claim = None if token in found else self.files.claim(token)
            if claim is not None:
                found[token] = Handle(token)
        return found

    async def _send(self, call: Call, items: Mapping[str, Rendered]) -> dict[str, Handle | Exception]:
        """Write the files that the jobs need before they can exist, then submit them."""
        try:
            await asyncio.to_thread(self.files.prepare, [items[token] for token in call.tokens], call)
            job_id = await self.client.submit(call.argv)
        except Rejected as error:
            is_of_array = call.is_of_runs or "array" in str(error).lower()
            if not call.is_batch or not is_of_array or (call.is_of_runs and isinstance(error, Impossible)):
                return dict.fromkeys(call.tokens, error)
            # An array is taken or refused as a whole, e.g. when it goes over a limit: as many as may shall run. What
            # is beyond MaxArraySize can be no task of one.
            outcomes: dict[str, Handle | Exception] = {}
            alone = one_by_one([items[token] for token in call.tokens])
            for sent in await asyncio.gather(*(self._send(one, items) for one in alone)):
                outcomes.update(sent)
            return outcomes
        except RemudaError as error:
            return dict.fromkeys(call.tokens, error)
        return {token: Handle(token, call.native(job_id, at)) for at, token in enumerate(call.tokens)}

    async def _settle_twins(self, outcomes: dict[str, Handle | Exception], tokens: Sequence[str]) -> None:
        """Two hosts may have submitted one token at once, each seeing nothing of the other: the oldest job counts.

        Every host that looks after its own submission sees all older ones, so all agree.
        """
        mine = {token: handle for token in tokens if isinstance(handle := outcomes[token], Handle)}
        if not mine:
            return
        self.client.look_at_once()  # jobs wait, held, for what it says
        try:
            queue = Queue(await self.client.queue())
        except BackendUnreachable:
            return  # it is held, and `observe` looks for twins again
        for token, handle in mine.items():
            named = queue.named(token)
            if named and named[0].job_id == handle.native and observing.is_held(named[0]):
                self._just_held[token] = handle.native
            elif named and named[0].job_id != handle.native:
                mine_too = {line.job_id: line.name for line in named}
                with suppress(BackendUnreachable):
                    await self.client.cancel(mine_too.get(handle.native, token), handle.native)
                outcomes[token] = Handle(token, named[0].job_id)

    async def release(self, handles: Sequence[Handle]) -> None:
        """Let jobs start that are held; others, and those that have gone, are left alone.

        Raises:
            BackendUnreachable: no answer.
        """
        # Those that were submitted a moment ago were looked up then: one question less for each submission.
        known = [handle for handle in handles if self._just_held.pop(handle.token, None) == handle.native]
        held, others = [handle.native for handle in known], set(handles) - set(known)
        if others:
            queue = Queue(await self.client.queue())
            lines = [line for handle in others if (line := queue.line(handle)) is not None]
            held += [line.job_id for line in lines if observing.is_held(line)]
        if held:
            await self.client.release(list(dict.fromkeys(held)))

    async def find(self, tokens: Sequence[str]) -> Mapping[str, Handle]:
        """Jobs of these names: those that squeue lists, and those that only the accounting remembers.

        Raises:
            BackendUnreachable: no answer.
        """
        queue = Queue(await self.client.queue())
        found = {token: Handle(token, named[0].job_id) for token in tokens if (named := queue.named(token))}
        rest = [token for token in tokens if token not in found]
        if rest:
            names = sorted({name for token in rest for name in (token, array_name(token), pack_token(token))})
            accounts = await self.client.accounts(names=names) or {}
            for token in rest:
                ids = [line.job_id for line in accounts.values() if is_of(token, line.name, line.job_id)]
                if ids:
                    found[token] = Handle(token, min(ids, key=lambda text: int(text.split("_")[0])))
        return found

    async def amend(self, waiting: Mapping[Handle, Rendered]) -> None:
        """Let pending jobs avoid the nodes that `--exclude` names now.

        Raises:
            BackendUnreachable: no answer, or some were not changed.
        """
        jobs: dict[str, set[str]] = defaultdict(set)
        for handle, rendered in waiting.items():
            said = [word.partition("=")[2] for word in rendered.argv if word.startswith("--exclude=")]
            jobs[said[-1] if said else ""].add(handle.native)
        for nodes, ids in jobs.items():
            await self.client.exclude(sorted(ids), nodes)

    # --- observing ---------------------------------------------------------------------------------------------------

    async def observe(self, handles: Sequence[Handle]) -> Mapping[str, Observed]:
        """State of all handles: one squeue, and one sacct at most.

        Raises:
            BackendUnreachable: squeue gave no answer.
            Rejected: a job's state is a word that this version does not know.
        """
        self._just_held.clear()  # an id is only as good as the look that told it
        queue = Queue(await self.client.queue())
        self.hurry_s = self._pace.looked(lived(self._clock))
        seen: dict[str, Observed] = {}
        ended: dict[Handle, QueueLine] = {}
        missing: list[Handle] = []
        twins: list[QueueLine] = []
        for handle in handles:
            line = queue.line(handle)
            if line is None:
                missing.append(handle)
                continue
            twins += queue.twins(handle)
            try:
                kept = self.files.carried(handle.token)
            except BackendUnreachable:
                kept = {"node": ""}  # of a node that is not heard: nothing is concluded of this one, and of others all
            answer = observing.live(line, handle.token, self.files, self._clock.now())
            if answer is not None and "full" in kept:
                answer = replace(answer, reason=answer.reason or kept["full"])
            if answer is None and not self.files.exit_record(handle.token):
                answer = carried.owed(kept, line, self._clock.now())
            if answer is None:
                ended[handle] = line
            elif carried.is_silent(kept, self._heard, self._clock.now()):
                seen[handle.token] = replace(answer, unread=True)
            else:
                seen[handle.token] = answer if line.name != pack_token(handle.token) else self._of_pack(handle, answer)
        seen |= await self._look_closer(queue, ended, missing)
        seen |= await self._requeued(seen)
        over = {handle.token: seen[handle.token] for handle in handles if seen[handle.token].life is Life.ENDED}
        seen |= observing.judged({token: answer for token, answer in over.items() if self.files.is_packed(token)})
        seen |= await self._blamed(seen)
        self._remember(seen, {handle.token for handle in missing})
        for line in {line.job_id: line for line in twins}.values():
            with suppress(BackendUnreachable):
                await self.client.cancel(line.name, line.job_id)
        return seen

    async def _look_closer(
        self, queue: Queue, over: Mapping[Handle, QueueLine], missing: Sequence[Handle]
    ) -> dict[str, Observed]:
        """Allocations that have ended, and those that squeue does not list."""
        records = {handle.token: self.files.exit_record(handle.token) for handle in (*over, *missing)}
        unborn = {token for token, record in records.items() if record is None and self.files.is_buried(token)}
        # What we cancelled before it ran is over, whatever the accounting would say of it.
        seen = {handle.token: buried(line.job_id) for handle, line in over.items() if handle.token in unborn}
        seen |= {handle.token: buried(handle.native) for handle in missing if handle.token in unborn}
        over = {handle: line for handle, line in over.items() if handle.token not in seen}
        missing = [handle for handle in missing if handle.token not in seen]
        unclear = [line for handle, line in over.items() if observing.is_unclear(line, records[handle.token])]
        asked = list(dict.fromkeys(handle.native for handle in missing if handle.native))
        asked += [line.job_id for line in over.values() if line.state == "CANCELLED"]
        accounts, is_silent = await self._accounts(asked)
        details = await self.client.details(list(dict.fromkeys(line.job_id for line in unclear)))
        for handle, line in over.items():
            account = accounts.get(line.job_id)
            claimed_at = self.files.claimed_at(handle.token)
            detail = details.get(line.job_id)
            answer = observing.ended(line, records[handle.token], account, detail, claimed_at=claimed_at)
            seen[handle.token] = self._with_evidence(handle.token, answer)
        for handle in missing:
            account = accounts.get(handle.native)
            if account is not None and not is_of(handle.token, account.name, account.job_id):
                account = None
            record = records[handle.token]
            claimed_at = self.files.claimed_at(handle.token)
            known = observing.ended_account(account, record, claimed_at=claimed_at) if account is not None else None
            if known is None and record is not None:
                known = replace(observing.from_record(record, self._node(handle.token)), native=handle.native)
            if known is not None:
                seen[handle.token] = self._with_evidence(handle.token, known)
            elif not is_silent and queue.has_array(handle) and self._never_began(handle.token):
                seen[handle.token] = observing.dropped(handle.native)
            else:
                seen[handle.token] = self._unlisted(handle, is_silent=is_silent)
        return seen

    def _of_pack(self, handle: Handle, seen: Observed) -> Observed:
        """A task whose pack's job lives: one that ended well has ended. Any other end is the job's, to come."""
        record = self.files.exit_record(handle.token)
        if record is not None and record.code == 0:
            seen = replace(observing.from_record(record, ""), native=handle.native)
        return observing.in_pack(seen, self.files.report(handle.token)[0])

    async def _accounts(self, ids: Sequence[str]) -> tuple[dict[str, AccountLine], bool]:
        """What sacct knows of jobs, and whether there is a sacct that gave no answer."""
        if not ids:
            return {}, False
        try:
            return await self.client.accounts(ids) or {}, False
        except BackendUnreachable:
            return {}, True

    async def _requeued(self, seen: Mapping[str, Observed]) -> dict[str, Observed]:
        """Pending allocations that ran before: how often Slurm has put them back into its queue."""
        waiting = {
            token: answer
            for token, answer in seen.items()
            if answer.native_state == "PENDING" and not answer.held and self.files.has_claim(token)
        }
        # Its own script says it only when it has begun again, so what was heard while it waited is kept.
        self._requeues = {token: count for token, count in self._requeues.items() if token in seen}
        self._asked &= waiting.keys()
        details = await self.client.details([waiting[token].native for token in waiting if token not in self._asked])
        for token, answer in waiting.items():
            # Slurm counts it a moment after the job is pending again.
            if answer.native in details and details[answer.native].restarts > self._requeues.get(token, 0):
                self._requeues[token] = details[answer.native].restarts
                self._asked.add(token)
        told = self._requeues.items()
        return {token: replace(seen[token], requeues=max(seen[token].requeues, count)) for token, count in told}

    async def _blamed(self, seen: Mapping[str, Observed]) -> dict[str, Observed]:
        """Jobs over several nodes that lost one: Slurm does not say which, only which are down now."""
        unclear = {
            token: answer for token, answer in seen.items() if answer.nodes and answer.ending is Ending.NODE_FAILED
        }
        if not unclear:
            return {}
        try:
            cluster = await self.client.cluster(fresh=True)
        except BackendUnreachable:
            return {}
        return {token: observing.blamed(answer, cluster) for token, answer in unclear.items()}

    def _never_began(self, token: str) -> bool:
        """Whether the last look saw it in the queue, and no node program has claimed it since."""
        last = self._last.get(token)
        return last is not None and last.life is Life.PENDING and not self.files.has_claim(token)

    def _unlisted(self, handle: Handle, *, is_silent: bool) -> Observed:
        """Neither squeue nor sacct knows it, and it left no last word: gone, once that has lasted a while."""
        if self.files.is_buried(handle.token):
            return buried(handle.native)
        claim = self.files.claim(handle.token)
        if not handle.native:
            return Observed(Life.GONE, reason="no job of its name is known")
        now = lived(self._clock)
        since = self._missing_since.setdefault(handle.token, now)
        if not is_silent and now - since >= self._gone_after_s:
            return Observed(Life.GONE, handle.native, reason="Slurm does not know its job any more")
        last = self._last.get(handle.token)
        if last is not None:
            return last
        life, node = (Life.RUNNING, claim.node) if claim is not None else (Life.PENDING, "")
        return Observed(life, handle.native, "UNLISTED", node, "squeue does not list it")

    def _with_evidence(self, token: str, seen: Observed) -> Observed:
        if self.files.is_packed(token):
            seen = observing.in_pack(seen, self.files.report(token)[0])
        if seen.ending is Ending.NONE and (seen.signal or seen.exit_code):
            seen = observing.out_of_memory(seen, self.files.said_by_slurm(token))
        if seen.evidence or seen.ending in (Ending.CANCELLED, Ending.PREEMPTED):
            return seen
        return replace(seen, evidence=self.files.evidence(token))

    def _node(self, token: str) -> str:
        claim = self.files.claim(token)
        return claim.node if claim is not None else ""

    def _remember(self, seen: Mapping[str, Observed], missing: set[str]) -> None:
        """Keep the last answer about each; what is not asked for any more is dropped."""
        self._missing_since = {token: at for token, at in self._missing_since.items() if token in missing}
        self._last = dict(seen)
        self.files.forget(set(seen))

    # --- ending ------------------------------------------------------------------------------------------------------

    async def cancel(self, handle: Handle, *, force: bool = False) -> None:
        """End a job, or kill it; one that has not begun leaves the queue.

        In a job that runs, the node program is asked to end, so that the task has its own grace and not Slurm's. By
        force Slurm sends SIGTERM to all of it, for the node program a sign not to wait any longer, then SIGKILL.
        Those that are asked for at once share one look at the queue and one call.

        Raises:
            BackendUnreachable: no answer.
        """
        await self._ender.cancel(handle, force=force)

    async def list_all(self) -> Sequence[Stray]:
        """This user's jobs that pend or run under a token.

        Raises:
            BackendUnreachable: no answer.
        """
        return await strays.list_all(self.client)

    async def remove(self, stray: Stray, *, force: bool = False) -> None:
        """End a job by its id, if it still has that name.

        Raises:
            BackendUnreachable: no answer.
        """
        await self._ender.remove(stray, force=force)

    # --- the rest ----------------------------------------------------------------------------------------------------

    async def cluster(self) -> Cluster:
        """Nodes and partitions, some seconds old at most.

        Raises:
            BackendUnreachable: no answer.
        """
        return await self.client.cluster()

    def logs(self, handle: Handle, *, follow: bool = False, tail: int = 0, after: Place | None = None) -> Log:
        """The task's output; with `follow`, what comes for as long as the allocation lives."""
        folder, name = Path(self.files.folder(handle.token)), _name(handle.token, handle.native)
        ended = partial(until_ended, partial(self._life, handle), folder, self.poll_s)

        async def found() -> Log:
            if follow:
                await until_written(folder, ended)
            path = await asyncio.to_thread(find_log, folder, name, handle.native)
            return self._logs.read(path, tail, ended if follow else None, after)

        return Log.later(found)

    async def _life(self, handle: Handle) -> Life:
        """Whether Slurm says that an allocation lives. Leaves what `observe` remembers alone."""
        line = Queue(await self.client.queue()).line(handle)
        if line is None:
            return Life.GONE
        return Life.ENDED if observing.live(line, handle.token, self.files, self._clock.now()) is None else Life.RUNNING


def _name(token: str, native: str) -> str:
    """What the job with that id is called, if it is the allocation's."""
    return array_name(token) if "_" in native else token

"""Pools: swarms of one document, each with its job, so many up at once: planned, handed over, and followed here."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from remuda.base.errors import InputError, from_json
from remuda.base.extras import need_batch
from remuda.base.ids import new_suffix, slug
from remuda.batch.address import ENDPOINT_FILE
from remuda.batch.request import JobRequest
from remuda.client import mirror, reconnect, submission
from remuda.client.cluster_match import check_cluster
from remuda.client.jobs import drivers
from remuda.look import planning
from remuda.look.kinds.swarm import plan_loaded
from remuda.plan.job import ENDPOINT, NOW, SLOTS, Beside, DriverOptions
from remuda.specs.reading.load import load_swarm
from remuda.specs.reading.pools import CheckedPool, build_inline
from remuda.views.job_folders import META, JobFolder, described

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from remuda.client.http import HostClient
    from remuda.look.facts import Looked
    from remuda.plan.compile import Plan
    from remuda.specs.pool import PoolJob, PoolSwarm
    from remuda.specs.reading.load import Loaded
    from remuda.specs.swarm import SwarmSpec

    Rows = list[dict[str, Any]]

_SAME = ("job", "job_kwargs", "input_column", "output_columns", "id_column", "checkpoint_tag", "retry_errors",
         "max_concurrency", "retries", "limit", "num_threads")  # fmt: skip
"""Fields of a pool's job that a request has, too."""
_TICK_S = 0.5
"""Between two looks at the clock while nothing changes."""
_QUIET = 4
"""After so many of them the host is asked, too: that something could not be begun is told of no workload."""


@dataclass
class PoolMember:
    """One swarm of the pool: what was asked, and what it becomes."""

    said: PoolSwarm
    planned: Plan

    @property
    def name(self) -> str:
        """Of the swarm."""
        return self.planned.workload.name

    @property
    def key(self) -> str:
        """Of all that was asked: another one is another swarm."""
        asked = [self.planned.spec.model_dump_json(), self.said.model_dump_json()]
        return hashlib.sha256("\n".join(asked).encode()).hexdigest()[:16]


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
    if said.job is not None and said.job.input is not None and said.job.output is not None:
        paths = {"input": pool.path(said.job.input), "output": pool.path(said.job.output)}
        said = said.model_copy(update={"job": said.job.model_copy(update=paths)})
    elif said.job is not None and said.job.script is not None:
        said = said.model_copy(update={"job": said.job.model_copy(update={"script": pool.path(said.job.script)})})
    return PoolMember(said, planned)


def pool_name(pool: CheckedPool) -> str:
    """What the pool is called."""
    return pool.spec.name or slug(Path(pool.document.name).stem)


def campaign_name(pool: CheckedPool) -> str:
    """What the host calls it: pools of one name in two folders are two."""
    tag = hashlib.sha256(str(Path(pool.document.name).absolute()).encode()).hexdigest()[:8]
    return f"{pool_name(pool)[:50]}-{tag}"


def begin(pool: CheckedPool, members: Sequence[PoolMember], facts: Looked, host: HostClient, *, again: bool) -> Rows:
    """Hand a pool to the host, which carries it out; its rows as they are at once.

    Raises:
        Conflict: something of it runs that was asked for otherwise.
        InputError: a job cannot be planned, or a secret is missing.
    """
    workloads = [member.planned.workload for member in members]
    for backend in dict.fromkeys(one.backend for one in workloads if not one.is_here):
        check_cluster(host, backend)
    secrets: dict[str, str] = {}
    rows = [_row(member, facts, secrets) for member in members]
    body = {
        "name": campaign_name(pool), "kind": "pool", "document": pool.document.name, "bound": pool.spec.bound,
        "rows": rows, "again": again, "secrets": secrets,
    }  # fmt: skip
    return cast("Rows", reconnect.post(host, "/campaigns", body)["rows"])


def _row(member: PoolMember, facts: Looked, secrets: dict[str, str]) -> dict[str, Any]:
    """What the host is told of one swarm; values of its secrets go to `secrets`."""
    row = row_of(member.planned, facts, secrets)
    job = _job(member, facts, row["workload"]["endpoint"]) if member.said.job is not None else None
    more = {"keeps": member.said.stays, "queue_timeout_s": member.said.queue_timeout}
    return {**row, **more, "address": member.key, "job": job}


def row_of(plan: Plan, facts: Looked, secrets: dict[str, str]) -> dict[str, Any]:
    """What the host is told of a workload of a campaign, and why it would fail; see `_row`."""
    answer = planning.answered([plan], facts)
    outcome = reason = ""
    if answer["refused"] is not None:
        error = from_json(answer["refused"])
        outcome, reason = "failed", f"{error}" + (f" ({error.hint})" if error.hint else "")
        answer = planning.answered([plan], facts, checked=False)
    sent, wait_s = submission.body(answer["plans"][0]), answer["plans"][0]["wait_s"]
    secrets |= sent.pop("secrets")
    return {**sent, "wait_s": wait_s, "outcome": outcome, "reason": reason}


def _job(member: PoolMember, facts: Looked, endpoint: dict[str, Any]) -> dict[str, Any]:
    """The workload of its job, with marks for what is known once the swarm is up."""
    job, swarm, spec = cast("PoolJob", member.said.job), member.planned.workload, member.planned.spec
    key_file = endpoint["api_key"]["file"] if endpoint["api_key"] else ""
    place = Beside(swarm, spec.backend.job, DriverOptions()) if drivers.can_be_beside(swarm) else None
    folder = JobFolder(facts.paths, f"{member.name[:40]}-{new_suffix()}")
    if job.script is not None:
        argv = (sys.executable, job.script, *job.args)
        script = drivers.Script(argv, ENDPOINT, endpoint["model"], f"{swarm.run_dir}/{ENDPOINT_FILE}", key_file)
        retries = job.retries if "retries" in job.model_fields_set else 0
        made = drivers.script(folder, script, max_failures=retries + 1, place=place)
        files = {META: described("script", job.script, member.name, swarm.backend), **made.files}
    else:
        request = JobRequest(
            ENDPOINT, endpoint["model"], job.input or "", job.output or "", swarm_dir=swarm.run_dir,
            api_key_file=key_file, checkpoint_dir=job.checkpoint_dir or "", timeout_s=job.timeout,
            **{name: getattr(job, name) for name in _SAME},
        )  # fmt: skip
        made = drivers.batch(folder, request, place)
        files = {META: described("batch", request.job, member.name, swarm.backend, request), **made.files}
        files[drivers.REQUEST] = {**files[drivers.REQUEST], "slots": SLOTS}
    files[META] = {"created_at": NOW, **files[META]}
    texts = {str(folder.path / name): json.dumps(data, indent=1) for name, data in files.items()}
    workload = made.plan.workload.model_copy(update={"files": {**made.plan.workload.files, **texts}})
    return workload.model_dump(mode="json")


def follow(host: HostClient, name: str, rows: Rows) -> Iterator[Rows]:
    """The rows of a campaign after each change, until nothing more is to be done."""
    names = {known for row in rows for known in (row["name"], row["job_id"])}
    ticks, quiet = mirror.ticks(host, names, _TICK_S), 0
    while True:
        yield rows
        if all(row["step"] == "over" for row in rows):
            return
        quiet = 0 if next(ticks) else quiet + 1
        if quiet in (0, 1) or quiet % _QUIET == 0:
            rows = reconnect.get(host, f"/campaigns/{name}")["rows"]
            names |= {row["job_id"] for row in rows}


def cancel(host: HostClient, name: str, kind: str = "pool") -> Rows:
    """Let the host end what is left of a campaign.

    Raises:
        NotFound: it knows none of that kind.
    """
    return cast("Rows", reconnect.post(host, f"/campaigns/{name}/cancel", {}, kind=kind)["rows"])

"""smg, the default router: Rust, cache-aware, members added and removed over its API. Settings are for smg 1.13."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from remuda.base.errors import Unavailable
from remuda.base.prometheus import Samples, parse, quantile, total
from remuda.plan.model import Role
from remuda.serving.client import call
from remuda.serving.router import (
    NO_KEYS,
    Member,
    MemberChanges,
    RouterStats,
    WorkerStats,
    check_roles,
)
from remuda.serving.smg_launcher import LABEL, METRICS_LABEL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.serving.router import Keys

POLL_S: Final = 0.05
PATHS: Final = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/rerank"})
"""Requests that count in `status`."""


class SmgRouter:
    """smg behind the seam."""

    name = "smg"
    roles = frozenset(role for role in Role if role.serves)

    def __init__(self, model: str = "") -> None:
        """`model`: what the replicas serve, where they do not tell it themselves."""
        self._model = model

    async def sync(
        self, base_url: str, members: frozenset[Member], keys: Keys = NO_KEYS, *, wait_s: float = 2.0
    ) -> MemberChanges:
        """Make the members exactly `members`. One whose role or port changed leaves first, and is added next time."""
        check_roles(self, (member.role for member in members))
        key = keys.control or keys.api
        known = await _workers(base_url, key)
        has = {member_of(worker): worker["id"] for worker in known.values()}
        missing, surplus = members - has.keys(), has.keys() - members
        new = frozenset(member.url for member in missing if member.url not in known)
        later = frozenset(member.url for member in missing) - new
        gone = frozenset(member.url for member in surplus)
        await asyncio.gather(*(_add(base_url, one, keys, self._model) for one in missing if one.url in new))
        await asyncio.gather(*(_remove(base_url, has[member], key) for member in surplus))
        if not missing and not surplus:
            return MemberChanges()
        pending = await _settle(base_url, new, gone, key, wait_s)
        return MemberChanges(new - pending, gone, pending | later)

    async def stats(self, base_url: str, keys: Keys = NO_KEYS) -> RouterStats:
        """What smg counted: its list of workers, and its metrics where the list says that they are."""
        everyone = await _list(base_url, keys.control or keys.api)
        addresses = [str(worker["labels"][METRICS_LABEL]) for worker in everyone if is_waiting_room(worker)]
        samples: Samples = ()
        if addresses:
            answer = await call("GET", beside(base_url, addresses[0]))
            samples = parse(answer.body.decode(errors="replace"))
        return summarize([worker for worker in everyone if not is_waiting_room(worker)], samples)


def beside(base_url: str, address: str) -> str:
    """`address` as it is reached from where the router is `base_url`: the launcher knows loopback only."""
    host = urlsplit(base_url).hostname or ""
    parts = urlsplit(address)
    return parts._replace(netloc=f"{f'[{host}]' if ':' in host else host}:{parts.port}").geturl()


def member_of(worker: Mapping[str, Any]) -> Member:
    """The member that smg lists as `worker`. Pure."""
    kind = worker.get("worker_type")
    role = Role(kind) if kind in (Role.PREFILL, Role.DECODE) else Role.REPLICA
    return Member(str(worker["url"]), role, int(worker.get("bootstrap_port") or 0))


def is_waiting_room(worker: Mapping[str, Any]) -> bool:
    """Whether it is the launcher's own member, which serves nothing."""
    return LABEL in (worker.get("labels") or {})


def summarize(workers: list[dict[str, Any]], samples: Samples) -> RouterStats:
    """One view of the list of workers and the metrics. Pure."""
    count = total(samples, "smg_http_request_duration_seconds_count", path=PATHS)
    spent = total(samples, "smg_http_request_duration_seconds_sum", path=PATHS)
    answers = total(samples, "smg_http_responses_total", path=PATHS)
    good = total(samples, "smg_http_responses_total", path=PATHS, status_code=frozenset({"200"}))
    members = tuple(
        WorkerStats(
            url=worker["url"],
            healthy=bool(worker.get("is_healthy")),
            requests=int(total(samples, "smg_worker_requests_total", worker=frozenset({worker["url"]}))),
            running=int(total(samples, "smg_worker_requests_active", worker=frozenset({worker["url"]}))),
        )
        for worker in sorted(workers, key=lambda worker: str(worker["url"]))
    )
    return RouterStats(
        requests=int(answers),
        errors=int(answers - good),
        running=sum(member.running for member in members),
        retries=int(total(samples, "smg_worker_retries_total")),
        mean_s=spent / count if count else 0.0,
        p50_s=quantile(samples, "smg_http_request_duration_seconds", 0.5, path=PATHS),
        p99_s=quantile(samples, "smg_http_request_duration_seconds", 0.99, path=PATHS),
        workers=members,
    )


async def _list(base_url: str, key: str) -> list[dict[str, Any]]:
    answer = await call("GET", f"{base_url}/workers", key=key)
    document = answer.json()
    if answer.status != 200 or not isinstance(document, dict) or not isinstance(document.get("workers"), list):
        raise Unavailable(f"the router at {base_url} answered {answer.status} instead of its list of workers")
    return list(document["workers"])


async def _workers(base_url: str, key: str) -> dict[str, dict[str, Any]]:
    return {worker["url"]: worker for worker in await _list(base_url, key) if not is_waiting_room(worker)}


async def _add(base_url: str, member: Member, keys: Keys, model: str) -> None:
    spec: dict[str, Any] = {"url": member.url} | ({"api_key": keys.worker} if keys.worker else {})
    if member.role is not Role.REPLICA:
        spec |= {"worker_type": member.role.value}
    if member.bootstrap_port and member.role is Role.PREFILL:
        spec |= {"bootstrap_port": member.bootstrap_port}
    if model:
        # With a kind of server that it knows smg asks it nothing; vLLM's paths are those of OpenAI.
        spec |= {"models": [{"id": model}], "runtime_type": "vllm"}
    answer = await call("POST", f"{base_url}/workers", body=spec, key=keys.control or keys.api)
    if answer.status not in (200, 201, 202, 409):  # 409: known, or being added
        raise Unavailable(f"the router at {base_url} answered {answer.status} when {member.url} was added")


async def _remove(base_url: str, worker_id: str, key: str) -> None:
    answer = await call("DELETE", f"{base_url}/workers/{worker_id}", key=key)
    if answer.status not in (200, 202, 204, 404):
        raise Unavailable(f"the router at {base_url} answered {answer.status} when {worker_id} was removed")


async def _settle(
    base_url: str, added: frozenset[str], removed: frozenset[str], key: str, wait_s: float
) -> frozenset[str]:
    """Wait until the changes are in force, and say which additions are not."""
    deadline = time.monotonic() + wait_s
    while True:
        now = await _workers(base_url, key)
        pending = frozenset(url for url in added if not now.get(url, {}).get("is_healthy"))
        if (not pending and not removed & now.keys()) or time.monotonic() >= deadline:
            return pending
        await asyncio.sleep(POLL_S)

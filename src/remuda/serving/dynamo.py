"""Dynamo's frontend: workers list themselves, so it is told no members; what it lists is compared with what runs.

Its `/health` says «healthy» with an empty list, so only the list counts: an instance of the endpoint `generate` of the
component `prefill` is a prefill worker, one of `backend` decodes or does both. TensorRT-LLM's that decode or do both
are of the component `tensorrt_llm` up to Dynamo 1.1, and of `backend` in 1.6.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from remuda.plan.model import Role
from remuda.serving.client import call
from remuda.serving.router import NO_KEYS, MemberChanges, RouterStats, WorkerStats, check_roles

if TYPE_CHECKING:
    from remuda.serving.router import Keys, Member

_COMPONENTS: Final = {"prefill": Role.PREFILL, "backend": Role.DECODE, "tensorrt_llm": Role.DECODE}


class DynamoRouter:
    """`python -m dynamo.frontend`."""

    name = "dynamo"
    roles = frozenset({Role.REPLICA, Role.PREFILL, Role.DECODE})

    async def sync(
        self, base_url: str, members: frozenset[Member], keys: Keys = NO_KEYS, *, wait_s: float = 0.0
    ) -> MemberChanges:
        """Compare the members with what it lists: those that it lacks are pending, whoever of their role they are.

        Raises:
            InputError: a member has a role that is not known.
            Unavailable: it does not answer, or not with a list.
        """
        del keys, wait_s
        check_roles(self, (member.role for member in members))
        listed = instances(await self._health(base_url))
        missing: set[str] = set()
        for role in {member.role for member in members}:
            mine = sorted(member.url for member in members if member.role is role)
            missing |= set(mine[listed[Role.DECODE if role is Role.REPLICA else role] :])
        return MemberChanges(pending=frozenset(missing))

    async def stats(self, base_url: str, keys: Keys = NO_KEYS) -> RouterStats:
        """What it lists; it counts no requests by worker.

        Raises:
            Unavailable: it does not answer, or not with a list.
        """
        del keys
        listed = instances(await self._health(base_url))
        return RouterStats(
            retries=-1,
            workers=tuple(
                WorkerStats(f"{role}-{index}", healthy=True) for role, count in listed.items() for index in range(count)
            ),
        )

    async def _health(self, base_url: str) -> Any:
        return (await call("GET", f"{base_url}/health")).json()


def instances(health: Any) -> Counter[Role]:
    """Workers that take requests, by role, of what `/health` says."""
    found: Counter[Role] = Counter()
    listed = health.get("instances") if isinstance(health, dict) else ()
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, dict) and one.get("endpoint") == "generate" and one.get("component") in _COMPONENTS:
            found[_COMPONENTS[one["component"]]] += 1
    return found

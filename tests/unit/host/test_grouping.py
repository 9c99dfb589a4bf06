"""What may be done with one group of a workload."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.supervise.build import group, key, script, want, workload

from remuda.base.errors import RemudaError
from remuda.host.grouping import begun_again, counted
from remuda.plan.model import Endpoint, Kind, Pack, Role

if TYPE_CHECKING:
    from remuda.plan.model import Workload

ENDPOINT = Endpoint(port=9000, router="router")
ROUTER = group("router", 1, role=Role.ROUTER)
SWARM = workload(group(), ROUTER, endpoint=ENDPOINT)
APART = workload(group("prefill", role=Role.PREFILL), group("decode", role=Role.DECODE), ROUTER, endpoint=ENDPOINT)
PACKED = APART.model_copy(update={"pack": Pack(nodes=1, seats=())})
BARE = workload(group(), endpoint=Endpoint(port=9000))
RUN = workload(group("script", 1, role=Role.SCRIPT)).model_copy(update={"kind": Kind.RUN})


@pytest.mark.parametrize(
    ("of", "asked", "expected"),
    [
        (SWARM, {"": 3}, {"replica": 3}),
        (SWARM, {"replica": 3}, {"replica": 3}),
        (APART, {"decode": 4}, {"decode": 4}),
        (APART, {"decode": 4, "prefill": 1}, {"decode": 4, "prefill": 1}),
        (BARE, {"": 1}, {"replica": 1}),
        (SWARM, {"": 0}, "at least 1 replica, not 0"),
        (APART, {"decode": 0}, "at least 1 decode, not 0"),
        (APART, {"": 3}, "several groups to scale: prefill, decode"),
        (APART, {"encode": 3}, "no group 'encode'; its groups: prefill, decode, router"),
        (APART, {"router": 2}, "the router of 'w' cannot be scaled: it is a router"),
        (RUN, {"": 2}, "is a run, which has no replicas to scale"),
        (RUN, {"script": 2}, "it is a script"),
        (BARE, {"": 2}, "without a router"),
        (SWARM, {"": 10**6}, "cannot have 1000000 tasks"),
        (PACKED, {"decode": 4}, "'w' is one job, which cannot be scaled; say how many workers it has in its document"),
    ],
)
def test_what_is_counted(of: Workload, asked: dict[str, int], expected: Any) -> None:
    if isinstance(expected, dict):
        assert counted(of, asked) == expected
        return
    with pytest.raises(RemudaError) as refused:
        counted(of, asked)
    assert expected in f"{refused.value}; {refused.value.hint}"


def test_a_group_is_begun_again_by_a_mark_of_its_own() -> None:
    once = begun_again(want(*APART.groups), "decode")
    twice = begun_again(replace(once, restart_mark=5), "decode")
    assert [[one.mark(key(0, name)) for name in ("decode", "prefill")] for one in (once, twice)] == [[1, 0], [7, 5]]
    assert twice.generation == once.generation


@pytest.mark.parametrize(("state", "why"), [({"running": False}, "is down"), ({"paused": True}, "is paused")])
def test_where_nothing_is_begun_no_group_is(state: dict[str, Any], why: str) -> None:
    with pytest.raises(RemudaError, match=why):
        begun_again(replace(want(*APART.groups), **state), "decode")


ARRAYS = "write 7, 1,3 or 1-5; its tasks: 1,7,9"
ARRAY = want(script(count=3, indices=(1, 7, 9)))


def test_tasks_of_an_array_are_begun_again_by_marks_of_their_own() -> None:
    once = begun_again(ARRAY, "7,9")
    twice = begun_again(begun_again(once, "9"), "script")
    assert [[one.mark(key(index, "script")) for index in (1, 7, 9)] for one in (once, twice)] == [[0, 1, 1], [1, 2, 3]]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("2,7", "'w' has no task 2; its tasks: 1,7,9"),
        ("9-7", f"'9-7' has '9-7', which ends before it begins; {ARRAYS}"),
        ("1,x", f"'1,x' has 'x', which is neither an index nor a range; {ARRAYS}"),
        ("rank", "'w' has no group 'rank'; its groups: script"),
    ],
)  # fmt: skip
def test_indices_that_an_array_has_not(words: str, sentence: str) -> None:
    with pytest.raises(RemudaError) as refused:
        begun_again(ARRAY, words)
    assert f"{refused.value.message}; {refused.value.hint}" == sentence

"""Nodes that are avoided, with the whole loop; and what `explain` says of where a run is."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.fakes.backend import FakeBackend
from tests.unit.supervise.bed import Bed, Killed, only
from tests.unit.supervise.build import group, pools, script, workload

from remuda.backends.base import Cluster, Feature, Life, Node, PoolInfo
from remuda.plan.model import Failover, Group, Pack, Resources, Role, Seat
from remuda.store.rows import Evidence
from remuda.supervise.explain import explain
from remuda.supervise.failures.avoid import nodes_at_once
from remuda.supervise.failures.ledger import BAN
from remuda.supervise.model import AVOIDS_ALL, AVOIDS_BANS, AVOIDS_NOTHING, Phase
from remuda.wire.fault import Fault


async def test_a_bad_node_is_avoided_by_the_next_attempt_of_every_workload(bed: Bed) -> None:
    bed.backend.features |= {Feature.EXCLUDE_NODES}
    bed.backend.has = Cluster(tuple(Node(f"n{number}", "idle", usable=True) for number in range(4)), ())
    bed.up(script())
    await bed.all_ready()
    bed.backend.end(only(bed).token, 90, node="n2", faults=(Fault("node", "xid-79", "gone", "0000:07:00"),))
    await bed.go(30)
    assert bed.backend.requests[only(bed).token].exclude_nodes == ("n2",)
    bed.up(script(), name="other")
    await bed.go(5)
    assert bed.backend.requests["other.script.0.1.u2"].exclude_nodes == ("n2",)
    assert [line.reason for line in bed.story() if line.kind == "nodes"] == ["script: avoids n2 (xid-79 on 0000:07:00)"]
    assert bed.backend.count("cluster") == 1, "one question serves for a while"
    bed.clock.advance(50_000)
    bed.change("other", restart=True)
    await bed.go(5)
    assert bed.backend.requests["other.script.0.2.u2"].exclude_nodes == (), "evidence expires"
    assert [item.kind for item in bed.journal.store.node_history("n2")] == ["xid-79"]
    assert bed.story("other")[-1].kind == "move"


async def test_a_cluster_that_does_not_answer_leaves_the_evidence_alone(bed: Bed) -> None:
    bed.backend.features |= {Feature.EXCLUDE_NODES}
    bed.backend.silent = {"cluster"}
    bed.journal.record(evidence=[Evidence("n7", 0.0, BAN, cluster="fake", detail="noisy", expires_at=4e9)])
    bed.up(script())
    await bed.go(5)
    assert bed.backend.requests[only(bed).token].exclude_nodes == ("n7",)
    assert [line.reason for line in bed.story() if line.kind == "nodes"] == ["script: avoids n7 (banned: noisy)"]
    assert unban(bed, "n7") == 1
    bed.change(restart=True)
    await bed.go(5)
    assert bed.backend.requests[only(bed).token].exclude_nodes == ()
    assert [line.reason for line in bed.story() if line.kind == "nodes"][1:] == ["script: no node is avoided any more"]


def unban(bed: Bed, node: str) -> int:
    return bed.journal.store.end_evidence(bed.journal.fence, node, cluster="fake", kind=BAN, now=bed.clock.now())


def banned(bed: Bed, *nodes: str, until: float = 4e9) -> None:
    bed.journal.record(evidence=[Evidence(node, 0.0, BAN, cluster="fake", expires_at=until) for node in nodes])


async def waiting(bed: Bed) -> str:
    """A script that is pending and avoids what is banned; its token."""
    bed.backend.features |= {Feature.EXCLUDE_NODES}
    bed.backend.starts_at_once = False
    bed.up(script())
    await bed.go(20)
    assert bed.phases() == [Phase.PENDING]
    return only(bed).token


async def test_what_waits_gets_the_nodes_that_need_not_be_avoided_any_more(bed: Bed) -> None:
    banned(bed, "n1", "n2")
    token = await waiting(bed)
    assert (bed.backend.requests[token].exclude_nodes, bed.backend.count("amend")) == (("n1", "n2"), 0)
    unban(bed, "n1")
    banned(bed, "n3")
    await bed.go(20)
    assert bed.backend.requests[token].exclude_nodes == ("n2", "n3")
    assert (bed.backend.count("amend"), only(bed).avoids) == (1, AVOIDS_BANS)
    for node in ("n2", "n3"):
        unban(bed, node)
    await bed.go(20)
    assert (bed.backend.requests[token].exclude_nodes, only(bed).avoids) == ((), AVOIDS_NOTHING)
    await bed.go(60)
    assert (bed.backend.count("amend"), only(bed).attempt, only(bed).token) == (2, 1, token)
    assert [line.reason for line in bed.story() if line.kind == "nodes"][-1] == "script: no node is avoided any more"


@pytest.mark.parametrize("trouble", ["silence", "another host", "killed"])
async def test_what_waits_is_told_again_by_whoever_comes_next(bed: Bed, trouble: str) -> None:
    banned(bed, "n1")
    token = await waiting(bed)
    unban(bed, "n1")
    if trouble == "silence":
        bed.backend.silent = {"amend"}
        await bed.go(20)
        assert only(bed).avoids == AVOIDS_BANS, "it may avoid it still"
        bed.backend.silent = set()
    elif trouble == "killed":

        def kill(verb: str) -> None:
            if verb == "after amend":
                raise Killed

        bed.backend.hook = kill
        with pytest.raises(Killed):
            await bed.go(20)
        bed.backend.hook = lambda _: None
    if trouble != "silence":
        bed.new_host()
    await bed.go(20)
    assert (bed.backend.requests[token].exclude_nodes, only(bed).avoids) == ((), AVOIDS_NOTHING)
    assert len(bed.backend.made) == 1


async def test_nobody_is_asked_about_nodes_without_evidence_or_without_the_means(bed: Bed) -> None:
    bed.journal.record(evidence=[Evidence("n7", 0.0, BAN, cluster="fake", expires_at=4e9)])
    bed.up(script())
    await bed.all_ready()
    assert bed.backend.requests[only(bed).token].exclude_nodes == ()
    bed.backend.end(only(bed).token, 90)
    await bed.go(30)
    assert (bed.backend.count("cluster"), len(bed.journal.store.evidence(bed.clock.now()))) == (0, 1)


async def test_the_evidence_of_an_end_is_written_with_it_or_not_at_all(bed: Bed) -> None:
    bed.backend.features |= {Feature.EXCLUDE_NODES}
    bed.up(script())
    await bed.all_ready()
    bed.backend.end(only(bed).token, 88)

    def kill(_: str) -> None:
        raise Killed

    bed.journal.hook = kill
    with pytest.raises(Killed):
        await bed.go(3)
    bed.new_host()
    assert (bed.phases(), bed.journal.store.evidence(0.0)) == ([Phase.READY], [])
    await bed.go(3)
    assert bed.phases() == [Phase.WAITING]
    assert [(item.kind, item.token) for item in bed.journal.store.evidence(0.0)] == [("no-gpu", "w.script.0.1.u1")]


LARGE = [Node(f"n{number}", "idle", True, ("p",), cpus=16, mem_bytes=64, gpus=8) for number in range(3)]
WHOLE = Resources(gpus=8, whole_nodes=True)


def asks(name: str, count: int, needs: Resources, **more: object) -> Group:
    return group(name, count, role=Role.PREFILL).model_copy(update={"resources": needs, **more})


SPANNING = asks("prefill", 1, WHOLE.model_copy(update={"nodes": 2}))


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        pytest.param([SPANNING, asks("decode", 1, WHOLE)], 3, id="whole nodes"),
        pytest.param([asks("a", 3, WHOLE), asks("router", 1, Resources(cpus=1))], 4, id="no room beside whole nodes"),
        pytest.param([asks("a", 3, Resources(gpus=8)), asks("b", 1, Resources(cpus=1))], 3, id="all GPUs of a node"),
        pytest.param([asks("a", 3, Resources(cpus=16))], 3, id="all CPUs of a node"),
        pytest.param([asks("a", 3, Resources(mem_bytes=40))], 2, id="memory, as if it could be shared out"),
        pytest.param([asks("a", 8, Resources(gpus=1)), asks("b", 2, Resources(gpus=4))], 2, id="GPUs of shared nodes"),
        pytest.param([asks("a", 16, Resources())], 1, id="who asks for nothing has a CPU"),
        pytest.param([asks("a", 1, Resources(nodes=2))], 2, id="one that spans nodes is on as many"),
        pytest.param([asks("a", 9, WHOLE, at_most=2)], 2, id="two at a time"),
        pytest.param([asks("a", 3, WHOLE, quorum=2)], 2, id="a gang goes on with its quorum"),
        pytest.param([], 0, id="nothing"),
    ],
)  # fmt: skip
def test_how_many_nodes_a_workload_has_at_once(groups: list[Group], expected: int) -> None:
    want = workload(*groups or [group()])
    assert nodes_at_once(want, {one.name: one.count for one in groups}, LARGE) == expected


@pytest.mark.parametrize(("needs", "expected"), [(WHOLE, 3), (Resources(gpus=4), 2)], ids=["whole", "shared"])
def test_a_pack_has_its_nodes_once(needs: Resources, expected: int) -> None:
    seats = tuple(Seat(group=name, index=0, node=node, place=0) for node, name in enumerate(("prefill", "decode")))
    packed = workload(asks("prefill", 1, needs), asks("decode", 1, needs), asks("alone", 1, needs))
    packed = packed.model_copy(update={"pack": Pack(nodes=2, seats=seats)})
    assert nodes_at_once(packed, {"prefill": 1, "decode": 1, "alone": 1}, LARGE) == expected


def test_of_nodes_whose_size_nobody_tells_only_whole_ones_count() -> None:
    want = workload(asks("a", 3, Resources(gpus=8)), asks("b", 2, WHOLE))
    assert nodes_at_once(want, {"a": 3, "b": 2}, [Node("n1", "idle", usable=True)]) == 2


shares = st.builds(Resources, gpus=st.integers(0, 8), cpus=st.integers(0, 16), mem_bytes=st.integers(0, 64))


@settings(deadline=None)
@given(rooms=st.lists(st.lists(shares, min_size=1, max_size=6), max_size=4), whole=st.integers(0, 3))
def test_what_runs_on_so_many_nodes_is_never_taken_to_need_more(rooms: list[list[Resources]], whole: int) -> None:
    """Each node has as much of its list as fits there; so all of that fits on as many nodes as there are lists."""
    placed = [asks(f"whole-{number}", 1, WHOLE) for number in range(whole)]
    for number, room in enumerate(rooms):
        free = {"gpus": 8, "cpus": 16, "mem_bytes": 64}
        for place, needs in enumerate(room):
            takes = {"gpus": needs.gpus, "cpus": max(1, needs.cpus), "mem_bytes": needs.mem_bytes}
            if all(free[what] >= amount for what, amount in takes.items()):
                free = {what: free[what] - amount for what, amount in takes.items()}
                placed.append(asks(f"part-{number}-{place}", 1, needs))
    counts = {one.name: 1 for one in placed}
    assert nodes_at_once(workload(*placed or [group()]), counts, LARGE) <= whole + len(rooms)


async def stumbled(bed: Bed, *groups: Group, machines: int = 3, place: dict[str, object] | None = None) -> set[str]:
    """What allocations avoid, asked for when the first of so many whole machines has failed before."""
    bed.backend.features |= {Feature.EXCLUDE_NODES, Feature.POOLS}
    large = tuple(replace(LARGE[0], name=f"n{number}") for number in range(machines))
    small = tuple(Node(f"m{number}", "idle", True, ("p",), cpus=4) for number in range(4 if place else 0))
    bed.backend.has = Cluster((*large, *small), (PoolInfo("p", is_default=True), PoolInfo("q")))
    bed.journal.record(evidence=STUMBLED[:1])
    bed.up(*groups, place=place)
    await bed.go(30)
    return {node for request in bed.backend.requests.values() for node in request.exclude_nodes}


DECODE = asks("decode", 1, WHOLE)


@pytest.mark.parametrize(
    ("groups", "machines", "avoids"),
    [
        pytest.param([SPANNING, DECODE], 3, False, id="it needs all three"),
        pytest.param([SPANNING, DECODE], 4, True, id="there is another one"),
        pytest.param([SPANNING, asks("decode", 2, WHOLE)], 3, True, id="it does not fit"),
        pytest.param([SPANNING, asks("decode", 1, WHOLE, pools=pools("q"))], 3, True, id="its other part is elsewhere"),
        pytest.param([SPANNING, asks("decode", 1, WHOLE, backend="other")], 3, True, id="another backend has the rest"),
        pytest.param([asks("replica", 3, Resources(gpus=8))], 3, False, id="a swarm that needs all three"),
        pytest.param([asks("replica", 3, Resources(gpus=4))], 3, True, id="replicas share a machine"),
        pytest.param([asks("replica", 3, WHOLE, pools=pools("p", "q"))], 3, False, id="all ask for one of two pools"),
        pytest.param([asks("a", 3, WHOLE, pools=pools("p", "q"), failover=Failover(hedge=True))], 3, True, id="hedged"),
        pytest.param([script(count=3, indices=(1, 2, 3), resources=WHOLE)], 3, True, id="an array, in turn"),
    ],
)  # fmt: skip
async def test_a_machine_is_not_avoided_that_the_whole_workload_needs(
    bed: Bed, groups: list[Group], machines: int, *, avoids: bool
) -> None:
    bed.others["other"] = FakeBackend(bed.clock)
    bed.new_host()
    assert await stumbled(bed, *groups, machines=machines) == ({"n0"} if avoids else set())
    said = "avoids n0 (silent)" if avoids else "would avoid, but needs nodes: n0 (silent)"
    assert f"{groups[0].name}: {said}" in [line.reason for line in bed.story() if line.kind == "nodes"]


async def test_what_may_run_on_other_machines_too_is_not_counted(bed: Bed) -> None:
    """The router may be on a node without GPUs, so that it takes none of the workers' away."""
    groups = [SPANNING, asks("router", 1, Resources(cpus=1))]
    assert await stumbled(bed, *groups, place={"partition": "p"}) == {"n0"}


async def test_what_has_ended_for_good_needs_no_machine(bed: Bed) -> None:
    await stumbled(bed, SPANNING, script(resources=WHOLE))
    assert bed.backend.requests["w.prefill.0.1.u1"].exclude_nodes == ()
    bed.backend.end(only(bed).token, 0)
    bed.backend.end("w.prefill.0.1.u1", 1)
    await bed.go(60)
    assert only(bed).phase is Phase.DONE
    assert bed.backend.requests["w.prefill.0.2.u1"].exclude_nodes == ("n0",)


async def test_explain_tells_why_it_runs_where_it_runs(bed: Bed) -> None:
    bed.backend.features |= {Feature.EXCLUDE_NODES, Feature.POOLS}
    bed.backend.has = Cluster(tuple(Node(f"n{number}", "idle", usable=True, pools=("b",)) for number in range(4)), ())
    bed.up(script(pools=pools("a", "b"), failover=Failover(retry_per_pool=1)))
    await bed.all_ready()
    bed.backend.end(only(bed).token, 89, node="n2")
    await bed.go(30)
    made = bed.backend.made[only(bed).token]
    made.seen = replace(made.seen, limit_at=bed.clock.now() + 7200, requeues=1)
    await bed.go(2)
    want, now = bed.host.wants["w"], bed.clock.now()
    text = explain(
        want, bed.host.tasks("w"), bed.story(), bed.journal.allocations("w"), "", now, bed.journal.store.evidence(now)
    )
    joined = "\n".join(text)
    assert "  runs in b; the preferred pool a was left at " in joined
    assert "  the scheduler put it back into its queue once" in text
    assert "  its time limit ends it in 1h 59m" in text or "  its time limit ends it in 2h" in text
    assert "nodes, when it was last submitted: script: avoids n2 (gpu-broken)" in text
    assert "n2: gpu-broken, counts 1, for 11h 59m more" in joined
    assert "script/0 attempt 1: a GPU is visible and does not work (cause: node, exit code 89)" in joined


async def test_explain_tells_why_it_is_pending_and_that_it_is_paused(bed: Bed) -> None:
    bed.backend.starts_at_once = False
    bed.up(script())
    await bed.go(3)
    made = bed.backend.made[only(bed).token]
    made.seen = replace(made.seen, never="the partition has no GPUs")
    bed.change(paused=True)
    await bed.go(3)
    text = explain(bed.host.wants["w"], bed.host.tasks("w"), [], [], "", bed.clock.now())
    assert "  never: the partition has no GPUs" in text
    assert "  paused: what runs keeps running, nothing is restarted until `remuda unpause`" in text


STUMBLED = [Evidence(f"n{number}", 0.0, "silent", cluster="fake", expires_at=4e9) for number in range(8)]


def strict(bed: Bed, *real: str, refuses: bool = False) -> None:
    """A scheduler of these nodes that never starts what can run on none of them; it says so at once or in its queue."""
    bed.backend.features |= {Feature.EXCLUDE_NODES, Feature.POOLS}
    bed.backend.starts_at_once = False
    bed.backend.refuses_for_good = True

    def answer(verb: str) -> None:
        for token, request in bed.backend.requests.items():
            left = set(real) - set(request.exclude_nodes)
            made = bed.backend.made.get(token)
            if verb == "before submit" and refuses and not left:
                bed.backend.refuse[token] = "no node of the partition has what was asked for"
            if verb == "after submit" and made is not None and made.seen.life is Life.PENDING:
                made.seen = replace(made.seen, never="" if left else "no node has what it asks for")
                if left:
                    bed.backend.start(token)

    bed.backend.hook = answer


@pytest.mark.parametrize("place", [{"partition": "small"}, {}], ids=["in place", "the default one"])
@pytest.mark.parametrize("refuses", [True, False])
async def test_a_small_partition_whose_nodes_all_stumbled_is_used_all_the_same(
    bed: Bed, place: dict[str, object], *, refuses: bool
) -> None:
    """Of a swarm: its partition is in `place`, and twenty nodes elsewhere are no help to it."""
    strict(bed, "n0", "n1", refuses=refuses)
    others = tuple(Node(f"m{number}", "idle", usable=True, pools=("large",)) for number in range(20))
    mine = tuple(Node(f"n{number}", "idle", usable=True, pools=("small",)) for number in range(2))
    bed.backend.has = Cluster((*mine, *others), (PoolInfo("large"), PoolInfo("small", is_default=True)))
    bed.journal.record(evidence=STUMBLED)
    bed.up(place=place)
    await bed.go(30)
    assert bed.phases() == [Phase.STARTING] * 2
    assert {len(bed.backend.requests[task.token].exclude_nodes) for task in bed.tasks()} == {1}
    assert {task.attempt for task in bed.tasks()} == {1}


@pytest.mark.parametrize("refuses", [True, False])
async def test_a_never_is_not_believed_of_what_avoids_nodes_and_costs_no_retry(bed: Bed, *, refuses: bool) -> None:
    """The scheduler says less of its nodes than there is, so that all that count are avoided."""
    strict(bed, "n0", refuses=refuses)
    # Neither what the user's own words leave, nor the memory that is asked for, can be seen in these.
    bed.backend.has = Cluster(tuple(Node(f"n{number}", "idle", usable=True, pools=("p",)) for number in range(8)), ())
    bed.journal.record(evidence=STUMBLED[:3])
    bed.up(script(), place={"partition": "p"})
    await bed.go(60)
    task = only(bed)
    assert (task.phase, task.failures, task.may_avoid) == (Phase.STARTING, 0, AVOIDS_ALL)
    first, last = bed.backend.requests["w.script.0.1.u1"], bed.backend.requests[task.token]
    assert (set(first.exclude_nodes), last.exclude_nodes) == ({"n0", "n1", "n2"}, ())
    assert task.attempt == 2, "there are no bans, so there is nothing in between"
    assert "it avoids only nodes that a person banned from now on" in "\n".join(line.reason for line in bed.story())
    assert not bed.bugs()


async def test_bans_are_the_last_to_be_dropped(bed: Bed) -> None:
    strict(bed, "n0", "n1")
    bed.backend.has = Cluster(tuple(Node(f"n{number}", "idle", usable=True, pools=("p",)) for number in range(8)), ())
    bed.journal.record(evidence=[Evidence("n0", 0.0, BAN, cluster="fake", expires_at=4e9), *STUMBLED[1:3]])
    bed.up(script(), place={"partition": "p"})
    await bed.go(60)
    assert only(bed).phase is Phase.STARTING
    assert bed.backend.requests[only(bed).token].exclude_nodes == ("n0",)


@pytest.mark.parametrize("refuses", [True, False])
async def test_a_never_of_what_avoids_nothing_is_believed(bed: Bed, *, refuses: bool) -> None:
    strict(bed, refuses=refuses)
    bed.backend.has = Cluster(tuple(Node(f"n{number}", "idle", usable=True, pools=("p",)) for number in range(8)), ())
    bed.journal.record(evidence=[Evidence("n0", 0.0, BAN, cluster="fake", expires_at=4e9), *STUMBLED[1:3]])
    bed.up(script(), place={"partition": "p"})
    await bed.go(600)
    assert (only(bed).phase, only(bed).attempt) == (Phase.FAILED, 3)
    assert bed.backend.requests["w.script.0.3.u1"].exclude_nodes == ()
    assert "avoid" not in only(bed).reason


async def test_while_the_scheduler_says_nothing_of_its_nodes_only_bans_count(bed: Bed) -> None:
    strict(bed, "n0", "n1")
    bed.backend.silent = {"cluster"}
    bed.journal.record(evidence=[*STUMBLED, Evidence("n7", 0.0, BAN, cluster="fake", expires_at=4e9)])
    bed.up(script(), place={"partition": "p"})
    await bed.go(10)
    assert only(bed).phase is Phase.STARTING
    assert bed.backend.requests[only(bed).token].exclude_nodes == ("n7",)
    (line,) = [line.reason for line in bed.story() if line.kind == "nodes"]
    assert "would avoid, but which nodes there are is not known: n0 (silent)" in line or "n6 (silent)" in line


async def test_a_host_that_dies_while_it_submits_does_not_believe_the_never_either(bed: Bed) -> None:
    strict(bed, "n0")
    bed.backend.has = Cluster(tuple(Node(f"n{number}", "idle", usable=True, pools=("p",)) for number in range(8)), ())
    bed.journal.record(evidence=STUMBLED[:3])
    answer = bed.backend.hook

    def kill(verb: str) -> None:
        answer(verb)
        if verb == "after submit":
            raise Killed

    bed.backend.hook = kill
    bed.up(script(), place={"partition": "p"})
    with pytest.raises(Killed):
        await bed.go(3)
    bed.backend.hook = answer
    bed.new_host()
    await bed.go(60)
    assert (only(bed).phase, only(bed).attempt) == (Phase.STARTING, 2)


MACHINES = [f"n{number}" for number in range(6)]
some_nodes = st.sets(st.sampled_from(MACHINES))


@settings(max_examples=20, deadline=None)
@given(
    real=st.sets(st.sampled_from(MACHINES), min_size=1), told=some_nodes, usable=some_nodes, stumbled=some_nodes,
    banned=some_nodes, is_run=st.booleans(), refuses=st.booleans(), silent=st.booleans(), has_default=st.booleans(),
)  # fmt: skip
@example(
    real={"n0", "n1"}, told=set(MACHINES), usable=set(MACHINES), stumbled={"n0", "n1"}, banned=set(), is_run=False,
    refuses=False, silent=False, has_default=True,
)  # fmt: skip
def test_whatever_is_known_of_the_nodes_nothing_is_given_up_that_could_run(
    real: set[str], told: set[str], usable: set[str], stumbled: set[str], banned: set[str], *, is_run: bool,
    refuses: bool, silent: bool, has_default: bool,
) -> None:  # fmt: skip
    """Inventories that are empty, partial or wrong; swarms whose partition is in `place`, and runs with pools."""
    with tempfile.TemporaryDirectory() as folder:
        bed = Bed(Path(folder) / "remuda.db")
        strict(bed, *real, refuses=refuses)
        bed.backend.silent = {"cluster"} if silent else set()
        nodes = tuple(Node(name, "", usable=name in usable, pools=("p",)) for name in sorted(told))
        bed.backend.has = Cluster(nodes, (PoolInfo("p", is_default=True),) if has_default else ())
        bed.journal.record(evidence=[item for item in STUMBLED if item.node in stumbled])
        bed.journal.record(
            evidence=[Evidence(node, 0.0, BAN, cluster="fake", expires_at=4e9) for node in sorted(banned)]
        )
        if is_run:
            bed.up(script(pools=pools("p")))
        else:
            bed.up(place={} if has_default else {"partition": "p"})
        asyncio.run(bed.go(60))
        told_of = "\n".join(line.reason for line in bed.story())
        assert set(bed.phases()) == {Phase.STARTING}, told_of
        assert {task.failures for task in bed.tasks()} == {0}
        assert max(task.attempt for task in bed.tasks()) <= 3
        assert not bed.bugs()
        bed.close()

"""What speaks against nodes, and which are avoided."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from remuda.backends.base import Node
from remuda.plan.model import NodePolicy
from remuda.store.rows import Evidence
from remuda.supervise.failures.ledger import BAN, Exclusion, judge, weigh

NOW = 1000.0
POLICY = NodePolicy()


def against(node: str, weight: float = 1.0, kind: str = "xid-79", **more: object) -> Evidence:
    base = Evidence(node, NOW - 10, kind, weight, cluster="slurm", workload="w", expires_at=NOW + 10)
    return replace(base, **more)  # type: ignore[arg-type]


def ban(node: str, detail: str = "") -> Evidence:
    return against(node, kind=BAN, detail=detail)


def nodes(count: int, *, usable: bool = True, pools: tuple[str, ...] = ("p",)) -> list[Node]:
    return [Node(f"n{number}", "idle", usable, pools) for number in range(count)]


def avoided(evidence: list[Evidence], count: int = 10, needed: int = 1, policy: NodePolicy = POLICY) -> list[str]:
    return [
        item.node
        for item in judge(
            evidence, NOW, cluster="slurm", candidates=nodes(count), pools=("p",), needed=needed, policy=policy
        ).excluded
    ]


def half(node: str, **more: object) -> Evidence:
    return against(node, 0.5, "cuda-700", **more)


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        pytest.param([against("n1")], ["n1"], id="a fault of the node"),
        pytest.param([half("n1")], [], id="one ambiguous fault"),
        pytest.param([half("n1")] * 10, [], id="the same workload ten times"),
        pytest.param([half("n1"), half("n1", workload="v")], ["n1"], id="two workloads"),
        pytest.param(
            [half("n1", device="0"), half("n1", workload="v", device="1")], [],
            id="two workloads on different GPUs",
        ),
        pytest.param(
            [half("n1", device="0"), half("n1", workload="v", device="0")], ["n1"],
            id="two workloads on one GPU",
        ),
        pytest.param(
            [half("n1", device="0"), half("n1", workload="v")], ["n1"],
            id="on one GPU and on the node as a whole",
        ),
        pytest.param([against("n1", expires_at=NOW)], [], id="expired"),
        pytest.param([against("n1", cluster="other")], [], id="another cluster's node of that name"),
        pytest.param([against("n99")], [], id="a node that is no more"),
        pytest.param([ban("n1")], ["n1"], id="a ban"),
        pytest.param([against("n1"), against("n2"), against("n2")], ["n2", "n1"], id="the strongest first"),
        pytest.param([against("n1"), against("n1"), ban("n3")], ["n3", "n1"], id="bans before all"),
    ],
)  # fmt: skip
def test_which_nodes_are_avoided(evidence: list[Evidence], expected: list[str]) -> None:
    assert avoided(evidence) == expected


def test_opting_out_ignores_evidence_and_not_bans() -> None:
    assert avoided([against("n1"), ban("n2")], policy=NodePolicy(exclude=False)) == ["n2"]


def test_at_least_half_is_kept_and_the_weakest_are_dropped() -> None:
    evidence = [item for number in range(5) for item in [against(f"n{number}")] * (number + 1)]
    assert avoided(evidence, count=5) == ["n4", "n3"]
    assert avoided(evidence, count=5, needed=4) == ["n4"]
    assert avoided(evidence, count=5, needed=5) == []


@pytest.mark.parametrize(
    ("usable", "away", "evidence", "needed", "wanted", "expected"),
    [
        pytest.param(3, 0, [against("n0")], 1, 2, ["n0"], id="two are enough for all of it"),
        pytest.param(3, 0, [against("n0")], 2, 3, [], id="all of it needs the third, too"),
        pytest.param(3, 0, [against("n0")], 2, 4, ["n0"], id="it does not fit anyway"),
        pytest.param(3, 1, [against("n0")], 1, 4, ["n0"], id="it does not fit while one is away"),
        pytest.param(2, 1, [against("n2")], 1, 2, ["n2"], id="who is away is not needed"),
        pytest.param(2, 1, [against("n2")], 1, 3, [], id="who is away is waited for"),
        pytest.param(2, 1, [against("n2")], 1, 4, ["n2"], id="who is away would not make it fit"),
        pytest.param(3, 0, [ban("n0")], 2, 3, ["n0"], id="a ban stands before all of it"),
        pytest.param(3, 0, [ban("n0")], 3, 3, [], id="a ban gives way to one task"),
        pytest.param(4, 0, [ban("n0"), against("n1")], 1, 4, ["n0", "n1"], id="with a ban it does not fit"),
        pytest.param(4, 0, [ban("n0"), against("n1")], 1, 3, ["n0"], id="with a ban it fits barely"),
        pytest.param(6, 0, [against("n0"), *[against("n1")] * 2], 1, 5, ["n1"], id="the least bad one is spared"),
        pytest.param(6, 0, [against(f"n{n}") for n in range(4)], 1, 2, ["n3", "n2", "n1"], id="half is kept as before"),
    ],
)  # fmt: skip
def test_as_many_are_kept_as_the_whole_workload_wants_at_once(
    usable: int, away: int, evidence: list[Evidence], needed: int, wanted: int, expected: list[str]
) -> None:
    candidates = [*nodes(usable), *nodes(usable + away, usable=False)[usable:]]
    for pools in (("p",), ()):
        said = judge(
            evidence, NOW, cluster="slurm", candidates=candidates, pools=pools, needed=needed, wanted=wanted,
            policy=POLICY,
        )  # fmt: skip
        assert [item.node for item in said.excluded] == expected
        assert len(said.spared) == len({item.node for item in evidence}) - len(expected)


def test_bans_leave_as_many_as_are_needed_and_the_rest_is_told() -> None:
    evidence = [ban(f"n{number}", "smells") for number in range(5)]
    said = judge(evidence, NOW, cluster="slurm", candidates=nodes(5), pools=(), needed=2, policy=POLICY)
    assert len(said.excluded) == 3
    assert {item.why for item in said.spared} == {"banned: smells"}
    assert len(said.spared) == 2


def test_what_cannot_be_used_anyway_does_not_count_as_left() -> None:
    mixed = [*nodes(2), replace(nodes(1)[0], name="down", usable=False), replace(nodes(1)[0], name="q", pools=("q",))]
    evidence = [against("down"), against("n0"), against("q")]
    said = judge(evidence, NOW, cluster="slurm", candidates=mixed, pools=("p",), needed=1, policy=POLICY)
    assert {item.node for item in said.excluded} == {"down", "n0"}


def test_where_no_node_is_known_only_bans_count() -> None:
    evidence = [against(f"n{number}") for number in range(10)] + [ban(f"b{number}") for number in range(4)]
    for candidates, pools in (
        ((), ()),
        ((), ("p",)),
        (nodes(20, pools=("other",)), ("p",)),
        (nodes(3, pools=()), ("p",)),
    ):
        said = judge(
            evidence, NOW, cluster="slurm", candidates=candidates, pools=pools, needed=1, policy=NodePolicy(limit=3)
        )
        assert {item.node for item in said.excluded} <= {f"b{number}" for number in range(4)}
        assert (len(said.excluded), len(said.spared), said.blind) == (3, 11, True)


def test_each_pool_that_is_asked_keeps_half_of_its_own() -> None:
    """Two small pools beside a large one: what the others have is no help to a job that waits in the one."""
    cluster = [*nodes(2, pools=("small",)), *(Node(f"m{n}", "idle", usable=True, pools=("large",)) for n in range(20))]
    evidence = [against("n0"), against("n1"), against("m0")]
    for pools, left in ((("small",), {"n0"}), (("small", "large"), {"n0"}), (("large",), {"n0", "n1"})):
        said = judge(evidence, NOW, cluster="slurm", candidates=cluster, pools=pools, needed=1, policy=POLICY)
        assert {"n0", "n1"} - {item.node for item in said.excluded} == left, pools
        assert ("m0" in {item.node for item in said.excluded}) is ("large" in pools)


def test_of_nodes_that_are_all_away_some_are_kept_for_when_they_come_back() -> None:
    evidence = [against("n0"), against("n1"), ban("n0")]
    away = nodes(2, usable=False)
    said = judge(evidence, NOW, cluster="slurm", candidates=away, pools=("p",), needed=1, policy=POLICY)
    assert [item.node for item in said.excluded] == ["n0"]
    all_banned = [ban("n0"), ban("n1")]
    said = judge(all_banned, NOW, cluster="slurm", candidates=away, pools=("p",), needed=1, policy=POLICY)
    assert len(said.excluded) == 1


def test_the_reason_names_the_heaviest_evidence() -> None:
    evidence = [half("n1"), against("n1", device="GPU-7")]
    said = judge(evidence, NOW, cluster="slurm", candidates=nodes(9), pools=(), needed=1, policy=POLICY)
    assert said.excluded == (Exclusion("n1", 1.5, "xid-79 on GPU-7 and 1 more"),)


pieces = st.builds(
    Evidence,
    node=st.sampled_from([f"n{number}" for number in range(8)]), at=st.floats(0, NOW),
    kind=st.sampled_from(["xid-79", "cuda-700", BAN, "silent"]), weight=st.sampled_from([0.25, 0.5, 1.0]),
    cluster=st.sampled_from(["slurm", "other"]), device=st.sampled_from(["", "0", "1"]),
    workload=st.sampled_from(["u", "v", "w"]), expires_at=st.sampled_from([NOW - 1, NOW, NOW + 1, NOW + 500]),
)  # fmt: skip
policies = st.builds(NodePolicy, exclude=st.booleans(), limit=st.integers(0, 6))


#: What excludes by itself.
strong = st.builds(against, st.sampled_from([f"n{number}" for number in range(8)]))
much = st.lists(pieces | strong, max_size=30)
ALL_STUMBLED = [against(f"n{number}") for number in range(8)]


@settings(deadline=None)
@given(
    evidence=much, count=st.integers(1, 8), needed=st.integers(1, 8), wanted=st.integers(0, 8), policy=policies,
)  # fmt: skip
@example(evidence=ALL_STUMBLED, count=8, needed=1, wanted=0, policy=POLICY)
@example(evidence=ALL_STUMBLED, count=8, needed=1, wanted=7, policy=POLICY)
@example(evidence=ALL_STUMBLED, count=2, needed=1, wanted=2, policy=POLICY)
@example(evidence=[*ALL_STUMBLED, ban("n0")], count=8, needed=2, wanted=7, policy=POLICY)
def test_nobody_starves(evidence: list[Evidence], count: int, needed: int, wanted: int, policy: NodePolicy) -> None:
    said = judge(
        evidence, NOW, cluster="slurm", candidates=nodes(count), pools=("p",), needed=needed, wanted=wanted,
        policy=policy,
    )  # fmt: skip
    left = count - len(said.excluded)
    assert left >= min(needed, count)
    assert len(said.excluded) <= policy.limit
    if count - sum(item.is_ban for item in said.excluded) >= wanted:
        assert left >= wanted, "what fits on the nodes that nobody banned, fits on those that are left"
    if not all(item.is_ban for item in said.excluded):
        assert left >= count / 2, "bans come first, so that what the ledger itself excludes never takes the half"
    names = [item.node for item in (*said.excluded, *said.spared)]
    assert len(names) == len(set(names))
    if not policy.exclude:
        assert all(item.is_ban for item in said.excluded)


POOLS = ("p", "q", "r")
true_nodes = st.dictionaries(
    st.sampled_from([f"n{number}" for number in range(8)]),
    st.tuples(st.booleans(), st.sets(st.sampled_from(POOLS), max_size=3)),
    max_size=8,
)


@settings(deadline=None)
@given(
    evidence=much, truth=true_nodes, told=st.sets(st.sampled_from([f"n{number}" for number in range(8)])),
    asked=st.lists(st.sampled_from(POOLS), unique=True, min_size=1), needed=st.integers(1, 4), policy=policies,
)  # fmt: skip
@example(ALL_STUMBLED, {"n0": (True, {"p"}), "n1": (True, {"p"}), "n2": (True, {"q"})}, set(), ["p"], 1, POLICY)
@example(ALL_STUMBLED, {"n0": (False, {"p"}), "n1": (False, {"p"})}, {"n0", "n1"}, ["p"], 1, POLICY)
@example(ALL_STUMBLED, {f"n{n}": (True, {"p" if n < 2 else "q"}) for n in range(8)}, {f"n{n}" for n in range(8)},
         ["p", "q"], 1, POLICY)  # fmt: skip
def test_whatever_the_scheduler_tells_of_its_nodes_every_pool_keeps_enough(
    evidence: list[Evidence], truth: dict[str, tuple[bool, set[str]]], told: set[str], asked: list[str], needed: int,
    policy: NodePolicy,
) -> None:  # fmt: skip
    """The inventory is empty, partial or whole; what is left is counted in what there really is."""
    known = [Node(name, "", usable, tuple(pools)) for name, (usable, pools) in truth.items() if name in told]
    said = judge(evidence, NOW, cluster="slurm", candidates=known, pools=asked, needed=needed, policy=policy)
    own = {item.node for item in said.excluded if not item.is_ban}
    avoided = {item.node for item in said.excluded}
    assert own <= {node.name for node in known}, "nobody knows what an unknown node is needed for"
    for pool in asked:
        there = {name for name, (_, pools) in truth.items() if pool in pools}
        usable = {name for name in there if truth[name][0]}
        if own & there & told:
            assert len(there - avoided) >= min(needed, len(there & told))
            assert there - avoided, "a pool with all of its nodes avoided would be asked in vain"
        if own & usable & told:
            assert len(usable - avoided) >= len(usable & told) / 2
            assert len(usable - avoided) >= needed


@settings(deadline=None)
@given(evidence=st.lists(pieces, max_size=30), more=pieces, count=st.integers(2, 8), policy=policies)
def test_more_evidence_against_a_node_never_frees_it(
    evidence: list[Evidence], more: Evidence, count: int, policy: NodePolicy
) -> None:
    before = avoided(evidence, count, policy=policy)
    if more.node in before and more.at >= max((item.at for item in evidence), default=0):
        assert more.node in avoided([*evidence, more], count, policy=policy)


@settings(deadline=None)
@given(evidence=st.lists(pieces, max_size=30), count=st.integers(1, 8), policy=policies)
def test_what_has_expired_or_is_of_another_cluster_has_no_effect(
    evidence: list[Evidence], count: int, policy: NodePolicy
) -> None:
    valid = [item for item in evidence if item.expires_at > NOW and item.cluster == "slurm"]
    assert avoided(evidence, count, policy=policy) == avoided(valid, count, policy=policy)


@settings(deadline=None)
@given(
    evidence=st.lists(pieces.map(lambda item: replace(item, workload="w", kind="cuda-700", weight=0.5)), max_size=60)
)
def test_ambiguous_faults_of_one_workload_never_exclude(evidence: list[Evidence]) -> None:
    assert avoided(evidence) == []
    assert weigh(evidence) <= 0.5

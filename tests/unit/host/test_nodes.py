"""Nodes and GPUs as users meet them, and the ledger's use cases, on a real database with invented time."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes.backend import FakeBackend
from tests.fakes.clock import FakeClock
from tests.unit.supervise.bed import store_at

from remuda.backends.base import Cluster, Node, PoolInfo
from remuda.base.errors import BackendUnreachable, InputError, NotFound
from remuda.host.nodes import Nodes, check_ttl
from remuda.plan.placing.gpus import GPUS
from remuda.store import lease as leases
from remuda.store.rows import Evidence
from remuda.supervise.records import StoreJournal
from remuda.views.nodes import SmokeResult, gpu_views, node_views
from remuda.wire.process import identify

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def node(
    name: str, gpus: int = 4, free: int = 4, kind: str = "a100", pools: tuple[str, ...] = ("gpu",), **more: object
) -> Node:
    values = {"state": "idle", "usable": True, "cpus": 16, "cpus_free": 16, **more}
    return Node(name=name, gpus=gpus, gpus_free=free, gpu_type=kind, pools=pools, **values)  # type: ignore[arg-type]


def cluster(*nodes: Node, down: tuple[str, ...] = ()) -> Cluster:
    pools = sorted({pool for one in nodes for pool in one.pools} | set(down))
    return Cluster(nodes, tuple(PoolInfo(name, is_up=name not in down) for name in pools))


# GPUs


def test_gpus_of_a_partition() -> None:
    has = cluster(node("n1", free=1), node("n2", free=3), node("n3", free=0))
    (view,) = gpu_views(has)
    assert view.model_dump() == {
        "pool": "gpu", "is_up": True, "gpu": "a100", "vram_gb": None, "vram_variants": [40.0, 80.0], "max_per_node": 4,
        "available": 3, "availability": "partial", "nodes_free": 2, "nodes": 3, "free": 4, "total": 12,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("has", "available", "word", "free"),
    [
        (cluster(node("n1"), node("n2", free=0)), 4, "full", 4),
        (cluster(node("n1", free=2)), 2, "partial", 2),
        (cluster(node("n1", free=0)), 0, "none", 0),
        (cluster(node("n1", usable=False, state="drained")), 0, "none", 0),
        (cluster(node("n1"), down=("gpu",)), 0, "none", 0),
        (cluster(node("small", gpus=2, free=2), node("big", gpus=8, free=2)), 2, "partial", 4),
    ],
)
def test_how_many_are_available(has: Cluster, available: int, word: str, free: int) -> None:
    (view,) = gpu_views(has)
    assert (view.available, view.availability, view.free) == (available, word, free)


@pytest.mark.parametrize(
    ("kind", "features", "size"),
    [
        ("l40s", (), 48.0),
        ("a10", (), 24.0),
        ("a100", ("gpu80gb",), 80.0),
        ("NVIDIA_A100-SXM4-80GB", (), 80.0),
        ("nobody-knows", (), None),
        ("", ("vram16",), 16.0),
        ("", (), None),
        ("a100", (), None),
        ("a100", ("gpu24gb",), None),
        ("l40s-something", (), None),
        ("a100x", (), None),
        ("a1000", (), None),
        ("h100-80gb-of-ours", (), None),
        ("l4,l40s", (), None),
        ("", ("vram16ish",), None),
        ("", ("nogpu80gb",), None),
        ("", ("gpu40gb", "gpu80gb"), None),
    ],
)
def test_memory_by_exact_name_or_not_at_all(kind: str, features: tuple[str, ...], size: float | None) -> None:
    (view,) = gpu_views(cluster(node("n1", kind=kind, features=features)))
    assert view.vram_gb == size


@settings(deadline=None)
@given(st.sampled_from(sorted(GPUS)), st.sampled_from(["{}x", "x{}", "{}0", "1{}", "{}-max", "{} lite", "q-{}", "{}q"]))
def test_a_name_that_is_only_like_a_known_one_tells_nothing(known: str, likeness: str) -> None:
    name = likeness.format(known)
    (view,) = gpu_views(cluster(node("n1", kind=name)))
    assert name in GPUS or (view.vram_gb, view.vram_variants) == (None, [])


def test_nodes_whose_features_disagree_leave_the_memory_open() -> None:
    (view,) = gpu_views(cluster(node("n1", features=("gpu40gb",)), node("n2", features=("gpu80gb",))))
    assert (view.vram_gb, view.vram_variants) == (None, [40.0, 80.0])


def test_a_row_for_each_partition_and_type_largest_memory_first() -> None:
    has = cluster(
        node("n1", kind="l4", pools=("b", "a")), node("n2", kind="h100", pools=("b",)),
        node("n3", kind="?", pools=("a",)), node("cpu", gpus=0, free=0, kind="", pools=("a",)),
    )  # fmt: skip
    assert [(view.pool, view.gpu) for view in gpu_views(has)] == [("b", "h100"), ("a", "l4"), ("b", "l4"), ("a", "?")]


some_nodes = st.lists(
    st.builds(
        node, st.sampled_from("abcdefgh"), st.integers(0, 8), st.integers(0, 9), st.sampled_from(["a100", "l4", ""]),
        st.sets(st.sampled_from(["p", "q", "r"])).map(tuple), usable=st.booleans(),
    ),
    unique_by=lambda one: one.name,
)  # fmt: skip


@settings(deadline=None)
@given(some_nodes, st.sets(st.sampled_from(["p", "q"])))
def test_numbers_of_gpus_agree_with_each_other(nodes: list[Node], down: set[str]) -> None:
    for view in gpu_views(cluster(*nodes, down=tuple(down))):
        mine = [one for one in nodes if view.pool in one.pools and one.gpu_type == view.gpu and one.gpus]
        assert 0 <= view.available <= view.max_per_node <= view.total
        assert view.available <= view.free <= view.total
        assert 0 <= view.nodes_free <= view.nodes == len(mine)
        assert (view.availability == "none") == (view.free == 0) == (view.nodes_free == 0)
        assert view.is_up or view.free == 0
        assert view.nodes_free <= sum(one.usable for one in mine)


# Nodes


def against(name: str, kind: str = "ban", **more: object) -> Evidence:
    values = {"at": 100.0, "expires_at": 200.0, "cluster": "slurm", **more}
    return Evidence(node=name, kind=kind, **values)  # type: ignore[arg-type]


def test_a_node_with_its_ban() -> None:
    rows = [against("n1", detail="Bad GPU", token="user:alice")]
    (view,) = node_views(cluster(node("n1")), rows, 150.0, name="slurm")
    assert view.ban is not None
    assert (view.ban.by, view.ban.reason, view.ban.until, view.is_avoided, view.weight) == (
        "alice", "Bad GPU", 200.0, True, 0.0
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "weight", "avoided"),
    [
        ([], 0.0, False),
        ([against("n1", "xid-79")], 1.0, True),
        ([against("n1", "xid-79", expires_at=150.0)], 0.0, False),
        ([against("n1", "xid-79", cluster="other")], 0.0, False),
        (
            [against("n1", "hang", weight=0.5, workload="a"), against("n1", "hang", weight=0.5, workload="a")],
            0.5,
            False,
        ),
        ([against("n1", "hang", weight=0.5, workload="a"), against("n1", "hang", weight=0.5, workload="b")], 1.0, True),
    ],
)
def test_weight_of_a_node(rows: list[Evidence], weight: float, avoided: bool) -> None:
    (view,) = node_views(cluster(node("n1")), rows, 150.0, name="slurm")
    assert (view.weight, view.is_avoided, view.ban) == (weight, avoided, None)


def test_a_banned_node_that_the_cluster_does_not_know_is_listed() -> None:
    views = node_views(cluster(node("n1")), [against("gone"), against("old", "xid-79")], 150.0, name="slurm")
    assert [(view.name, view.is_known, view.state) for view in views] == [
        ("n1", True, "idle"),
        ("gone", False, "unknown"),
    ]


def test_nodes_of_one_partition() -> None:
    has = cluster(node("n1", pools=("a",)), node("n2", pools=("b", "a")), node("n3", pools=("b",)))
    assert [view.name for view in node_views(has, [against("gone")], 150.0, name="slurm", pool="a")] == ["n1", "n2"]


def test_what_is_not_usable_has_nothing_free() -> None:
    (view,) = node_views(cluster(node("n1", usable=False, state="drained")), [], 0.0, name="slurm")
    assert view.gpus_free == 0


@pytest.mark.parametrize(
    ("ttl_s", "sentence"),
    [
        (0.0, "ttl: a ban lasts longer than 0 s, not 0 s"),
        (-5.0, "ttl: a ban lasts longer than 0 s, not -5 s"),
        (float("nan"), "ttl: a ban lasts longer than 0 s, not nan s"),
        (float("inf"), "ttl: a ban lasts longer than 0 s, not inf s"),
        (4e8, "ttl: a ban lasts ten years at most"),
    ],
)
def test_a_time_that_no_ban_can_have(ttl_s: float, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        check_ttl(ttl_s)
    assert str(caught.value) == sentence


# Use cases


class World:
    """The use cases over a database of their own."""

    def __init__(self, path: Path) -> None:
        self.clock = FakeClock()
        self.slurm = FakeBackend(self.clock, "slurm")
        self.slurm.has = cluster(node("node001"), node("node002"), node("gpu7", pools=("big",)))
        self.store = store_at(path)
        lease = leases.acquire(self.store, identify(os.getpid()), 20.0, self.clock.now())
        assert isinstance(lease, leases.Lease)
        self.changes = 0
        backends = {"slurm": self.slurm, "local": FakeBackend(self.clock, "local")}
        journal = StoreJournal(self.store, lease.fence)
        self.nodes = Nodes(journal, backends, self.clock, changed=self.note, gpus_taken=lambda: 3)

    def note(self) -> None:
        self.changes += 1

    def ledger(self) -> list[Evidence]:
        return self.store.evidence(self.clock.now())

    async def avoided(self) -> list[str]:
        return [view.name for view in await self.nodes.nodes("slurm") if view.is_avoided]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    one = World(tmp_path / "remuda.db")
    yield one
    one.store.close()


async def test_a_ban_counts_until_it_expires(world: World) -> None:
    ban = world.nodes.ban("node001", 3600.0, "  Bad GPU ", "slurm", by="alice")
    assert (ban.by, ban.reason, ban.until - ban.at) == ("alice", "Bad GPU", 3600.0)
    assert await world.avoided() == ["node001"]
    assert [item.kind for item in world.ledger()] == ["ban"]
    assert world.changes == 1
    world.clock.advance(3601)
    assert await world.avoided() == []
    assert world.ledger() == []


async def test_a_new_ban_replaces_the_old_one(world: World) -> None:
    world.nodes.ban("node001", 86400.0, "first", "slurm")
    world.clock.advance(10)
    world.nodes.ban("node001", 60.0, "", "slurm")
    (view,) = [view for view in await world.nodes.nodes("slurm") if view.ban]
    assert view.ban is not None
    assert (view.ban.reason, view.ban.until - world.clock.now()) == ("no reason given", 60.0)
    world.clock.advance(61)
    assert await world.avoided() == []


async def test_bans_of_a_list_are_all_or_none(world: World) -> None:
    with pytest.raises(NotFound) as caught:
        await world.nodes.ban_many("node[001-003]", 60.0, "", "slurm")
    assert str(caught.value) == "slurm has no node 'node003'"
    assert caught.value.hint == "did you mean 'node002', 'node001'? (--force bans it all the same)"
    assert await world.avoided() == []
    assert [ban.node for ban in await world.nodes.ban_many("node[001-002],gpu7", 60.0, "", "slurm")] == [
        "node001", "node002", "gpu7"
    ]  # fmt: skip
    assert await world.avoided() == ["node001", "node002", "gpu7"]


async def test_who_has_no_cluster_is_told_how_to_see_this_machine(world: World) -> None:
    world.slurm.silent.add("cluster")
    for ask in (world.nodes.gpus, world.nodes.nodes):
        with pytest.raises(BackendUnreachable) as caught:
            await ask("slurm")
        assert caught.value.hint == "this machine alone: --backend local"


async def test_force_asks_nobody(world: World) -> None:
    world.slurm.silent.add("cluster")
    with pytest.raises(BackendUnreachable) as caught:
        await world.nodes.ban_many("elsewhere", 60.0, "", "slurm")
    assert caught.value.hint == "--force bans without asking the scheduler whether it has such a node"
    await world.nodes.ban_many("elsewhere", 60.0, "", "slurm", force=True)
    world.slurm.silent.clear()
    assert await world.avoided() == ["elsewhere"]


async def test_the_story_of_a_node(world: World) -> None:
    world.nodes.ban("node001", 60.0, "Bad GPU", "slurm", by="alice")
    world.clock.advance(5)
    assert world.nodes.unban("node001", "slurm", by="bob") == ["node001"]
    assert await world.avoided() == []
    lines = await world.nodes.history("node001", "slurm")
    assert [(line.kind, line.by, line.detail, line.counts, line.weight) for line in lines] == [
        ("ban", "alice", "Bad GPU", False, 1.0), ("unban", "bob", "unbanned", False, 0.0)
    ]  # fmt: skip
    with pytest.raises(NotFound, match=r"^'node001' is not banned$"):
        world.nodes.unban("node001", "slurm")
    with pytest.raises(NotFound, match=r"^none of 'node001,gpu7' is banned$"):
        world.nodes.unban("node001,gpu7", "slurm")


async def test_nodes_that_are_no_more_are_forgotten(world: World) -> None:
    """Of one backend: a machine of the same name elsewhere is another one."""
    world.nodes.record_tests([SmokeResult(node="node001", outcome="failed")], "slurm")
    for name, backend in (("node001", "slurm"), ("gpu7", "slurm"), ("node001", "local")):
        world.nodes.ban(name, 60.0, "", backend)
    assert world.nodes.forget("node[001-002]", "slurm") == 2
    assert await world.avoided() == ["gpu7"]
    assert await world.nodes.history("node001", "slurm") == []
    assert [line.kind for line in await world.nodes.history("node001", "local")] == ["ban"]


async def test_history_of_a_node_that_nobody_knows(world: World) -> None:
    assert await world.nodes.history("gpu7", "slurm") == []
    with pytest.raises(NotFound) as caught:
        await world.nodes.history("gpu8", "slurm")
    assert (str(caught.value), caught.value.hint) == ("slurm has no node 'gpu8'", "did you mean 'gpu7'?")
    world.slurm.silent.add("cluster")
    assert await world.nodes.history("gpu8", "slurm") == []


async def test_failed_tests_speak_against_nodes_and_passed_ones_end_that(world: World) -> None:
    failed = SmokeResult(node="node001", outcome="failed", detail="cuInit returned 802", device="0000:3b:00")
    said = world.nodes.record_tests([failed, SmokeResult(node="gpu7", outcome="busy")], "slurm", by="alice")
    assert (said.failed, said.cleared) == (["node001"], [])
    assert await world.avoided() == ["node001"]
    world.nodes.ban("node001", 7200.0, "Bad GPU", "slurm")
    said = world.nodes.record_tests([SmokeResult(node=name, outcome="ok") for name in ("node001", "gpu7")], "slurm")
    assert (said.failed, said.cleared) == ([], ["node001"])
    assert await world.avoided() == ["node001"], "a person's ban stays"
    world.nodes.unban("node001", "slurm")
    assert await world.avoided() == []
    lines = await world.nodes.history("node001", "slurm")
    assert [(line.kind, line.device) for line in lines] == [
        ("smoke-test", "0000:3b:00"), ("ban", ""), ("smoke-test-passed", ""), ("unban", "")
    ]  # fmt: skip


async def test_a_test_that_fails_again_does_not_weigh_twice(world: World) -> None:
    for _ in range(3):
        world.nodes.record_tests([SmokeResult(node="node001", outcome="failed")], "slurm")
        world.clock.advance(1)
    assert [view.weight for view in await world.nodes.nodes("slurm") if view.is_avoided] == [1.0]


async def test_a_partition_that_is_not_there(world: World) -> None:
    with pytest.raises(NotFound) as caught:
        await world.nodes.nodes("slurm", "bigg")
    assert (str(caught.value), caught.value.hint) == ("there is no partition 'bigg'", "did you mean 'big'?")


async def test_a_backend_that_is_not_there(world: World) -> None:
    with pytest.raises(InputError) as caught:
        await world.nodes.gpus("slrum")
    assert (str(caught.value), caught.value.hint) == (
        "backend: this host has no backend 'slrum'", "known: local, slurm"
    )  # fmt: skip


async def test_what_tasks_of_this_machine_have_is_not_free(world: World) -> None:
    backend = world.nodes.backends["local"]
    assert isinstance(backend, FakeBackend)
    backend.has = cluster(node("here", pools=("local",)))
    (view,) = await world.nodes.gpus("local")
    assert (view.free, view.total) == (1, 4)


@pytest.mark.parametrize(("programs", "name"), [((), "local"), (("sbatch",), "slurm")])
def test_the_cluster_is_meant_where_there_is_one(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: tuple[str, ...], name: str
) -> None:
    for program in programs:
        (tmp_path / program).touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert world.nodes.backend_name("") == name

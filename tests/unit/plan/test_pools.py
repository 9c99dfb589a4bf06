"""Which partitions fit, in which order, and what is said of the others; and what GPUs are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.backends.base import Cluster, Node, PoolInfo
from remuda.base.errors import InputError
from remuda.plan.placing.gpus import GPUS, gpu_named, is_kind, vram_of_features
from remuda.plan.placing.pools import Found, find_pools
from remuda.specs.run import RunSpec

GB = 1024**3


def nodes(
    pool: str, count: int, gpus: int = 0, gpu_type: str = "", features: tuple[str, ...] = (), cpus: int = 64
) -> list[Node]:
    return [
        Node(f"{pool}-{i}", "idle", usable=True, pools=(pool,), cpus=cpus, mem_bytes=256 * GB, gpus=gpus,
             gpus_free=gpus, gpu_type=gpu_type, features=features)
        for i in range(count)
    ]  # fmt: skip


def cluster(*groups: list[Node], **pools: PoolInfo) -> Cluster:
    every = [node for group in groups for node in group]
    names = list(dict.fromkeys(pool for node in every for pool in node.pools))
    return Cluster(tuple(every), tuple(pools.get(name, PoolInfo(name)) for name in names))


SITE = cluster(
    nodes("a100", 4, 8, "a100", ("gpu80gb",)),
    nodes("h100", 2, 8, "nvidia_h100_80gb_hbm3"),
    nodes("l40s", 3, 2, "l40s"),
    nodes("a10", 1, 4, "a10"),
    nodes("odd", 1, 8, "zx81"),
    nodes("cpu", 2, cpus=128),
    cpu=PoolInfo("cpu", is_default=True),
    a10=PoolInfo("a10", max_time_s=3600),
)


def find(site: Cluster = SITE, **fields: Any) -> Found:
    return find_pools(RunSpec.model_validate({"script": "x.sh", **fields}), site)


def names(found: Found) -> list[str]:
    return [pool.name for pool in found.pools]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"gpus": 1}, ["h100", "a100", "l40s", "a10", "odd"]),
        ({"gpus": 1, "prefer": "min"}, ["a10", "l40s", "a100", "h100", "odd"]),
        ({"gpus": 4}, ["h100", "a100", "a10", "odd"]),
        ({"gpus": 1, "min_vram": 40}, ["h100", "a100", "l40s"]),
        ({"gpus": 1, "min_vram": 40, "max_vram": 48}, ["l40s"]),
        ({"gpus": 1, "max_vram": 24}, ["a10"]),
        ({"gpus": 1, "gpu_type": "h100"}, ["h100"]),
        ({"gpus": 1, "gpu_type": "zx81"}, ["odd"]),
        ({"gpus": 1, "time_limit": "2h"}, ["h100", "a100", "l40s", "odd"]),
        ({"gpus": 1, "nodes": 3}, ["a100", "l40s"]),
        ({"gpus": 1, "cpus_per_task": 64}, ["h100", "a100", "l40s", "a10", "odd"]),
        ({}, ["cpu"]),
        ({"partitions": "l40s,a100", "gpus": 1}, ["l40s", "a100"]),
        ({"partitions": "l40s"}, ["l40s"]),
    ],
    ids=str,
)
def test_choice(fields: dict[str, Any], expected: list[str]) -> None:
    assert names(find(**fields)) == expected


EQUAL = cluster(
    nodes("brief", 9, 8, "l40s"), nodes("long", 1, 8, "l40s"), nodes("a10", 1, 8, "a10"),
    nodes("little", 2), nodes("much", 1),
    brief=PoolInfo("brief", max_time_s=120), little=PoolInfo("little", max_time_s=60, is_default=True),
)  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "expected", "named"),
    [
        ({"gpus": 1}, ["long", "brief", "a10"],
         "brief comes last: its time limit of 2m is hardly longer than the warning, which comes 1m 30s before it"),
        ({"gpus": 1, "signal": "TERM@10"}, ["brief", "long", "a10"], ""),
        ({"gpus": 1, "signal": "TERM@0"}, ["brief", "long", "a10"], ""),
        ({"gpus": 1, "time_limit": "1h"}, ["long", "a10"], ""),
        ({"gpus": 1, "time_limit": "2m"}, ["brief", "long", "a10"], ""),
        ({"gpus": 1, "partitions": "brief,long"}, ["brief", "long"], "brief: its time limit of 2m is hardly longer"),
        ({"signal": "TERM@0"}, ["little"], ""),
        ({}, ["much", "little"], "little comes last: its time limit of 1m"),
    ],
)  # fmt: skip
def test_among_equal_ones_those_with_too_short_a_time_limit_come_last_and_are_named(
    fields: dict[str, Any], expected: list[str], named: str
) -> None:
    found = find(EQUAL, **fields)
    assert names(found) == expected
    assert [f"partition {named}" in note for note in found.notes] == ([True] if named else [])


def test_why_the_others_do_not_fit() -> None:
    with pytest.raises(InputError) as caught:
        find(gpus=4, min_vram=90, time_limit="2h")
    assert str(caught.value) == "gpus: no partition fits"
    assert caught.value.hint.splitlines() == [
        "a100: 80 GB per GPU, at least 90 asked",
        "  h100: 80 GB per GPU, at least 90 asked",
        "  l40s: 2 GPUs per node, 4 asked",
        "  a10: at most 1h, 2h asked",
        "  odd: the memory of zx81 is not known, at least 90 GB asked",
        "  cpu: no GPUs, 4 asked",
    ]


def test_unknown_partition() -> None:
    with pytest.raises(InputError, match=r"^partitions: there is no partition 'l40'$") as caught:
        find(partitions="l40", gpus=1)
    assert caught.value.hint == "did you mean 'l40s'?"


def test_a_listed_partition_that_does_not_fit_is_left_out_and_told() -> None:
    found = find(partitions=("l40s", "h100"), gpus=4)
    assert names(found) == ["h100"]
    assert found.notes == ("partition l40s is not used: 2 GPUs per node, 4 asked",)


def test_nodes_that_are_away_now() -> None:
    away = [replace(node, usable=False, state="drained") for node in nodes("a100", 2, 8, "a100-80gb")]
    site = cluster(away, nodes("l40s", 1, 2, "l40s"))
    found = find(site, gpus=1)
    assert names(found) == ["l40s"]
    assert [item.reason for item in found.others] == ["0 of 2 nodes are usable now (drained)"]
    found = find(site, gpus=1, partitions=("a100", "l40s"))
    assert names(found) == ["a100", "l40s"]
    assert found.notes == ("partition a100 cannot start anything now: 0 of 2 nodes are usable now (drained)",)


def test_free_gpus_break_ties_only() -> None:
    busy = [replace(node, gpus_free=0) for node in nodes("big", 1, 8, "h200")]
    site = cluster(busy, nodes("same", 1, 8, "h200"), nodes("small", 1, 8, "a10"))
    assert names(find(site, gpus=1)) == ["same", "big", "small"]


def test_a_mixed_partition_is_asked_for_the_gpus_that_fit() -> None:
    site = cluster(nodes("mix", 2, 4, "l4"), nodes("mix", 3, 4, "a100-80gb"))
    assert find(site, gpus=2, min_vram=40).pools[0].place == {"partition": "mix", "gres": "gpu:a100-80gb:2"}
    assert find(site, gpus=2).pools[0].place == {"partition": "mix"}


def test_features_tell_variants_apart() -> None:
    site = cluster(nodes("a", 1, 4, "a100", ("gpu40gb",)), nodes("a", 1, 4, "a100", ("gpu80gb", "ib")))
    assert find(site, gpus=1, min_vram=80).pools[0].place == {"partition": "a", "constraint": "gpu80gb"}
    found = find(site, gpus=1, min_vram=80, constraint="ib|eth")
    assert found.pools[0].place["constraint"] == "(ib|eth)&gpu80gb"


def test_a_variant_that_is_not_told_fits_only_where_both_would() -> None:
    site = cluster(nodes("a", 1, 4, "a100"))
    assert names(find(site, gpus=1, min_vram=40)) == ["a"]
    with pytest.raises(InputError) as caught:
        find(site, gpus=1, min_vram=41)
    assert caught.value.hint == "a: 40 or 80 GB per GPU, at least 41 asked"


@pytest.mark.parametrize(
    ("name", "vram"),
    [
        ("a10", 24), ("a100-80gb", 80), ("a100_40", 40), ("NVIDIA A100-SXM4-80GB", 80), ("nvidia_a100-pcie-40gb", 40),
        ("l4", 24), ("l40s", 48), ("l40", 48), ("h100", 80), ("NVIDIA H100 NVL", 94), ("h200", 141), ("b200", 192),
        ("gb200", 192), ("t4", 16), ("tesla-t4", 16), ("v100-32", 32), ("Tesla V100-SXM2-16GB", 16), ("a6000", 48),
        ("NVIDIA RTX A6000", 48), ("rtx_4090", 24), ("NVIDIA GeForce RTX 3080 Ti", 12), ("quadro_rtx_6000", 24),
        ("RTX 6000 Ada Generation", 48), ("mi210", 64), ("mi300x", 192), ("mi300a", 128), ("1g.10gb", 10),
        ("a100_3g.20gb", 20),
        ("a100", 0), ("v100", 0),
    ],
)  # fmt: skip
def test_known_gpus(name: str, vram: float) -> None:
    found = gpu_named(name)
    assert found is not None
    assert found.vram_gb == vram


@pytest.mark.parametrize(
    "name", ["", "gpu", "a1000", "a", "l400", "h1000", "zx81", "a100-41", "my-a100", "xa10", "a100x"]
)
def test_unknown_gpus(name: str) -> None:
    """No part of a name counts: A10 is not A100, L4 is not L40S."""
    assert gpu_named(name) is None


@settings(deadline=None)
@given(name=st.sampled_from(sorted(GPUS)), more=st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=6))
def test_no_longer_name_is_taken_for_a_shorter_one(name: str, more: str) -> None:
    longer = gpu_named(name + more)
    assert longer is None or longer.name == name + more or longer != GPUS[name] or not more.isdigit()


@pytest.mark.parametrize(
    ("asked", "name", "is_it"),
    [
        ("a100", "a100", True), ("A100", "nvidia_a100-sxm4-80gb", True), ("a100-80gb", "a100_80", True),
        ("a100-80gb", "a100_40", False), ("a10", "a100", False), ("l4", "l40s", False), ("zx81", "ZX81", True),
        ("zx", "zx81", False), ("h100", "h100-nvl", True), ("h100-nvl", "h100", False),
    ],
)  # fmt: skip
def test_is_kind(asked: str, name: str, is_it: bool) -> None:
    assert is_kind(asked, name) is is_it


def test_features() -> None:
    assert vram_of_features(["ib", "gpu80gb"]) == 80
    assert vram_of_features(["vram48"]) == 48
    assert vram_of_features(["gpu_mem:40"]) == 40
    assert vram_of_features(["a100", "80gb-disk", "rack80"]) == 0
    assert vram_of_features(["gpu40gb", "gpu80gb"]) == 0


KINDS = st.sampled_from(["a100", "a100-80gb", "l40s", "t4", "zx81", ""])
SITES = st.lists(
    st.tuples(st.sampled_from("pqrs"), st.integers(1, 3), st.integers(0, 8), KINDS), min_size=1, max_size=6
)


@settings(deadline=None)
@given(
    site=SITES,
    gpus=st.integers(0, 8),
    least=st.none() | st.sampled_from([16, 40, 48, 80]),
    prefer=st.sampled_from(["min", "max"]),
)
def test_what_is_chosen_fits(
    site: list[tuple[str, int, int, str]], gpus: int, least: float | None, prefer: str
) -> None:
    there = cluster(*(nodes(pool, count, has, kind if has else "") for pool, count, has, kind in site))
    low = least if gpus else None
    try:
        found = find(there, gpus=gpus, min_vram=low, prefer=prefer)
    except InputError as error:
        assert all(f"{pool}: " in error.hint for pool, *_ in site)  # noqa: PT017
        return
    assert len({pool.name for pool in found.pools}) == len(found.pools)
    assert {pool.name for pool in found.pools}.isdisjoint(item.pool for item in found.others)
    sizes = [fit.vram_gb for fit in found.fits if fit.vram_gb]
    assert sizes == sorted(sizes, reverse=prefer == "max")
    for fit in found.fits:
        able = [node for node in there.nodes if fit.pool.name in node.pools and node.gpus >= gpus]
        assert able
        assert low is None or fit.vram_gb >= low

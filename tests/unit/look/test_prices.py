"""What an hour of a GPU of a plan costs: its kind is what was asked for by name, or what its partitions have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from remuda.backends.base import Cluster, Node, PoolInfo
from remuda.base.disk.paths import StatePaths
from remuda.base.errors import BackendUnreachable
from remuda.look import planning, prices
from remuda.look.facts import Looked
from remuda.look.kinds import run
from remuda.plan.context import Context
from remuda.plan.model import Command, Group, Pool, Resources, Role
from remuda.specs.reading.resolve import Override

if TYPE_CHECKING:
    from pathlib import Path

KINDS = {"hopper": "h100", "ampere": "nvidia_a100-sxm4-80gb", "old": "k80", "bare": ""}
CLUSTER = Cluster(
    tuple(
        Node(name, "idle", usable=True, pools=(name,), cpus=8, gpus=4, gpu_type=kind) for name, kind in KINDS.items()
    ),
    (PoolInfo("hopper"), PoolInfo("ampere", is_default=True), PoolInfo("old"), PoolInfo("bare")),
)


def looked(tmp_path: Path, asked: Cluster | BackendUnreachable | None = CLUSTER) -> Looked:
    def never() -> Any:
        raise AssertionError("the cluster is asked")

    caller = Context(cwd=str(tmp_path), state=str(tmp_path / "home"), python="python3", env={"PATH": "/bin"})
    return Looked(StatePaths(tmp_path / "home"), never, (None, {}), asked, {True: caller})


@pytest.mark.parametrize(
    ("pools", "place", "kind", "said", "found"),
    [
        pytest.param(["hopper"], {}, "", "", "H100 SXM", id="a partition of one kind"),
        pytest.param([], {"partition": "hopper"}, "", "", "H100 SXM", id="a place"),
        pytest.param([], {}, "", "", "A100 80GB", id="the default partition"),
        pytest.param(["ampere", "hopper"], {}, "", "", "H100 SXM", id="several kinds: the dearest"),
        pytest.param(["hopper", "old"], {}, "", "", "", id="one kind without a price"),
        pytest.param(["bare"], {}, "", "", "", id="GPUs without a type"),
        pytest.param(["old"], {}, "l40s", "", "L40S", id="asked for by name"),
        pytest.param([], {"gres": "gpu:h200:4,shard:2"}, "", "", "H200", id="gres"),
        pytest.param([], {"gres": "gpu:4", "partition": "hopper"}, "", "", "H100 SXM", id="gres without a kind"),
        pytest.param([], {"partition": "gone"}, "", "MI300X", "MI300X", id="as the document calls them"),
        pytest.param(["hopper"], {}, "", "MI300X", "H100 SXM", id="what is there wins"),
        pytest.param(["hopper"], {}, "a100_40", "", "", id="another size"),
    ],
)
def test_the_kind_of_gpus_is_found(
    tmp_path: Path, pools: list[str], place: dict[str, str], kind: str, said: str, found: str
) -> None:
    group = Group(
        name="replica", role=Role.REPLICA, count=2, command=Command(argv=("x",)),
        resources=Resources(gpus=4, gpu_type=kind), pools=tuple(Pool(name=name) for name in pools),
    )  # fmt: skip
    price = prices.price_of(group, place, looked(tmp_path), here=False, said=said)
    assert (price.type if price else "") == found


@pytest.mark.parametrize("asked", [None, BackendUnreachable("nobody answers")], ids=["not asked", "silent"])
def test_a_cluster_is_not_asked_for_prices(tmp_path: Path, asked: BackendUnreachable | None) -> None:
    group = Group(name="replica", role=Role.REPLICA, count=2, command=Command(argv=("x",)), resources=Resources(gpus=4))
    assert prices.price_of(group, {"partition": "hopper"}, looked(tmp_path, asked), here=False) is None


def test_here_the_driver_names_the_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group(name="script", role=Role.SCRIPT, count=1, command=Command(argv=("x",)), resources=Resources(gpus=4))
    monkeypatch.setattr(prices, "gpu_type", lambda: "NVIDIA H100 80GB HBM3")
    price = prices.price_of(group, {}, looked(tmp_path), here=True)
    assert price is not None
    assert price.type == "H100 SXM"


def test_a_dry_run_has_it_where_the_time_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.sh").write_text("#!/bin/bash\ntrue\n")
    said = {"gpus": 4, "backend": "slurm", "partitions": ["hopper"]}

    def told(**more: object) -> list[dict[str, Any]]:
        flags = [Override(key, value, f"--{key}") for key, value in {**said, **more}.items()]
        facts = looked(tmp_path)
        plans = run.plan_runs([str(tmp_path / "train.sh")], flags, facts)
        return [
            one.get("price")
            for one in planning.answered(plans, facts, dry_run=True, checked=False)["plans"][0]["groups"]
        ]

    assert told(time_limit="4h") == [{"gpu": "H100 SXM", "hour": 3.0, "currency": "USD"}]
    assert told() == [None]

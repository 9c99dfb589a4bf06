"""What an hour of the GPUs of a plan costs, where their kind and its price are known."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from remuda.backends.base import Cluster
from remuda.backends.local.devices import gpu_type
from remuda.backends.slurm.parsing.inventory import read_gpus
from remuda.bench import cost
from remuda.plan.placing.gpus import is_kind
from remuda.plan.placing.place import asked_partitions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.bench.cost import Price
    from remuda.look.facts import Looked
    from remuda.plan.model import Group


def our_prices() -> list[Price]:
    """Those of common GPUs, for who gives none."""
    return cost.read_prices(Path(cost.__file__).with_name("prices.yaml").read_text(), "prices.yaml")


def price_of(group: Group, place: Mapping[str, object], facts: Looked, *, here: bool, said: str = "") -> Price | None:
    """Of one GPU; of several kinds the dearest, of none known that of what is `said`. None: one has no price."""
    kinds = {gpu_type()} if here else _kinds(group, place, facts) or {said}
    found = [next((one for one in our_prices() if is_kind(kind, one.type)), None) for kind in kinds]
    known = [price for price in found if price is not None]
    return max(known, key=lambda price: price.per_gpu_hour) if len(known) == len(found) else None


def _kinds(group: Group, place: Mapping[str, object], facts: Looked) -> set[str]:
    """Those asked for by name (`gpu:h100:4`), else those of its partitions where the cluster was asked anyway."""
    gres = [str({**place, **pool}.get("gres") or "") for pool in [one.place for one in group.pools] or [{}]]
    named = {group.resources.gpu_type, *(read_gpus(text)[1] for text in gres)} - {""}
    if named or not isinstance(facts.asked, Cluster):
        return named
    names = {*asked_partitions(place, group.pools)} or {pool.name for pool in facts.asked.pools if pool.is_default}
    return {node.gpu_type for node in facts.asked.nodes if node.gpus and not names.isdisjoint(node.pools)}

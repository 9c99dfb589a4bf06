"""What an hour of the GPUs of a plan costs, where their kind and its price are known."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from remuda.backends.base import Cluster
from remuda.backends.local.devices import gpu_type
from remuda.backends.slurm.inventory import read_gpus
from remuda.bench import cost
from remuda.plan.gpus import is_kind
from remuda.plan.place import asked_partitions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.bench.cost import Price
    from remuda.look.facts import Looked
    from remuda.plan.model import Group

#: Prices of common GPUs, for those who give none.
OUR_PRICES: Final = Path(cost.__file__).with_name("prices.yaml")


def our_prices() -> list[Price]:
    """The list that comes with this version."""
    return cost.read_prices(OUR_PRICES.read_text(), OUR_PRICES.name)


def price_of(group: Group, place: Mapping[str, object], facts: Looked, *, here: bool, said: str = "") -> Price | None:
    """Of one GPU for an hour; of several kinds the dearest, and None where the price of one of them is not known.

    Args:
        group: its tasks' GPUs.
        place: of its workload.
        facts: of the command; the cluster is not asked for this.
        here: its tasks run on this machine.
        said: what the document calls its GPUs; looked at where nothing else tells.
    """
    kinds = {gpu_type()} - {""} if here else _asked(group, place) or _there(group, place, facts)
    listed = our_prices()
    prices = [_found(listed, kind) for kind in kinds or {said}]
    known = [price for price in prices if price is not None]
    return max(known, key=lambda price: price.per_gpu_hour) if len(known) == len(prices) else None


def _found(listed: list[Price], kind: str) -> Price | None:
    return cost.find_price(listed, kind) or next((one for one in listed if is_kind(one.type, kind)), None)


def _asked(group: Group, place: Mapping[str, object]) -> set[str]:
    """Kinds that are asked for by name: `gpu:h100:4`."""
    named = {
        read_gpus(str({**place, **pool}.get("gres") or ""))[1] for pool in [one.place for one in group.pools] or [{}]
    }
    return {*named, group.resources.gpu_type} - {""}


def _there(group: Group, place: Mapping[str, object], facts: Looked) -> set[str]:
    """Kinds of the nodes of its partitions, where the cluster has been asked for its nodes anyway."""
    if not isinstance(facts.asked, Cluster):
        return set()
    names = {*asked_partitions(place, group.pools)} or {pool.name for pool in facts.asked.pools if pool.is_default}
    return {node.gpu_type for node in facts.asked.nodes if node.gpus and not names.isdisjoint(node.pools)}

"""Which partitions of a cluster a run may use, best first, and why the others cannot. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from remuda.base.errors import InputError
from remuda.base.text import did_you_mean
from remuda.base.units import parse_size, show_duration
from remuda.plan.model import Pool
from remuda.plan.placing.gpus import gpu_named, is_kind, vram_of_features
from remuda.specs.places import FLEET, NO_MACHINE
from remuda.specs.run import EARLY_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from remuda.backends.base import Cluster, Node, PoolInfo
    from remuda.specs.run import RunSpec


@dataclass(frozen=True)
class NoFit:
    """A partition that cannot be used."""

    pool: str
    reason: str
    """A sentence without its beginning: `2 GPUs per node, 4 asked`."""
    passing: bool = False
    """It may fit later: its nodes are away now."""


@dataclass(frozen=True)
class Fit:
    """A partition that can be used, and what speaks for it."""

    pool: Pool
    vram_gb: float = 0.0
    """Of a GPU there; 0: not known."""
    bandwidth_gbs: float = 0.0
    year: int = 0
    gpus_free: int = 0
    is_default: bool = False
    gpu: str = ""
    """Kind of GPU, as the scheduler names it."""
    short_s: float = 0.0
    """Its time limit, where that is too short for the warning before it; else 0."""


@dataclass(frozen=True)
class Found:
    """What a cluster has for a run."""

    fits: tuple[Fit, ...]
    """Best first, or as the user listed them."""
    others: tuple[NoFit, ...]
    notes: tuple[str, ...] = ()

    @property
    def pools(self) -> tuple[Pool, ...]:
        """The pools, best first."""
        return tuple(fit.pool for fit in self.fits)


@dataclass(frozen=True)
class Vram:
    """Memory of a GPU in GB, as far as it is known."""

    least: float = 0.0
    most: float = 0.0
    """More than `least` where the name leaves open which variant it is. Both 0: not known."""
    features: tuple[str, ...] = field(compare=False, default=())
    """Features of the node that tell it."""

    def fits(self, low: float | None, high: float | None) -> bool:
        """Whether it is surely between two bounds; what is not known is not."""
        return self.least > 0 and (low is None or self.least >= low) and (high is None or self.most <= high)

    def __str__(self) -> str:
        return f"{self.least:g}" if self.least == self.most else f"{self.least:g} or {self.most:g}"


@dataclass(frozen=True)
class _Kind:
    """GPUs of one kind in one partition; nodes of one kind are alike for a run."""

    gpu_type: str = ""
    vram: Vram = Vram()


def find_pools(spec: RunSpec, cluster: Cluster) -> Found:
    """Find the partitions that fit, and put them in order.

    Args:
        spec: what the run asks for; with `partitions` only those are looked at, and keep their order.
        cluster: what there is.

    Raises:
        InputError: none fits, or one that was named does not exist; says why of each.
    """
    known = {info.name: info for info in cluster.pools}
    for name in spec.partitions:
        if name not in known:
            raise InputError(f"there is no partition {name!r}", hint=_nearest(name, known), where="partitions")
    listed = [known[name] for name in spec.partitions] if spec.partitions else list(cluster.pools)
    answers = [_look(spec, info, [node for node in cluster.nodes if info.name in node.pools]) for info in listed]
    others = tuple(answer for answer in answers if isinstance(answer, NoFit))
    fits = [answer for answer in answers if isinstance(answer, Fit)]
    notes: list[str] = []
    if spec.partitions:
        away = {item.pool: item for item in others if item.passing}
        notes = [f"partition {item.pool} is not used: {item.reason}" for item in others if not item.passing]
        notes += [f"partition {item.pool} cannot start anything now: {item.reason}" for item in away.values()]
        by_name = {fit.pool.name: fit for fit in fits}
        fits = [by_name.get(name) or Fit(_pool(name)) for name in spec.partitions if name in by_name or name in away]
    else:
        fits = _ordered(spec, fits)
    notes += [_too_short(spec, fit) for fit in fits if fit.short_s]
    if not fits:
        sentence = "no partition fits" if others else "the cluster has no partitions"
        hint = "\n  ".join(f"{item.pool}: {item.reason}" for item in others)
        raise InputError(sentence, hint=hint, where="partitions" if spec.partitions else "gpus" if spec.gpus else "")
    return Found(tuple(fits), others, tuple(notes))


def _look(spec: RunSpec, info: PoolInfo, nodes: Sequence[Node]) -> Fit | NoFit:
    """Whether a run fits into one partition."""
    if not info.is_up:
        return NoFit(info.name, "it is down", passing=True)
    if spec.time_limit and info.max_time_s and spec.time_limit > info.max_time_s:
        most = show_duration(info.max_time_s)
        return NoFit(info.name, f"at most {most}, {show_duration(spec.time_limit)} asked")
    if not nodes:
        return NoFit(info.name, ": ".join(NO_MACHINE) if info.name == FLEET else "it has no nodes")
    reason = _too_small(spec, nodes)
    if reason:
        return NoFit(info.name, reason)
    if not spec.gpus and not spec.partitions and any(node.gpus for node in nodes) and not info.is_default:
        return NoFit(info.name, "its nodes have GPUs, none asked")
    kinds = _kinds(spec, [node for node in nodes if _is_large(spec, node)])
    if isinstance(kinds, str):
        return NoFit(info.name, kinds)
    return _among(spec, info, nodes, kinds)


def _too_small(spec: RunSpec, nodes: Sequence[Node]) -> str:
    """Why no node is large enough, empty when one is."""
    most = max(node.gpus for node in nodes)
    if most < spec.gpus:
        return f"{most} GPUs per node, {spec.gpus} asked" if most else f"no GPUs, {spec.gpus} asked"
    cpus = max(node.cpus for node in nodes)
    if (spec.cpus_per_task or 0) > cpus > 0:
        return f"{cpus} CPUs per node, {spec.cpus_per_task} asked"
    mem, wanted = max(node.mem_bytes for node in nodes), parse_size(spec.mem) if spec.mem else 0
    if wanted > mem > 0:
        return f"{mem / 1024**3:.0f} GB per node, {wanted / 1024**3:.0f} asked"
    return "" if any(_is_large(spec, node) for node in nodes) else "no node has GPUs, CPUs and memory enough together"


def _is_large(spec: RunSpec, node: Node) -> bool:
    wanted = parse_size(spec.mem) if spec.mem else 0
    cpus_fit = not node.cpus or node.cpus >= (spec.cpus_per_task or 0)
    return node.gpus >= spec.gpus and cpus_fit and (not node.mem_bytes or node.mem_bytes >= wanted)


def vram_of(node: Node) -> Vram:
    """Memory of a node's GPUs: what the type's name says, else what a feature of the node says."""
    gpu = gpu_named(node.gpu_type) if node.gpu_type else None
    if gpu is not None and gpu.vram_gb:
        return Vram(gpu.vram_gb, gpu.vram_gb)
    told = vram_of_features(node.features)
    if told and (gpu is None or not gpu.variants or told in gpu.variants):
        return Vram(told, told, tuple(name for name in node.features if vram_of_features([name])))
    return Vram(min(gpu.variants), max(gpu.variants)) if gpu is not None and gpu.variants else Vram()


def _kind(node: Node) -> _Kind:
    return _Kind(node.gpu_type, vram_of(node))


def _kinds(spec: RunSpec, nodes: Iterable[Node]) -> set[_Kind] | str:
    """Kinds of GPUs that fit, or why none does. Without GPUs there is one kind, of none."""
    if not spec.gpus:
        return {_Kind()}
    kinds = {_kind(node) for node in nodes}
    if spec.gpu_type:
        right = {kind for kind in kinds if is_kind(spec.gpu_type, kind.gpu_type)}
        if not right:
            return f"{_names(kinds)}, {spec.gpu_type} asked"
        kinds = right
    if spec.min_vram is None and spec.max_vram is None:
        return kinds
    fitting = {kind for kind in kinds if kind.vram.fits(spec.min_vram, spec.max_vram)}
    if fitting:
        return fitting
    unknown = sorted({kind.gpu_type or "its GPUs" for kind in kinds if not kind.vram.least})
    if unknown:
        return f"the memory of {', '.join(unknown)} is not known, {_asked_vram(spec)} GB asked"
    sizes = sorted({kind.vram for kind in kinds}, key=lambda vram: (vram.least, vram.most))
    return f"{', '.join(f'{size} GB' for size in sizes)} per GPU, {_asked_vram(spec)} asked"


def _asked_vram(spec: RunSpec) -> str:
    if spec.min_vram is not None and spec.max_vram is not None:
        return f"{spec.min_vram:g} to {spec.max_vram:g}"
    return f"at least {spec.min_vram:g}" if spec.min_vram is not None else f"at most {spec.max_vram:g}"


def _names(kinds: Iterable[_Kind]) -> str:
    return ", ".join(sorted({kind.gpu_type or "GPUs of no known type" for kind in kinds}))


def _among(spec: RunSpec, info: PoolInfo, nodes: Sequence[Node], kinds: set[_Kind]) -> Fit | NoFit:
    """The fit with the kind of GPU of which there is most, asked for by name where there are others beside it."""
    able = [node for node in nodes if _is_large(spec, node)]
    if spec.gpus:
        able = [node for node in able if _kind(node) in kinds]
    usable = [node for node in able if node.usable]
    if len(able) < spec.nodes:
        return NoFit(info.name, f"{len(able)} nodes, {spec.nodes} asked")
    if len(usable) < spec.nodes:
        state = Counter(node.state for node in able if not node.usable).most_common(1)[0][0]
        return NoFit(info.name, f"{len(usable)} of {len(able)} nodes are usable now ({state})", passing=True)
    before = spec.warning()[1]
    short_s = info.max_time_s if before and not spec.time_limit and info.max_time_s <= before + EARLY_S else 0.0
    if not spec.gpus:
        return Fit(_pool(info.name), is_default=info.is_default, short_s=short_s)
    count = Counter(_kind(node) for node in usable)
    best = max(count, key=lambda kind: (count[kind] >= spec.nodes, kind.vram.least, count[kind], kind.gpu_type))
    gpu = gpu_named(best.gpu_type)
    every = {_kind(node) for node in nodes if node.gpus}
    mine = [node for node in usable if _kind(node) == best]
    return Fit(
        _pool(info.name, spec, best, every),
        vram_gb=best.vram.least,
        bandwidth_gbs=gpu.bandwidth_gbs if gpu else 0.0,
        year=gpu.year if gpu else 0,
        gpus_free=sum(node.gpus_free for node in mine),
        is_default=info.is_default,
        gpu=best.gpu_type,
        short_s=short_s,
    )


def _too_short(spec: RunSpec, fit: Fit) -> str:
    """A sentence about a partition that ends every attempt before it has begun to work."""
    last = "" if spec.partitions else " comes last"
    limit, before = show_duration(fit.short_s), show_duration(spec.warning()[1])
    return (
        f"partition {fit.pool.name}{last}: its time limit of {limit} is hardly longer than the warning, which comes "
        f"{before} before it"
    )


def _pool(name: str, spec: RunSpec | None = None, kind: _Kind | None = None, every: Iterable[_Kind] = ()) -> Pool:
    """The pool; where some GPUs of the partition do not fit, it asks for those that do."""
    place = {"partition": name}
    if spec is None or kind is None:
        return Pool(name=name, place=place)
    picky = spec.gpu_type is not None or spec.min_vram is not None or spec.max_vram is not None
    types = {other.gpu_type for other in every}
    if kind.gpu_type and ((picky and len(types) > 1) or spec.gpu_type):
        place["gres"] = f"gpu:{kind.gpu_type}:{spec.gpus}"
    same = {other.vram for other in every if other.gpu_type == kind.gpu_type}
    if picky and kind.vram.features and len(same) > 1:
        told = kind.vram.features[0]
        place["constraint"] = f"({spec.constraint})&{told}" if spec.constraint else told
    return Pool(name=name, place=place)


def _ordered(spec: RunSpec, fits: Sequence[Fit]) -> list[Fit]:
    """Best first or cheapest first; among equal ones those with too short a time limit come last.

    Then free GPUs break ties, then the default partition, then the name.
    """
    if not spec.gpus:
        default = [fit for fit in fits if fit.is_default and not fit.short_s]
        return default or sorted(fits, key=lambda fit: (fit.short_s > 0, not fit.is_default, fit.pool.name))
    sign = -1 if spec.prefer == "max" else 1
    return sorted(
        fits,
        key=lambda fit: (
            # What is not known is neither best nor cheapest.
            fit.vram_gb == 0, sign * fit.vram_gb, sign * fit.bandwidth_gbs, sign * fit.year,
            fit.short_s > 0, -fit.gpus_free, not fit.is_default, fit.pool.name,
        ),
    )  # fmt: skip


def _nearest(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    return did_you_mean(name, names, f"there are {', '.join(names)}")

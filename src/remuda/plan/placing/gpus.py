"""What GPUs are: memory, bandwidth and year by name. Exact names only: an unknown GPU is unknown. Pure.

Figures are those of the makers' data sheets (NVIDIA: product pages and architecture white papers; AMD: Instinct data
sheets): memory in GB as marketed, bandwidth of the memory in GB/s, year of introduction.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True)
class GpuType:
    """One kind of GPU."""

    name: str
    vram_gb: float
    """0: there are variants, and the name does not tell which."""
    bandwidth_gbs: float
    year: int
    variants: tuple[float, ...] = ()
    """Memory sizes in GB that it is sold with, where there are several."""


def _table(*rows: tuple[str, tuple[float, ...], float, int]) -> dict[str, GpuType]:
    table: dict[str, GpuType] = {}
    for name, sizes, bandwidth, year in rows:
        several = sizes if len(sizes) > 1 else ()
        table[name] = GpuType(name, 0.0 if several else sizes[0], bandwidth, year, several)
        table |= {f"{name}-{size:g}": GpuType(name, size, bandwidth, year) for size in sizes}
    return table


#: Names in their plain form, see `plain_name`; those with a size name one variant.
GPUS: Final[dict[str, GpuType]] = _table(
    ("gb300", (288,), 8000, 2025),
    ("b300", (288,), 8000, 2025),
    ("gb200", (192,), 8000, 2024),
    ("b200", (192,), 8000, 2024),
    ("b100", (192,), 8000, 2024),
    ("gh200", (96, 144), 4000, 2023),
    ("h200", (141,), 4800, 2023),
    ("h200-nvl", (141,), 4800, 2024),
    ("h100", (80,), 3350, 2022),
    ("h100-sxm", (80,), 3350, 2022),
    ("h100-pcie", (80,), 2000, 2022),
    ("h100-nvl", (94,), 3900, 2023),
    ("h800", (80,), 3350, 2023),
    ("h20", (96, 141), 4000, 2023),
    ("a100", (40, 80), 1555, 2020),
    ("a800", (40, 80), 1555, 2022),
    ("a30", (24,), 933, 2021),
    ("a40", (48,), 696, 2020),
    ("a16", (16,), 200, 2021),
    ("a10", (24,), 600, 2021),
    ("a10g", (24,), 600, 2021),
    ("a2", (16,), 200, 2021),
    ("l40s", (48,), 864, 2023),
    ("l40", (48,), 864, 2022),
    ("l20", (48,), 864, 2023),
    ("l4", (24,), 300, 2023),
    ("v100", (16, 32), 900, 2017),
    ("v100s", (32,), 1134, 2019),
    ("p100", (12, 16), 732, 2016),
    ("p40", (24,), 346, 2016),
    ("p4", (8,), 192, 2016),
    ("t4", (16,), 320, 2018),
    ("k80", (12,), 240, 2014),
    ("rtxpro6000", (96,), 1792, 2025),
    ("rtx6000ada", (48,), 960, 2022),
    ("rtx5000ada", (32,), 576, 2023),
    ("a6000", (48,), 768, 2020),
    ("a5500", (24,), 768, 2022),
    ("a5000", (24,), 768, 2021),
    ("a4500", (20,), 640, 2021),
    ("a4000", (16,), 448, 2021),
    ("rtx6000", (24,), 672, 2018),
    ("rtx8000", (48,), 672, 2018),
    ("rtx5090", (32,), 1792, 2025),
    ("rtx5080", (16,), 960, 2025),
    ("rtx4090", (24,), 1008, 2022),
    ("rtx4080", (16,), 717, 2022),
    ("rtx4070", (12,), 504, 2023),
    ("rtx3090", (24,), 936, 2020),
    ("rtx3090ti", (24,), 1008, 2022),
    ("rtx3080", (10, 12), 760, 2020),
    ("rtx3080ti", (12,), 912, 2021),
    ("rtx3070", (8,), 448, 2020),
    ("rtx2080ti", (11,), 616, 2018),
    ("rtx2080", (8,), 448, 2018),
    ("titanrtx", (24,), 672, 2018),
    ("titanv", (12,), 653, 2017),
    ("titanxp", (12,), 547, 2017),
    ("gtx1080ti", (11,), 484, 2017),
    ("gtx1080", (8,), 320, 2016),
    ("mi355x", (288,), 8000, 2025),
    ("mi350x", (288,), 8000, 2025),
    ("mi325x", (256,), 6000, 2024),
    ("mi300x", (192,), 5300, 2023),
    ("mi300a", (128,), 5300, 2023),
    # One of the two dies, which are handed out as GPUs of their own.
    ("mi250x", (64,), 1638, 2021),
    ("mi250", (64,), 1638, 2021),
    ("mi210", (64,), 1638, 2021),
    ("mi100", (32,), 1229, 2020),
    ("mi60", (32,), 1024, 2018),
    ("mi50", (16, 32), 1024, 2018),
    ("max1550", (128,), 3277, 2023),
    ("gaudi2", (96,), 2450, 2022),
    ("gaudi3", (128,), 3700, 2024),
)  # fmt: skip
_MAKERS: Final = frozenset({"nvidia", "amd", "intel", "tesla", "geforce", "quadro", "instinct", "gpu", "radeon"})
_FORMS: Final = frozenset({"sxm", "sxm2", "sxm3", "sxm4", "sxm5", "pcie", "pcie4", "pcie5", "hbm2", "hbm2e", "hbm3",
                           "hbm3e", "oam", "nvl", "nvlink", "ada", "ti", "generation", "super"})  # fmt: skip
_SIZE = re.compile(r"([0-9]{1,3})(?:gb?|gib)?")
#: A slice of a GPU (MIG): compute slices and memory.
_SLICE = re.compile(r"(?:.*[_-])?([1-7]g\.([0-9]{1,3})gb)(?:\+me)?")
_FEATURE = re.compile(r"(?:gpu|vram|gpu[_-]?mem|gmem|gpu[_-]?vram)[_:=-]?([0-9]{1,3})(?:gb?|gib)?", re.IGNORECASE)


def gpu_named(name: str) -> GpuType | None:
    """The kind of GPU that a scheduler or user calls `name`, None for one that is not known.

    `NVIDIA_A100-SXM4-80GB`, `a100_80` and `a100-80gb` are the 80 GB one; `a100` alone may be either; `3g.20gb` is a
    slice with 20 GB.
    """
    slice_of = _SLICE.fullmatch(name.lower())
    if slice_of is not None:
        return GpuType(slice_of[1], float(slice_of[2]), 0.0, 0)
    words = [word for word in re.split(r"[\s_:./-]+", name.lower()) if word and word not in _MAKERS]
    sizes = [size for word in words[1:] if (size := _size_of(word))]
    forms = [word for word in words[1:] if word in _FORMS]
    if not words or len(words) != 1 + len(forms) + len(sizes):
        joined = _joined(words)
        return None if joined is None else gpu_named("-".join(joined))
    return _with_size(words[0], forms, sizes)


def _joined(words: list[str]) -> list[str] | None:
    """`rtx 4090` and `titan rtx` are one name; `rtx a6000` is the A6000."""
    if len(words) < 2:
        return None
    first, second, *rest = words
    if first == "rtx" and f"{second}" in GPUS:
        return [second, *rest]
    if first == "rtx" and second == "pro" and rest:
        return [f"rtxpro{rest[0]}", *(word for word in rest[1:] if word != "blackwell")]
    if f"{first}{second}" in GPUS:
        return [first + second, *rest]
    return None


def _with_size(base: str, forms: list[str], sizes: list[str]) -> GpuType | None:
    if base in ("rtx6000", "rtx5000") and "ada" in forms:
        base = f"{base}ada"
    if "ti" in forms and f"{base}ti" in GPUS:
        base = f"{base}ti"
    named = [f"{base}-{word.rstrip('0123456789')}" for word in forms]
    form = next((name for name in named if name in GPUS), base)
    if sizes:
        return GPUS.get(f"{form}-{sizes[0]}") or GPUS.get(f"{base}-{sizes[0]}")
    return GPUS.get(form)


def _size_of(word: str) -> str:
    match = _SIZE.fullmatch(word)
    return match[1] if match else ""


def vram_of_features(features: Iterable[str]) -> float:
    """Memory of a node's GPUs in GB where a feature tells it (`gpu80gb`, `vram80`, `gpu_mem:80`), else 0."""
    sizes = {float(match[1]) for feature in features if (match := _FEATURE.fullmatch(feature)) is not None}
    return sizes.pop() if len(sizes) == 1 else 0.0


def is_kind(asked: str, name: str) -> bool:
    """Whether a GPU that the scheduler calls `name` is what a user means with `asked`.

    The same word, or the same kind in the table; a size that was asked for must be that of the name.
    """
    if asked.lower() == name.lower():
        return True
    wanted, there = gpu_named(asked), gpu_named(name)
    if wanted is None or there is None or wanted.name.partition("-")[0] != there.name.partition("-")[0]:
        return False
    has_form = "-" in wanted.name and wanted.name != there.name
    return not has_form and (not wanted.vram_gb or bool(wanted.variants) or _same_size(asked, wanted, there))


def _same_size(asked: str, wanted: GpuType, there: GpuType) -> bool:
    said_size = any(_size_of(word) for word in re.split(r"[\s_:./-]+", asked.lower())[1:])
    return not said_size or wanted.vram_gb == there.vram_gb

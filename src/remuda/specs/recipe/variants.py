"""One recipe file may hold many: a base, and what others change in it. Pure.

`base:` is laid under each `override_NAME:` and each row of a `zip_override_NAME:`. Mappings are merged, everything else
is replaced, `null` deletes what the base says. In a zip every list has a value for each row; a list of one and a single
value are in all rows, and a list that is itself a value stands in a list.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from remuda.base.errors import InputError
from remuda.base.text import did_you_mean
from remuda.specs.reading.document import Problem, fail
from remuda.specs.reading.resolve import Layer, Resolved

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from remuda.specs.reading.document import Path

BASE: Final = "base"
OVERRIDE: Final = "override_"
ZIP: Final = "zip_override_"
MOST: Final = 10_000
"""Rows of one zip."""


@dataclass(frozen=True)
class Variant:
    """One recipe of a file."""

    selector: str
    """What names it after the file's name and a colon; empty where the file holds one recipe."""
    resolved: Resolved


def variants(layer: Layer, selector: str = "") -> list[Variant]:
    """The recipes of a file that `selector` names: with none all but the base, which may be all there is.

    Args:
        layer: the file.
        selector: `base`, `override_NAME`, `NAME`, `zip_override_NAME[0]`, or a pattern of them with `*` and `?`.

    Raises:
        InputError: none has that name, or a zip has lists of different lengths; says where.
    """
    if not isinstance(layer.data.get(BASE), dict):
        if selector:
            raise InputError(f"has one recipe, and not {selector!r}", hint="leave out what follows the file's name")
        return [Variant("", Resolved(without_null(layer.data), (layer,)))]
    _refuse_others(layer)
    found = {BASE: Variant(BASE, Resolved(without_null(layer.data[BASE]), (layer.below((BASE,)),)))}
    for key in layer.data:
        for name, over in _rows(layer, key):
            base = layer.below((BASE,))
            found[name] = Variant(name, Resolved(without_null(lay(base.data, over.data)), (base, over)))
    if not selector:
        return [variant for name, variant in found.items() if name != BASE] or [found[BASE]]
    return _chosen(found, selector)


def _refuse_others(layer: Layer) -> None:
    for key, value in layer.data.items():
        origin = Resolved({}, (layer,)).key((key,))
        if value is not None and not isinstance(value, dict):
            raise fail([Problem(origin.where, f"`{key}` must be a mapping", "")])
        if key != BASE and not key.startswith((OVERRIDE, ZIP)):
            sentence = f"unknown key {key!r} beside `base`"
            hint = did_you_mean(key, [BASE, OVERRIDE, ZIP]) or "known: base, override_NAME, zip_override_NAME"
            raise fail([Problem(origin.where, sentence, hint)])


def _rows(layer: Layer, key: str) -> Iterator[tuple[str, Layer]]:
    if key.startswith(OVERRIDE):
        yield key, layer.below((key,))
    elif key.startswith(ZIP):
        over = layer.below((key,))
        for index in range(_length(layer, key)):
            yield f"{key}[{index}]", Layer(_row(over.data, index), over.values, over.keys)


def _length(layer: Layer, key: str) -> int:
    """Rows of a zip.

    Raises:
        InputError: two lists have different lengths.
    """
    length, first = 1, ""
    for path, value in _leaves(layer.data[key] or {}, (key,)):
        if not isinstance(value, list) or len(value) == 1:
            continue
        where = Resolved({}, (layer,)).origin(path).where
        name = ".".join(map(str, path[1:]))
        if not value or len(value) > MOST:
            raise fail([Problem(where, f"the list of `{name}` has {len(value):,} values", f"1 to {MOST:,}")])
        if first and len(value) != length:
            sentence = f"`{name}` has {len(value)} values, and `{first}` has {length}"
            raise fail([Problem(where, sentence, "lists of a zip have one length, or one value; a value that is a list "
                                                 "stands in a list: [[1, 2]]")])  # fmt: skip
        length, first = len(value), name
    return length


def _row(data: Mapping[str, Any], index: int) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, dict):
            row[key] = _row(value, index)
        elif isinstance(value, list) and value:
            row[key] = value[index if len(value) > 1 else 0]
        else:
            row[key] = value
    return row


def _leaves(data: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, Any]]:
    for key, value in data.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value


def _chosen(found: Mapping[str, Variant], selector: str) -> list[Variant]:
    def is_meant(name: str) -> bool:
        short = name.removeprefix(ZIP).removeprefix(OVERRIDE)
        whole = name.partition("[")[0]
        if selector in (name, short, whole, short.partition("[")[0]):
            return True
        return any(fnmatchcase(one, selector) for one in (name, short))

    chosen = [variant for name, variant in found.items() if is_meant(name)]
    if not chosen:
        hint = did_you_mean(selector, found) or f"there: {', '.join(list(found)[:8])}"
        raise InputError(f"has no recipe {selector!r}", hint=hint)
    return chosen


def lay(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    """`high` over `low`: mappings are merged, everything else is replaced, None deletes what `low` says."""
    out = dict(low)
    for key, value in high.items():
        under = out.get(key)
        if value is None:
            out.pop(key, None)
        else:
            out[key] = lay(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return out


def without_null(data: Mapping[str, Any], path: Path = ()) -> dict[str, Any]:
    """`data` without what is null, but for the flags of engines: TensorRT-LLM's file has a null as a value.

    Args:
        data: a recipe of either version, or a deployment.
        path: where it stands.
    """
    first, name, last = (*map(str, path), "", "", "")[:3]
    if len(path) == 3 and ((first, last) == ("roles", "args") or (first == "backend" and name.endswith("_config"))):
        return dict(data)
    return {
        key: without_null(value, (*path, key)) if isinstance(value, dict) else value
        for key, value in data.items()
        if value is not None
    }

"""A sweep: a recipe with parameters, and the recipes that it stands for. Pure.

`sweep:` says which values parameters take, and `{NAME}` in the recipe where one goes: alone it is the value itself,
within text its text. srtctl's `sweep: {speed: [5, 10], batch: [x, y]}` is all combinations, as is `grid:`; `zip:` pairs
values, and `points:` lists them. Together they are all combinations of these. `where:` leaves points out.
"""

from __future__ import annotations

import ast
import itertools
import json
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from remuda.base.text import did_you_mean
from remuda.specs.benchmark import MOST_REPEATS
from remuda.specs.reading.document import Problem, fail
from remuda.specs.reading.fields import dotted
from remuda.specs.reading.resolve import Resolved
from remuda.specs.recipe.variants import MOST, without_null
from remuda.specs.strict import Plain, plain_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from remuda.base.errors import InputError
    from remuda.specs.reading.document import Path

    Row = dict[str, Any]

SWEEP: Final = "sweep"
_WORDS: Final = ("grid", "zip", "points", "where", "repeats", "order", "max_running")
_MARK: Final = re.compile(r"(?<![${])\{([A-Za-z_]\w*)\}(?!\})")
_COMPARING: Final = (
    ast.Expression, ast.BoolOp, ast.boolop, ast.UnaryOp, ast.Not, ast.USub, ast.BinOp, ast.Add, ast.Sub, ast.Mult,
    ast.Div, ast.FloorDiv, ast.Mod, ast.Compare, ast.cmpop, ast.Constant, ast.Name, ast.Tuple, ast.List, ast.Load,
)  # fmt: skip


@dataclass(frozen=True)
class SweepPoint:
    """One recipe of a sweep."""

    resolved: Resolved
    """With values in place, and without the section."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """As its document says them; empty where there is no sweep."""
    repeats: int = 1
    max_running: int = 1
    """Deployments of the sweep that may be up at once."""

    @property
    def label(self) -> str:
        """For people: `speed=5 batch=x`."""
        return " ".join(f"{name}={_text(value)}" for name, value in self.params.items())


def expand(resolved: Resolved) -> list[SweepPoint]:
    """The recipes that one stands for, in the order in which they are measured; itself without a section `sweep`.

    Raises:
        InputError: the section is wrong or empty, nobody fills a placeholder, or nobody uses a parameter; says where.
    """
    said = resolved.data.get(SWEEP)
    if said is None:
        return [SweepPoint(resolved)]
    reading = _Reading(resolved, said)
    rest = {key: value for key, value in resolved.data.items() if key != SWEEP}
    numbers, points = (reading.number("repeats", MOST_REPEATS), reading.number("max_running", MOST)), []
    for row in reading.rows():
        filling = _Filling(row)
        filled = Resolved(without_null(filling.value(rest, ())), resolved.layers)
        points.append(SweepPoint(filled, row, *numbers))
        reading.check(filling)
    return points


@dataclass
class _Filling:
    """Puts the values of one point in place."""

    row: Row
    used: set[str] = field(default_factory=set)
    missed: list[tuple[Path, str]] = field(default_factory=list)

    def value(self, value: Any, path: Path) -> Any:
        if isinstance(value, dict):
            return {key: self.value(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self.value(item, (*path, index)) for index, item in enumerate(value)]
        if not isinstance(value, str):
            return value
        names = set(_MARK.findall(value))
        self.used |= names & self.row.keys()
        ours = ("port", "host") if path[:1] == ("services",) else ()  # they are told that when they start
        self.missed += [(path, name) for name in sorted(names - self.row.keys()) if name not in ours]
        if (alone := _MARK.fullmatch(value)) and alone.group(1) in self.row:
            return self.row[alone.group(1)]
        return type(value)(_MARK.sub(lambda mark: _text(self.row.get(mark.group(1), mark.group(0))), value))


class _Reading:
    """Reads the section."""

    def __init__(self, resolved: Resolved, said: Any) -> None:
        self.resolved, self.said = resolved, said if isinstance(said, dict) else {}
        self.places: dict[str, Path] = {}
        """Parameter -> where it is said."""

    def wrong(self, path: Path, sentence: str, hint: str = "") -> InputError:
        origin = self.resolved.key((SWEEP, *path))
        return fail([Problem(origin.where, f"`{dotted((SWEEP, *path))}` {sentence}", hint)])

    def number(self, word: str, most: int) -> int:
        text = str(self.said.get(word, "1"))
        if not re.fullmatch("[1-9][0-9]{0,5}", text) or int(text) > most:
            raise self.wrong((word,), f"must be a whole number from 1 to {most:,}, not {text}")
        return int(text)

    def rows(self) -> list[Row]:
        """All points, each with its values."""
        blocks = [*self.grid(), *self.zipped(), *self.listed()]
        if not blocks:
            raise self.wrong((), "has no parameters", "for example sweep: {speed: [5, 10]}")
        if (count := math.prod(map(len, blocks))) > MOST:
            raise self.wrong((), f"has {count:,} points", f"at most {MOST:,}")
        parts = itertools.product(*self.ordered(blocks))
        merged = [{name: value for one in row for name, value in one.items()} for row in parts]
        rows = [{name: row[name] for name in self.places if name in row} for row in merged]  # whatever varies first
        for path, text in self.items(("where",)):
            rows = self.fitting(rows, str(text), path)
        return rows

    def items(self, path: Path) -> list[tuple[Path, Any]]:
        """The values of a word that may have one or several, each with its place."""
        said = self.said.get(path[0], [])
        return [((*path, index), one) for index, one in enumerate(said)] if isinstance(said, list) else [(path, said)]

    def grid(self) -> Iterator[list[Row]]:
        own = {name: value for name, value in self.said.items() if name not in _WORDS}
        if own and "grid" in self.said:
            raise self.wrong((next(iter(own)),), "stands beside `grid`", "write all parameters below `grid`")
        for name, value in (own or self.mapping("grid")).items():
            yield [{name: one} for one in self.values((name,) if own else ("grid", name), value)]

    def zipped(self) -> Iterator[list[Row]]:
        columns = {name: self.values(("zip", name), value) for name, value in self.mapping("zip").items()}
        length = max(map(len, columns.values()), default=0)
        for name, column in columns.items():
            if len(column) not in (1, length):
                sentence = f"has {len(column)} values, and another has {length}"
                raise self.wrong(("zip", name), sentence, "all lists have as many, or one")
        whole = [column * (length // len(column)) for column in columns.values()]
        yield from [[dict(zip(columns, row, strict=True)) for row in zip(*whole, strict=True)]] if columns else []

    def listed(self) -> Iterator[list[Row]]:
        points = self.said.get("points")
        if points is None:
            return
        if not isinstance(points, list) or not points or not all(isinstance(one, dict) and one for one in points):
            raise self.wrong(("points",), "must be a list of mappings", "points: [{speed: 5}, {speed: 10}]")
        for name in dict.fromkeys(name for one in points for name in one):
            self.place(name, ("points", next(index for index, one in enumerate(points) if name in one), name))
        yield points

    def mapping(self, word: str) -> Row:
        found = self.said.get(word, {})
        if not isinstance(found, dict):
            raise self.wrong((word,), "must be a mapping of parameters to lists")
        return found

    def values(self, path: Path, value: Any) -> list[Any]:
        self.place(str(path[-1]), path)
        if value == [] or isinstance(value, dict):
            raise self.wrong(path, "has no values", f"a list of them: {path[-1]}: [5, 10]")
        return value if isinstance(value, list) else [value]

    def place(self, name: str, path: Path) -> None:
        if name in self.places:
            raise self.wrong(path, f"is said a second time, after `{dotted((SWEEP, *self.places[name]))}`")
        self.places[name] = path

    def ordered(self, blocks: list[list[Row]]) -> list[list[Row]]:
        """What `order` names first varies slowest."""
        names = [str(name) for _, name in self.items(("order",))]
        for name in names:
            if name not in self.places:
                raise self.wrong(("order",), f"names {name!r}, which is not a parameter", self.near(name))
        return sorted(blocks, key=lambda block: min([names.index(one) for one in block[0] if one in names] or [MOST]))

    def near(self, name: str) -> str:
        return did_you_mean(name, self.places) or f"there: {', '.join(self.places)}"

    def fitting(self, rows: list[Row], text: str, path: Path) -> list[Row]:
        """The points for which a comparison is so; it has parameters and values, and calls nothing."""
        names = {"true": True, "false": False}
        known = [plain(row) for row in rows]
        try:
            tree = ast.parse(text.strip(), mode="eval")
            for node in ast.walk(tree):
                if isinstance(node, ast.Name) and node.id not in {*self.places, *names}:
                    raise self.wrong(path, f"names {node.id!r}, which is not a parameter", self.near(node.id))
                if not isinstance(node, _COMPARING):
                    raise self.wrong(path, f"compares parameters only, not {ast.unparse(node)!r}")
            asked = compile(tree, SWEEP, "eval")
            found = [eval(asked, {"__builtins__": {}}, names | one) for one in known]  # noqa: S307 - see above
        except (SyntaxError, NameError, TypeError, ZeroDivisionError, RecursionError, ValueError) as error:
            raise self.wrong(path, f"cannot be asked: {text!r}: {error}", f"there: {', '.join(self.places)}") from error
        if not any(found):
            raise self.wrong(path, f"leaves no point of {len(rows):,}: {text!r}")
        return [*itertools.compress(rows, found)]

    def check(self, filling: _Filling) -> None:
        """Let pass what has a value for each placeholder, and a placeholder for each value."""
        found = []
        for path, name in filling.missed:
            at = self.resolved.origin(path)
            sentence = f"nobody fills '{{{name}}}' in `{dotted(path)}`"
            found.append(Problem(at.where, sentence, self.near(name), (at.line, at.column)))
        for name in () if found else (name for name in filling.row if name not in filling.used):
            at, hint = self.resolved.key((SWEEP, *self.places[name])), f"write '{{{name}}}' where it goes, in quotes"
            found.append(Problem(at.where, f"nobody uses the parameter {name!r}", hint, (at.line, at.column)))
        if found:
            raise fail(found)


def plain(row: Mapping[str, Any]) -> Row:
    """Values as YAML means them."""
    return {key: plain_value(one) if isinstance(one, Plain) else one for key, one in row.items()}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)

"""Charts as SVG: lines with marks, axes with round numbers, names at the ends of lines; bars in a terminal. Pure.

Colours, fonts and dashes are classes of the page's style, so that one picture serves light and dark. Lines differ in
lightness and in the shape of their marks too, for those who do not see the colours.
"""

from __future__ import annotations

import html
import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from remuda.base.units import show_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

COLOURS: Final = 8
_TOP: Final = 14
_BOTTOM: Final = 44
_LEFT: Final = 58
#: Of names in a column, and of the larger ones beside lines; where the font is a wide one.
_LETTER: Final = 7.5
_WIDE_LETTER: Final = 8.0
_LINE: Final = 16.0
_SIZE: Final = 4.2
#: Names beside lines that a picture has room for; with more, the key has them all.
NAMES: Final = 12
_LOADS: Final = 24
#: Places of a line that are tried for its name.
_TRIED: Final = 12

#: Left, top, right, bottom.
Box: TypeAlias = tuple[float, float, float, float]


@dataclass(frozen=True)
class ChartMark:
    """One measurement.

    Attributes:
        x: as on the axis.
        y: the same.
        tip: what it says when somebody points at it.
        is_hollow: suspect.
    """

    x: float
    y: float
    tip: str = ""
    is_hollow: bool = False


@dataclass(frozen=True)
class Line:
    """A series.

    Attributes:
        name: stands at its end; empty for none.
        number: of its colour and shape.
        path: what is joined by the line; its name stands at the last of them.
        marks: what is measured; without any, the path is.
        is_dashed: the upper percentile of a pair.
    """

    name: str
    number: int
    path: Sequence[tuple[float, float]]
    marks: Sequence[ChartMark]
    is_dashed: bool = False

    @property
    def places(self) -> Sequence[tuple[float, float]]:
        """What has to be on the paper."""
        return [(mark.x, mark.y) for mark in self.marks] or self.path


@dataclass(frozen=True)
class Chart:
    """A picture.

    Attributes:
        title: what it shows.
        x: label of the axis, with its unit.
        y: the same.
        lines: series.
        is_log_x: doublings are equally far apart.
        is_log_y: tenfolds are.
        frontier: a broad line behind all others, from left to right.
        is_named_inside: names stand at the ends of their lines, not in a column at the right.
    """

    title: str
    x: str
    y: str
    lines: Sequence[Line]
    is_log_x: bool = False
    is_log_y: bool = False
    frontier: Sequence[tuple[float, float]] = ()
    is_named_inside: bool = False


@dataclass(frozen=True)
class Scale:
    """From numbers to places on the paper.

    Attributes:
        low: number at `start`.
        high: number at `end`.
        start: on the paper.
        end: the same.
        is_log: equal ratios are equally far apart.
    """

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def at(self, value: float) -> float:
        """Where it is."""
        low, high = (math.log(self.low), math.log(self.high)) if self.is_log else (self.low, self.high)
        place = math.log(max(value, self.low)) if self.is_log else value
        return self.start + (self.end - self.start) * (place - low) / ((high - low) or 1.0)


def draw(chart: Chart, width: int, height: int, *, with_tips: bool = True, kind: str = "") -> str:
    """The picture; `kind` is a class of its own."""
    named = [line for line in chart.lines if line.name]
    if len(named) > NAMES:
        named = []
    room = min(max((len(line.name) for line in named), default=0), int(width * 0.3 / _LETTER))
    right = width - 14 - (room * _LETTER + 14 if named and not chart.is_named_inside else 0)
    places = [place for line in chart.lines for place in line.places]
    x = _scale([at for at, _ in places], _LEFT, right, is_log=chart.is_log_x, tight=True)
    y = _scale([at for _, at in places], height - _BOTTOM, _TOP + 16, is_log=chart.is_log_y)
    parts = [
        f'<svg class="chart {kind}" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(chart.title)}">',
        *_axes(chart, x, y, width),
    ]
    if len(chart.frontier) > 1:
        parts.append(f'<path class="frontier" d="{_path(chart.frontier, x, y)}"/>')
    parts += [
        f'<path class="line c{line.number % COLOURS}{_dash(line)}" d="{_path(line.path, x, y)}"/>'
        for line in chart.lines
        if len(line.path) > 1
    ]
    for line in chart.lines:
        parts += [_mark(line, mark, x, y, with_tip=with_tips) for mark in line.marks]
    parts += _beside(named, x, y) if chart.is_named_inside else _ends(named, x, y, room)
    return "".join([*parts, "</svg>"])


def bar(share: float, width: int = 10) -> str:
    """A share from 0 to 1 as so many characters of a terminal, filled to an eighth of one."""
    full, rest = divmod(round(min(1.0, max(0.0, share)) * width * 8), 8)
    return ("█" * full + ("▏▎▍▌▋▊▉"[rest - 1] if rest else "")).ljust(width)


def spark(shares: Iterable[float]) -> str:
    """Shares from 0 to 1 as bars of eight heights, a character each; blank: none."""
    return "".join(" " if share < 0.01 else "▁▂▃▄▅▆▇█"[min(7, int(share * 8))] for share in shares)


def escape(text: str) -> str:
    """For HTML, inside and outside of attributes."""
    return html.escape(text, quote=True)


def shape_of(number: int) -> int:
    """Which of four shapes the marks of a series have; series of the same colour have different ones."""
    return (number + number // COLOURS) % 4


def swatch(number: int) -> str:
    """The mark and colour of a series, for a key."""
    return (
        f'<svg class="swatch" viewBox="0 0 28 12" aria-hidden="true"><path class="line c{number % COLOURS}" '
        f'd="M1 6H27"/>{_shape(number, 14, 6, f"mark c{number % COLOURS}")}</svg>'
    )


def _dash(line: Line) -> str:
    return " dashed" if line.is_dashed else ""


def _scale(values: Sequence[float], start: float, end: float, *, is_log: bool, tight: bool = False) -> Scale:
    """With all values on it, and a little air; from zero where it is linear."""
    if not values:
        return Scale(0.0, 1.0, start, end)
    low, high = min(values), max(values)
    if is_log and low > 0:
        air = 1.12 if tight else 1.25
        return Scale(low / air, high * air, start, end, is_log=True)
    return Scale(0.0, (high or 1.0) * 1.06, start, end)


def ticks(scale: Scale, most: int) -> list[float]:
    """Round numbers inside a scale, at most that many or so."""
    if not scale.is_log:
        raw = (scale.high - scale.low) / max(1, most)
        size = 10.0 ** math.floor(math.log10(raw))
        step = next(size * part for part in (1, 2, 5, 10) if size * part >= raw * 0.999)
        return [step * number for number in range(int(scale.high / step) + 1)]
    for steps in ((1, 2, 5), (1, 3), (1,)):
        first, last = math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high))
        found = [part * 10.0**power for power in range(first, last + 1) for part in steps]
        found = [value for value in found if scale.low <= value <= scale.high]
        if len(found) <= most:
            break
    return found


def doublings(scale: Scale, values: Sequence[float], most: int) -> list[float]:
    """The loads themselves where they are few, as far as there is room for them; else round numbers."""
    own = sorted(set(values))
    if not scale.is_log or len(own) > _LOADS:
        return ticks(scale, most)
    kept: list[float] = []
    for value in own:
        if not kept or scale.at(value) - scale.at(kept[-1]) > 9 + 9 * len(show(value)):
            kept.append(value)
    return kept


def show(value: float) -> str:
    """A number of an axis: `0.5`, `1,200`, `35k`."""
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    if value >= 10_000:
        return f"{value / 1e3:g}k"
    return show_number(value)


def _axes(chart: Chart, x: Scale, y: Scale, width: int) -> list[str]:
    bottom, right = y.start, x.end
    parts: list[str] = []
    for value in ticks(y, 5):
        at = y.at(value)
        parts.append(f'<path class="grid" d="M{_LEFT} {at:.1f}H{right:.0f}"/>')
        parts.append(f'<text class="tick" x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{show(value)}</text>')
    most = max(4, int((right - _LEFT) / 70))
    for value in doublings(x, [place for line in chart.lines for place, _ in line.path], most):
        at = x.at(value)
        parts.append(f'<path class="axis" d="M{at:.1f} {bottom:.0f}v4"/>')
        parts.append(f'<text class="tick" x="{at:.1f}" y="{bottom + 18:.0f}" text-anchor="middle">{show(value)}</text>')
    parts.append(f'<path class="axis" d="M{_LEFT} {bottom:.0f}H{right:.0f}"/>')
    middle = (_LEFT + right) / 2
    parts.append(
        f'<text class="label" x="{middle:.0f}" y="{bottom + 38:.0f}" text-anchor="middle">{escape(chart.x)}</text>'
    )
    parts.append(f'<text class="label" x="{min(8, width)}" y="{_TOP}">{escape(chart.y)}</text>')
    return parts


def _path(places: Sequence[tuple[float, float]], x: Scale, y: Scale) -> str:
    return "M" + "L".join(f"{x.at(px):.1f} {y.at(py):.1f}" for px, py in places)


def _mark(line: Line, mark: ChartMark, x: Scale, y: Scale, *, with_tip: bool) -> str:
    kind = (
        f"mark c{line.number % COLOURS}" + (" hollow" if mark.is_hollow else "") + (" upper" if line.is_dashed else "")
    )
    return _shape(line.number, x.at(mark.x), y.at(mark.y), kind, mark.tip if with_tip else "")


def _shape(number: int, x: float, y: float, kind: str, tip: str = "") -> str:
    """A circle, square, diamond or triangle."""
    title = f"<title>{escape(tip)}</title>" if tip else ""
    size, form = _SIZE, shape_of(number)
    if form == 0:
        return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{size}">{title}</circle>'
    if form == 1:
        path = f"M{x - size:.1f} {y - size:.1f}h{2 * size:.1f}v{2 * size:.1f}h-{2 * size:.1f}z"
    elif form == 2:
        far = size * 1.35
        path = f"M{x:.1f} {y - far:.1f}l{far:.1f} {far:.1f}l-{far:.1f} {far:.1f}l-{far:.1f} -{far:.1f}z"
    else:
        far = size * 1.25
        path = f"M{x:.1f} {y - far:.1f}l{far:.1f} {2 * far:.1f}h-{2 * far:.1f}z"
    return f'<path class="{kind}" d="{path}">{title}</path>'


def _ends(named: Sequence[Line], x: Scale, y: Scale, room: int) -> list[str]:
    """Names at the right, as near to the ends of their lines as they can be without touching each other."""
    if not named:
        return []
    ends = [(line, x.at(line.path[-1][0]), y.at(line.path[-1][1])) for line in named]
    ends.sort(key=lambda end: (end[2], -end[1]))
    places = spread([at for _, _, at in ends], y.end - 4, y.start)
    parts: list[str] = []
    for (line, from_x, from_y), at in zip(ends, places, strict=True):
        if x.end + 6 - from_x > 14 or abs(at - from_y) > 5:
            parts.append(f'<path class="leader" d="M{from_x + 7:.1f} {from_y:.1f}L{x.end + 6:.1f} {at:.1f}"/>')
        kind = f"name c{line.number % COLOURS}"
        parts.append(
            f'<text class="{kind}" x="{x.end + 10:.1f}" y="{at + 4:.1f}">{escape(_cut(line.name, room))}</text>'
        )
    return parts


def _beside(named: Sequence[Line], x: Scale, y: Scale) -> list[str]:
    """Names next to their lines."""
    paths = [[(x.at(px), y.at(py)) for px, py in line.path] for line in named]
    paper = (x.start, y.end - 16, x.end, y.start)
    names = [_cut(line.name, int((x.end - x.start) * 0.6 / _WIDE_LETTER)) for line in named]
    return [
        f'<text class="name halo c{line.number % COLOURS}" x="{left:.1f}" y="{base:.1f}">{escape(name)}</text>'
        for line, name, (left, base) in zip(named, names, beside(names, paths, paper, _WIDE_LETTER), strict=True)
    ]


def _cut(name: str, room: int) -> str:
    return name if len(name) <= room else f"{name[: max(1, room - 1)]}…"


def beside(
    names: Sequence[str], paths: Sequence[Sequence[tuple[float, float]]], paper: Box, letter: float
) -> list[tuple[float, float]]:
    """Where names stand so that they cover as little as possible: near a place of their line, best near its last.

    Args:
        names: of lines.
        paths: their places, y downwards.
        paper: what names have to stay on: left, top, right, bottom.
        letter: its width.

    Returns:
        Left end of the base line of each.
    """
    inked = [place for path in paths for place in _along(path)]
    taken: list[Box] = []
    for name, path in zip(names, paths, strict=True):
        tried = _around(path, letter * len(name), letter)
        costs = [
            1000.0 * _is_off(box, paper) + 100.0 * sum(_touch(box, other) for other in taken) + _covered(box, inked)
            for box in tried
        ]
        # Of equal ones the first: at the end of the line, above it, to its right.
        costs = [cost + 0.2 * number for number, cost in enumerate(costs)]
        taken.append(tried[costs.index(min(costs))])
    return [(box[0], box[3] - 0.36 * letter) for box in taken]


def _around(path: Sequence[tuple[float, float]], wide: float, letter: float) -> list[Box]:
    """Where a name could stand: right and left of the last places of a line, above and below."""
    found: list[Box] = []
    for x, y in reversed(path[-_TRIED:]):
        for left in (x + letter, x - letter - wide):
            found += [
                (left, bottom - 1.8 * letter, left + wide, bottom) for bottom in (y - 0.64 * letter, y + 2.5 * letter)
            ]
    return found


def _is_off(box: Box, paper: Box) -> bool:
    return box[0] < paper[0] or box[1] < paper[1] or box[2] > paper[2] or box[3] > paper[3]


def _covered(box: Box, inked: Sequence[tuple[float, float]]) -> int:
    left, top, right, bottom = box[0] - _SIZE, box[1] - _SIZE, box[2] + _SIZE, box[3] + _SIZE
    return sum(1 for x, y in inked if left < x < right and top < y < bottom)


def _touch(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _along(path: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """A line as a row of dots."""
    dots = [*path]
    for (ax, ay), (bx, by) in itertools.pairwise(path):
        dots += [(ax + (bx - ax) * part / 10, ay + (by - ay) * part / 10) for part in range(1, 10)]
    return dots


def spread(wanted: Sequence[float], top: float, bottom: float, gap: float = _LINE) -> list[float]:
    """Places in ascending order, `gap` apart, as near to those wanted (ascending) as that allows."""
    places: list[float] = []
    for at in wanted:
        places.append(max(at, top, places[-1] + gap if places else top))
    over = places[-1] - bottom if places else 0.0
    for number in range(len(places) - 1, -1, -1):
        if over <= 0:
            break
        limit = bottom if number == len(places) - 1 else places[number + 1] - gap
        places[number] = max(top, min(places[number], limit))
    return places

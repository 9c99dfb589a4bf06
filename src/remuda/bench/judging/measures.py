"""From rows to numbers. Pure; every definition stands here once, and `DEFINITIONS` goes into each point.

Times are seconds. A percentile is read off all samples (nearest rank above), and is None where there are too few
(`load.NEEDED`): a number that cannot be known is not printed.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from remuda.bench.load import NEEDED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from remuda.bench.generator.reading import RequestRow
    from remuda.bench.load import Load

#: Rises when a definition changes: points of different versions are not compared.
VERSION: Final = 2
DEFINITIONS: Final = {
    "window": "closed loop: from the moment when as many requests as are in flight have finished once, until the last "
    "one was issued; open loop: from twice the median e2e on, until the last arrival",
    "measured": "requests that were due and finished inside the window",
    "ttft": "first piece with content (text, reasoning or a call of a tool) minus scheduled arrival; in a closed loop "
    "minus the moment of sending",
    "tpot": "(last piece with content - first) / (output tokens - tokens made up to the first read), by usage in each "
    "piece where the server has it, else by the first read's share of the text",
    "icl": "gap between reads that held content",
    "e2e": "last piece with content minus scheduled arrival",
    "tokens": "from the answer's `usage`, never from the text",
    "output_tok_s": "output tokens delivered inside the window / its length",
    "total_tok_s": "output_tok_s plus input tokens of measured requests / the window's length",
    "tok_s_user": "output tokens / (last piece with content - scheduled arrival), of each request",
    "intvty": "1 / median tpot, as InferenceX has it",
    "goodput_req_s": "measured requests that meet every bound / the window's length",
    "goodput_share": "those / all requests that were due in the window; errors and timeouts included",
}
_RESAMPLES: Final = 1000
_MOST_PICKS: Final = 3_000_000
_MOST_BLOCKS: Final = 200


@dataclass(frozen=True)
class Window:
    """The part of a load that counts, ns of CLOCK_MONOTONIC."""

    start: int
    end: int
    is_steady: bool = True
    """False where the load was too short for ramps to be left out: then it is all of it."""

    @property
    def seconds(self) -> float:
        """Its length."""
        return max(0.0, (self.end - self.start) / 1e9)

    def holds(self, at: int) -> bool:
        """Whether a moment is inside."""
        return self.start <= at <= self.end


def window_of(rows: Sequence[RequestRow], load: Load) -> Window:
    """See `DEFINITIONS`."""
    due = sorted(row.sched for row in rows)
    ended = sorted(row.ended for row in rows if row.is_ok)
    if not due:
        return Window(0, 0, is_steady=False)
    whole = Window(due[0], max(row.ended for row in rows), is_steady=False)
    if load.is_open:
        took = sorted(row.ended - row.sched for row in rows if row.is_ok)
        start = due[0] + 2 * took[len(took) // 2] if took else due[-1]
    else:
        start = ended[load.concurrency - 1] if len(ended) > load.concurrency else due[-1]
    found = Window(start, due[-1])
    return found if sum(1 for row in rows if is_measured(row, found)) >= 2 else whole


def is_measured(row: RequestRow, window: Window) -> bool:
    """Whether it was due and ended inside the window."""
    return window.start <= row.sched and row.ended <= window.end


def ttft(row: RequestRow) -> float | None:
    """Seconds; None where the answer was not streamed, or had no content."""
    return (row.first - row.sched) / 1e9 if row.first else None


def tpot(row: RequestRow) -> float | None:
    """Seconds a token; None where all tokens came in one read."""
    rest = row.n_out - row.n_first
    return (row.last - row.first) / 1e9 / rest if row.first and rest > 0 and row.last > row.first else None


def e2e(row: RequestRow) -> float | None:
    """Seconds; None where nothing came."""
    return ((row.last or row.ended) - row.sched) / 1e9 if row.is_ok else None


def tok_s_user(row: RequestRow) -> float | None:
    """Tokens a second that its user sees."""
    took = e2e(row)
    return row.n_out / took if took and row.n_out > 0 else None


def gaps(row: RequestRow) -> list[float]:
    """Seconds between reads that held content."""
    at = sorted(set(row.chunks))
    return [(after - before) / 1e6 for before, after in itertools.pairwise(at)]


def rank(ordered: Sequence[float], share: float) -> float:
    """The value below or at which that share of sorted samples lies (nearest rank)."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def spread(values: Sequence[float], *, needed: Mapping[str, int] = NEEDED) -> dict[str, float | int | None]:
    """Mean, deviation, bounds and percentiles; None where there are too few."""
    ordered = sorted(values)
    count = len(ordered)
    found: dict[str, float | int | None] = {
        "n": count,
        "mean": statistics.fmean(ordered) if count else None,
        "std": statistics.stdev(ordered) if count > 1 else None,
        "min": ordered[0] if count else None,
        "max": ordered[-1] if count else None,
    }
    for name, least in needed.items():
        found[name] = rank(ordered, int(name[1:]) / 100) if count >= least else None
    return found


def intervals(
    samples: Sequence[tuple[int, float]], block_ns: int, *, seed: int = 0, needed: Mapping[str, int] = NEEDED
) -> dict[str, list[float]]:
    """95 % intervals of the mean and of each percentile, by bootstrap over blocks of time.

    Requests that run beside each other are not independent, so what is drawn again and again are the blocks, not the
    requests.

    Args:
        samples: (when, value).
        block_ns: length of a block; the median e2e.
        seed: of the draws.
        needed: samples from which a percentile is known.

    Returns:
        Lower and upper bound by name; nothing with fewer than five blocks.
    """
    if len(samples) < 2:
        return {}
    first = min(at for at, _ in samples)
    blocks: dict[int, list[float]] = {}
    for at, value in samples:
        blocks.setdefault((at - first) // max(1, block_ns), []).append(value)
    groups = list(blocks.values())
    if len(groups) < 5:
        return {}
    draw = random.Random(seed)
    count = max(200, min(_RESAMPLES, _MOST_PICKS // len(samples)))
    names = [name for name, least in needed.items() if len(samples) >= least]
    found: dict[str, list[float]] = {name: [] for name in ("mean", *names)}
    for _ in range(count):
        picked = sorted([value for group in draw.choices(groups, k=len(groups)) for value in group])
        found["mean"].append(sum(picked) / len(picked))
        for name in names:
            found[name].append(rank(picked, int(name[1:]) / 100))
    return {name: [rank(sorted(values), 0.025), rank(sorted(values), 0.975)] for name, values in found.items()}


def delivered(rows: Sequence[RequestRow], window: Window) -> float:
    """Output tokens that came inside the window, also of requests that began or ended outside."""
    total = 0.0
    for row in rows:
        if row.n_out < 1 or not row.ended:
            continue
        if not row.chunks:
            total += row.n_out if window.holds(row.ended) else 0
        elif window.start <= row.first and row.last <= window.end:
            total += row.n_out
        else:
            low, high = (window.start - row.sent) // 1000, (window.end - row.sent) // 1000
            total += row.n_out * sum(1 for at in row.chunks if low <= at <= high) / len(row.chunks)
    return total


def rate_intervals(
    rows: Sequence[RequestRow], window: Window, block_ns: int, goodput: Mapping[str, float]
) -> dict[str, list[float]]:
    """95 % intervals of what comes a second, by bootstrap over blocks of time.

    Tokens are spread evenly between the first and the last piece of their answer, which is exact enough for a block.

    Returns:
        Lower and upper bound by name; nothing with fewer than five blocks.
    """
    length = window.end - window.start
    count = min(_MOST_BLOCKS, length // max(1, block_ns))
    if count < 5:
        return {}
    width = length / count
    found: dict[str, list[float]] = {name: [0.0] * count for name in ("output_tok_s", "req_s")}
    if goodput:
        found["goodput_req_s"] = [0.0] * count
    for row in rows:
        if not row.ended:
            continue
        at = int((row.ended - window.start) / width)
        if row.is_ok and 0 <= at < count:
            found["req_s"][at] += 1
            if goodput and is_measured(row, window) and meets(row, goodput):
                found["goodput_req_s"][at] += 1
        if row.n_out > 0:
            begin, end = (row.first, max(row.last, row.first + 1)) if row.chunks else (row.ended, row.ended + 1)
            begin_at, end_at = (begin - window.start) / width, (end - window.start) / width
            for block in range(max(0, math.floor(begin_at)), min(count, math.floor(end_at) + 1)):
                part = min(end_at, block + 1) - max(begin_at, block)
                found["output_tok_s"][block] += row.n_out * part / (end_at - begin_at)
    return {name: _interval_of_mean(sums, width / 1e9) for name, sums in found.items()}


def _interval_of_mean(sums: Sequence[float], seconds: float) -> list[float]:
    draw = random.Random(0)
    means = sorted(statistics.fmean(draw.choices(sums, k=len(sums))) / seconds for _ in range(_RESAMPLES))
    return [rank(means, 0.025), rank(means, 0.975)]


def in_flight(rows: Sequence[RequestRow], window: Window) -> float:
    """Mean number of requests in flight inside the window, weighted by time."""
    if window.seconds <= 0:
        return 0.0
    busy = sum(max(0, min(row.ended, window.end) - max(row.sent, window.start)) for row in rows if row.sent)
    return busy / 1e9 / window.seconds


def meets(row: RequestRow, bounds: Mapping[str, float]) -> bool:
    """Whether a request meets every bound (`ttft`, `tpot`, `e2e`; seconds)."""
    known = {"ttft": ttft, "tpot": tpot, "e2e": e2e}
    for name, bound in bounds.items():
        value = known[name](row)
        if value is None and name == "tpot" and row.n_out == 1:
            continue
        if value is None or value > bound:
            return False
    return row.is_ok


def measure(rows: Sequence[RequestRow], load: Load, goodput: Mapping[str, float]) -> tuple[Window, dict[str, Any]]:
    """All numbers of a point: `metrics` of its document."""
    window = window_of(rows, load)
    mine = [row for row in rows if is_measured(row, window) and row.is_ok]
    due = [row for row in rows if window.holds(row.sched)]
    seconds = window.seconds
    found: dict[str, Any] = {
        "requests": len(rows), "measured": len(mine), "failed": sum(1 for row in rows if not row.is_ok),
        "window_s": seconds, "in_flight": in_flight(rows, window),
        "input_tokens": sum(max(0, row.n_in) for row in mine), "output_tokens": sum(max(0, row.n_out) for row in mine),
    }  # fmt: skip
    longest = [value for row in mine if (value := e2e(row)) is not None]
    block = int(statistics.median(longest) * 1e9) if longest else 1
    for name, of in (("ttft", ttft), ("tpot", tpot), ("e2e", e2e), ("tok_s_user", tok_s_user)):
        samples = [(row.sched, value) for row in mine if (value := of(row)) is not None]
        found[name] = {**spread([value for _, value in samples]), "ci95": intervals(samples, block)}
    found["icl"] = spread([gap for row in mine for gap in gaps(row)])
    late = [(row.sent - row.sched) / 1e9 for row in rows if row.sent and row.is_ok]
    found["queued_at_client"] = spread(late)
    if seconds > 0:
        out = delivered(rows, window) / seconds
        found["output_tok_s"] = out
        found["total_tok_s"] = out + found["input_tokens"] / seconds
        found["req_s"] = len([row for row in rows if row.is_ok and window.holds(row.ended)]) / seconds
        if goodput:
            good = sum(1 for row in due if is_measured(row, window) and meets(row, goodput))
            asked = sum(1 for row in due if is_measured(row, window) or not row.is_ok)
            found["goodput_req_s"] = good / seconds
            found["goodput_share"] = good / asked if asked else 0.0
        found["ci95"] = rate_intervals(rows, window, block, goodput)
    middle = found["tpot"]["p50"]
    found["intvty"] = 1.0 / middle if middle else None
    return window, found

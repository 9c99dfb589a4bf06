"""A load that went well, made up: rows to change in tests."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Any

from remuda.bench.counters import Counters
from remuda.bench.generator.load_workers import Punctuality
from remuda.bench.generator.reading import RequestRow
from remuda.bench.judging.measures import in_flight, window_of
from remuda.bench.judging.rules import RuleInputs, judge
from remuda.bench.load import Cache, Load

MS = 1_000_000
FIRST, EACH, TOKENS, INPUT = 50, 5, 16, 100
LOAD = Load(INPUT, TOKENS, concurrency=4)
OPEN = Load(INPUT, TOKENS, concurrency=0, rate=20.0, arrival="constant")


def row_of(index: int, sched: int, *, first: float = FIRST, late: float = 0.0, n_out: int = TOKENS) -> RequestRow:
    """A request that was due at `sched` (ns), with its first token `first` ms after it was sent, `late` ms later."""
    sent = sched + int(late * MS)
    chunks = [int(first * 1000) + n * EACH * 1000 for n in range(n_out)]
    last = sent + (chunks[-1] * 1000 if chunks else int(first * MS))
    return RequestRow(
        index, sched=sched, sent=sent, first=sent + chunks[0] * 1000 if chunks else 0, last=last if chunks else 0,
        ended=last + MS, asked_in=INPUT, asked_out=TOKENS, n_in=INPUT, n_out=n_out, cached=0, status=200,
        finish="length", chunks=array("q", chunks),
        text="one two three four five six seven eight nine" if index == 0 else "",
    )  # fmt: skip


def closed(count: int = 1200) -> list[RequestRow]:
    """Four requests in flight at any time; the four do not end in the same moment."""
    at = [1_000 * MS + slot * 31 * MS for slot in range(LOAD.concurrency)]
    rows = []
    for index in range(count):
        slot = index % LOAD.concurrency
        rows.append(row_of(index, at[slot], first=FIRST + index % 7))
        at[slot] = rows[-1].ended + MS // 10
    return rows


def arriving(count: int = 800) -> list[RequestRow]:
    """Twenty a second."""
    return [row_of(index, 1_000 * MS + index * 50 * MS, first=FIRST + index % 7) for index in range(count)]


def evidence(rows: list[RequestRow], load: Load = LOAD, **changes: Any) -> RuleInputs:
    """What rules see of them when everything else is in order."""
    window = window_of(rows, load)
    made = sum(max(0, row.n_out) for row in rows) + 7
    values: dict[str, Any] = {
        "load": load, "rows": rows, "warm": [row_of(-1, 0, n_out=7)], "window": window,
        "metrics": {"in_flight": in_flight(rows, window)}, "client": Punctuality(cores=2), "model": "m",
        "served": (("m",), ("m",)), "forced": True, "cache": Cache(), "template": 0,
        "counters": (Counters("vllm", 100, instances=("a",)), Counters("vllm", 100 + made, instances=("a",))),
        "workers": (2, 2, 2), "retries": 0, "identity": ("v1", "v1"),
    }  # fmt: skip
    return RuleInputs(**{**values, **changes})


def states(seen: RuleInputs) -> dict[str, str]:
    """State by rule."""
    return {check.code: check.state for check in judge(seen)}


def changed(rows: list[RequestRow], share: float, **fields: Any) -> list[RequestRow]:
    """That share of them, spread evenly, with other fields."""
    step = round(1 / share)
    return [replace(row, **fields) if n % step == step - 1 else row for n, row in enumerate(rows)]

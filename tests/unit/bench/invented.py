"""Points that nobody measured."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import orjson

from remuda.bench.cost import Price, cost_of
from remuda.bench.judging.verdict import VALID, Check
from remuda.bench.load import Load
from remuda.bench.point import Hardware, Point

if TYPE_CHECKING:
    from pathlib import Path


def spread(middle: float, share: float = 0.02) -> dict[str, Any]:
    """As `measures.spread`, with intervals of that share around each number."""
    found: dict[str, Any] = {"p50": middle, "p90": middle * 1.3, "p99": middle * 2.0}
    return {
        **found,
        "n": 400,
        "ci95": {name: [value * (1 - share), value * (1 + share)] for name, value in found.items()},
    }


def point(
    name: str = "a",
    repeat: int = 1,
    *,
    load: Load | None = None,
    ttft: float = 0.1,
    tpot: float = 0.02,
    rate: float = 500.0,
    gpus: int = 0,
    price: Price | None = None,
    verdict: str = VALID,
    checks: tuple[Check, ...] = (),
    with_intervals: bool = True,
    **said: Any,
) -> Point:
    """One; `name` decides its id."""
    load = load or Load(concurrency=8)
    metrics: dict[str, Any] = {
        "measured": 400, "requests": 420, "window_s": 36.0, "in_flight": float(load.concurrency), "ttft": spread(ttft),
        "tpot": spread(tpot), "e2e": spread(ttft + tpot * load.osl), "tok_s_user": spread(1 / tpot),
        "output_tok_s": rate, "total_tok_s": rate * 5, "req_s": rate / load.osl,
    }  # fmt: skip
    if with_intervals:
        metrics["ci95"] = {key: [metrics[key] * 0.98, metrics[key] * 1.02] for key in ("output_tok_s", "req_s")}
    else:
        for key in ("ttft", "tpot", "e2e"):
            metrics[key].pop("ci95")
    given = {
        "source": "remuda", "endpoint": "http://host:8000", "model": "org/model", "engine": "vllm 0.32",
        "started_at": 1.79e9 + repeat, **said,
    }  # fmt: skip
    return Point(
        id=hashlib.sha256(name.encode()).hexdigest(), repeat=repeat, load=load, metrics=metrics, checks=checks,
        verdict=verdict, hardware=Hardware(gpus, price.type if price else ""), cost=cost_of(metrics, gpus, price),
        **given,
    )  # fmt: skip


def keep(points: list[Point], home: Path) -> None:
    """Store them as a benchmark in that state directory would have."""
    for one in points:
        folder = home / "bench" / f"{one.id[:16]}-{one.repeat}"
        folder.mkdir(parents=True)
        (folder / "point.json").write_bytes(orjson.dumps(one.to_json()))

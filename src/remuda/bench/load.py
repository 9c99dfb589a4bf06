"""What is asked of an endpoint: how many requests, how long, when. Pure."""

from __future__ import annotations

import hashlib
import math
import random
import statistics
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self

import orjson

from remuda.base.errors import InputError
from remuda.wire.fields import known

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.bench.generator.trace import Trace

#: Finished requests from which a percentile may be printed (rule V12).
NEEDED: Final = {"p50": 10, "p90": 30, "p95": 60, "p99": 300}
#: A point without a bound of its own ends after this long, whatever it has measured.
AUTO_LIMIT_S: Final = 300.0


@dataclass(frozen=True)
class Auto:
    """When a point without a bound of its own has measured enough. No part of the load: it asks for the same.

    Attributes:
        window_s: least length of its window, seconds.
        e2e_times: the same, in median latencies of a request.
        requests: least number of measured requests.
    """

    window_s: float = 30.0
    e2e_times: float = 10.0
    requests: int = NEEDED["p99"]

    @property
    def limit_s(self) -> float:
        """When it ends at the latest, seconds after its start."""
        return max(AUTO_LIMIT_S, 2 * self.window_s)

    def open_seconds(self, load: Load) -> float:
        """How long an open loop issues requests: its arrivals are drawn before it starts."""
        return min(self.limit_s, max(self.window_s * 1.5, 1.2 * self.requests / load.rate))


DEFAULT_AUTO: Final = Auto()


@dataclass(frozen=True)
class Cache:
    """What prompts have in common.

    Attributes:
        kind: `cold` (nothing), `warm` (the warm-up has sent all of them), `shared` (a common beginning).
        share: of the input tokens that is common, 0 to 1; 1 for `warm`.
    """

    kind: str = "cold"
    share: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `cold`, `warm` or `shared:0.3`.

        Raises:
            InputError: it is none of these.
        """
        kind, _, share = text.strip().partition(":")
        try:
            part = float(share) if share else 0.0
        except ValueError:
            part = -1.0
        if kind == "shared" and 0.0 < part < 1.0:
            return cls(kind, part)
        if kind in ("cold", "warm") and not share:
            return cls(kind, 1.0 if kind == "warm" else 0.0)
        raise InputError(f"{text!r} is not a cache state", hint="write cold, warm or shared:0.3", where="--cache")

    def __str__(self) -> str:
        return f"{self.kind}:{self.share:g}" if self.kind == "shared" else self.kind


@dataclass(frozen=True)
class Load:
    """One point: the load that an endpoint is put under.

    Closed loop: `concurrency` requests are in flight at any time. Open loop: requests arrive at `rate` a second,
    whatever happens to the ones before; `concurrency` then bounds how many are in flight (0: no bound).

    Fields as `specs.benchmark.BenchmarkSpec` has them; durations in seconds.

    Attributes:
        concurrency: requests in flight.
        rate: requests a second; `inf` for all at once; 0 for a closed loop.
        arrival: as there, or `trace:DIGEST` of a record.
        requests: how many are issued; 0 where time decides. With a `duration_s` of 0, too: until the window is long
            enough and holds enough requests (`Auto`).
        extra_body: JSON text.
    """

    isl: int = 1024
    osl: int = 128
    range_ratio: float = 1.0
    concurrency: int = 1
    rate: float = 0.0
    arrival: str = "poisson"
    requests: int = 0
    duration_s: float = 0.0
    warmup: int = -1
    timeout_s: float = 600.0
    cache: str = "cold"
    stream: bool = True
    api: str = "chat"
    seed: int = 0
    extra_body: str = "{}"
    burstiness: float = 1.0

    @property
    def is_open(self) -> bool:
        """Whether arrivals follow a schedule."""
        return self.rate > 0

    @property
    def label(self) -> str:
        """What a table calls it: `c=8`, `10/s`, `trace 3.1/s`."""
        if not self.is_open:
            return f"c={self.concurrency}"
        rate = "inf" if math.isinf(self.rate) else f"{self.rate:g}/s"
        if self.arrival.startswith("trace:"):
            rate = f"trace {self.rate:.3g}/s"
        return f"{rate} c≤{self.concurrency}" if self.concurrency else rate

    @property
    def digest(self) -> str:
        """Of all that it says: the same load sends the same prompts to any endpoint."""
        return hashlib.sha256(orjson.dumps(self.to_json(), option=orjson.OPT_SORT_KEYS)).hexdigest()

    @property
    def is_auto(self) -> bool:
        """Whether the point ends when it has measured enough."""
        return not self.requests and not self.duration_s

    @property
    def warmups(self) -> int:
        """Requests before the measured ones."""
        if self.warmup >= 0:
            return self.warmup
        return max(2, min(self.concurrency or 8, 64))

    def to_json(self) -> dict[str, Any]:
        """As a point stores it; JSON has no infinity."""
        data = asdict(self)
        data["rate"] = "inf" if math.isinf(self.rate) else self.rate
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote; keys of later versions are passed over."""
        return cls(**{**known(cls, data), "rate": float(data.get("rate", 0.0))})

    def lengths(self, index: int, trace: Trace | None = None) -> tuple[int, int]:
        """Input and output tokens of the request with that index; requests of the warm-up are in no trace."""
        isl, osl = self.isl, self.osl
        if self.range_ratio < 1.0:
            draw = random.Random(f"{self.seed}/{index}/lengths")
            isl, osl = (max(1, draw.randint(math.ceil(full * self.range_ratio), full)) for full in (isl, osl))
        if trace is not None and index >= 0:
            isl = trace.inputs[index] if trace.inputs else isl
            osl = trace.outputs[index] if trace.outputs else osl
        return isl, osl


def arrivals(load: Load, auto: Auto = DEFAULT_AUTO, trace: Trace | None = None) -> list[float]:
    """When each request of an open loop is due, seconds from the start, ascending; drawn before the start."""
    if trace is not None:
        return list(trace.times)
    total = load.requests
    if math.isinf(load.rate):
        return [0.0] * (total or auto.requests)
    until = load.duration_s or (0.0 if total else auto.open_seconds(load))
    draw = random.Random(f"{load.seed}/arrivals")
    batch = int(load.arrival.partition(":")[2] or 1) if load.arrival.startswith("burst") else 1
    times: list[float] = []
    at = 0.0
    while len(times) < total if total else at < until:
        times += [at] * batch
        gap = batch / load.rate
        at += _gap(draw, gap, load)
    return times[:total] if total else times


def _gap(draw: random.Random, mean: float, load: Load) -> float:
    if load.arrival != "poisson":
        return mean
    if load.burstiness == 1.0:
        return draw.expovariate(1.0 / mean)
    return draw.gammavariate(load.burstiness, mean / load.burstiness)


def of_trace(load: Load, trace: Trace) -> Load:
    """The load that a record is: its lengths are the mean ones where it has any."""
    return replace(
        load, rate=trace.rate, arrival=f"trace:{trace.digest}", requests=len(trace.times), duration_s=0.0,
        isl=round(statistics.fmean(trace.inputs)) if trace.inputs else load.isl,
        osl=round(statistics.fmean(trace.outputs)) if trace.outputs else load.osl,
    )  # fmt: skip


def check(load: Load) -> None:
    """Refuse what cannot be asked, of what the fields of a benchmark let through.

    Raises:
        InputError: a value is out of its range; names the flag.
    """
    kind, _, size = load.arrival.partition(":")
    known = kind in ("poisson", "constant") if not size else kind == "burst" and size.isdigit() and int(size) > 0
    bad: list[tuple[bool, str, str, str]] = [
        (load.timeout_s <= 0, "--timeout", f"must be positive, but is {load.timeout_s:g}", ""),
        (not known and not (kind == "trace" and size), "--arrival", f"{load.arrival!r} is not an arrival process",
         "write poisson, constant or burst:8"),
        (load.burstiness != 1 and not (load.is_open and load.arrival == "poisson"), "--burstiness",
         "is of poisson arrivals at a rate", "say the rate: --rate 10"),
    ]  # fmt: skip
    for is_bad, where, message, hint in bad:
        if is_bad:
            raise InputError(message, where=where, hint=hint)
    Cache.parse(load.cache)

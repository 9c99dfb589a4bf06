"""A point: one load on one endpoint, what came of it, and whether it counts. Immutable once it is written. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, Self

import orjson

from remuda import __version__
from remuda.bench.judging.measures import VERSION
from remuda.bench.judging.verdict import INVALID, NAMES, NOT_ASKED, OK, SUSPECT, VALID, Check
from remuda.bench.load import Load

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SCHEMA: Final = 1


@dataclass(frozen=True)
class Hardware:
    """What serves the endpoint, as its supervisor or the user says; zeros where nobody does.

    Attributes:
        gpus: allocated, not busy.
        gpu_type: as in `prices.yaml`.
        replicas: asked for.
    """

    gpus: int = 0
    gpu_type: str = ""
    replicas: int = 0


@dataclass(frozen=True)
class Point:
    """What is stored.

    Attributes:
        id: content address: the same question at the same engine has the same one.
        repeat: 1 for the first measurement of it.
        source: `remuda`, or the tool whose file was imported.
        endpoint: URL, without key.
        model: as it was asked for.
        engine: what the endpoint says of itself.
        load: what was asked.
        metrics: numbers, see `measures.DEFINITIONS`.
        checks: all rules.
        verdict: `valid`, `suspect` or `invalid`; `imported` for another tool's that is not invalid.
        thresholds: that it was judged by.
        changed: thresholds that demand less than ours.
        slo: bounds by percentile, `ttft_p99` to seconds.
        hardware: see there.
        client: how the load generator did.
        lengths: how those of prompts came about, see `prompts.PromptFit`; empty where nobody says.
        counters: of the engine, before and after.
        energy: joules; None: not measured.
        cost: money; None without a price.
        meta: of the user.
        started_at: seconds since 1970.
        files: names beside it.
        config: fingerprint of what served, where remuda had brought it up.
        accuracy: of answers to questions, see `client/bench/accuracy.py`; None for a load. Such a point has no times.
    """

    id: str
    repeat: int
    source: str
    endpoint: str
    model: str
    engine: str
    load: Load
    metrics: Mapping[str, Any]
    checks: tuple[Check, ...]
    verdict: str
    thresholds: Mapping[str, float] = field(default_factory=dict)
    changed: tuple[str, ...] = ()
    slo: Mapping[str, float] = field(default_factory=dict)
    goodput: Mapping[str, float] = field(default_factory=dict)
    hardware: Hardware = field(default_factory=Hardware)
    client: Mapping[str, Any] = field(default_factory=dict)
    lengths: str = ""
    counters: Mapping[str, Any] = field(default_factory=dict)
    energy: Mapping[str, Any] | None = None
    cost: Mapping[str, Any] | None = None
    meta: Mapping[str, str] = field(default_factory=dict)
    started_at: float = 0.0
    version: str = __version__
    definitions: int = VERSION
    config: str = ""
    accuracy: Mapping[str, Any] | None = None

    @property
    def name(self) -> str:
        """What it is called: `3f9a01c2-1`."""
        return f"{self.id[:8]}-{self.repeat}"

    @property
    def label(self) -> str:
        """What a table calls what was asked: the load, or the tasks."""
        return ", ".join(self.accuracy["tasks"]) if self.accuracy else self.load.label

    @property
    def score(self) -> str:
        """The first score of each of its tasks, with the standard error; empty of a load."""
        scores = {one["task"]: one for one in reversed(self.accuracy["scores"])} if self.accuracy else {}
        asked = [scores[name] for name in self.accuracy["tasks"] if name in scores] if self.accuracy else []
        return ", ".join(
            f"{one['value']:.3f}" + ("" if one["stderr"] is None else f" ± {one['stderr']:.3f}") for one in asked
        )

    @property
    def counts(self) -> bool:
        """Whether plots and comparisons show it as a result."""
        return self.verdict == VALID

    @property
    def reasons(self) -> list[Check]:
        """Checks that speak against it, the worst first."""
        found = [check for check in self.checks if check.state in (INVALID, SUSPECT)]
        return sorted(found, key=lambda check: check.state != INVALID)

    def of(self, metric: str, statistic: str = "p50") -> float | None:
        """One number; None where it is not known."""
        value = self.metrics.get(metric)
        if isinstance(value, dict):
            value = value.get(statistic)
        return float(value) if isinstance(value, (int, float)) else None

    @property
    def output_per_gpu(self) -> float | None:
        """Output tokens a second of each allocated GPU; None where nobody says how many there are."""
        rate = self.of("output_tok_s")
        return rate / self.hardware.gpus if rate is not None and self.hardware.gpus > 0 else None

    @property
    def per_million(self) -> float | None:
        """Money for a million output tokens, in the currency of `cost`; None without a price."""
        value = (self.cost or {}).get("per_m_output")
        return float(value) if isinstance(value, (int, float)) else None

    @property
    def joules_per_token(self) -> float | None:
        """Joules of its GPUs for an output token; None where they are not known, or do not count."""
        known = self.energy or {}
        value = None if known.get("invalid") else known.get("joules_per_output_token")
        return float(value) if isinstance(value, (int, float)) else None

    @property
    def currency(self) -> str:
        """Of its cost; empty without."""
        return str((self.cost or {}).get("currency", ""))

    def slo_met(self) -> bool | None:
        """Whether every bound is met; None without bounds, or where a percentile has too few samples."""
        if not self.slo:
            return None
        found = [(bound, self.of(*split_bound(name))) for name, bound in self.slo.items()]
        if any(value is not None and value > bound for bound, value in found):
            return False
        return None if any(value is None for _, value in found) else True

    def to_json(self) -> dict[str, Any]:
        """Its document."""
        known = {**vars(self), "schema": SCHEMA, "name": self.name, "slo_met": self.slo_met()}
        known |= {"load": self.load.to_json(), "hardware": dict(vars(self.hardware))}
        known["checks"] = [{"code": one.code, "name": one.name, **vars(one)} for one in self.checks]
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in known.items()}
        return {name: plain[name] for name in _ORDER}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote.

        Raises:
            ValueError: it is none.
        """
        try:
            said = {"lengths": "", "config": "", "accuracy": None, **data}
            return cls(**{one.name: _READ.get(str(one.type), dict)(said[one.name]) for one in fields(cls)})
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no point of a benchmark: {error}") from error


_ORDER: Final = (
    "schema", "id", "repeat", "name", "source", "verdict", "slo_met",
    *(one.name for one in fields(Point) if one.name not in ("id", "repeat", "source", "verdict")),
)  # fmt: skip
"""Of what a point's document says."""


def _checks(said: list[dict[str, str]]) -> tuple[Check, ...]:
    """Those of rules that are known here."""
    return tuple(
        Check(one["code"], one["state"], one["text"], one["hint"]) for one in said
        if one["code"] in NAMES and one["state"] in (OK, SUSPECT, INVALID, NOT_ASKED)
    )  # fmt: skip


_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    "str": str, "int": int, "float": float, "Load": Load.from_json, "Hardware": lambda said: Hardware(**said),
    "tuple[Check, ...]": _checks, "tuple[str, ...]": tuple, "Mapping[str, Any] | None": lambda said: said,
}  # fmt: skip
"""By the type of a field, where it is not a mapping."""


def split_bound(name: str) -> tuple[str, str]:
    """Metric and statistic of a bound: `ttft_p99` is the p99 of ttft."""
    metric, _, statistic = name.rpartition("_")
    return metric, statistic


def address(
    load: Load, endpoint: str, model: str, engine: str, hardware: Hardware, rules: Mapping[str, Any], config: str = "",
    asked: str = "",
) -> str:  # fmt: skip
    """The content address: SHA-256 over all that decides what is measured, and how it is judged.

    With a `config` all of that is known before anything starts. `asked` says which questions, if any.
    """
    serves = {"config": config} if config else {"endpoint": endpoint, "engine": engine, "version": __version__}
    data = {
        "load": load.to_json(), "model": model, "gpus": hardware.gpus, "gpu_type": hardware.gpu_type,
        "replicas": hardware.replicas, "rules": dict(rules), "definitions": VERSION, **serves,
        **({"asked": asked} if asked else {}),
    }  # fmt: skip
    return hashlib.sha256(orjson.dumps(data, option=orjson.OPT_SORT_KEYS)).hexdigest()

"""A benchmark of an endpoint: who is measured, under which loads, and what it has to keep."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator, model_validator

from remuda.base.errors import InputError
from remuda.base.units import parse_duration
from remuda.specs.strict import Json, Seconds, SecretSource, Strict, Text, Texts, contradiction, wrong

_BOUNDED = ("ttft", "tpot", "e2e")
_STATISTICS = ("mean", "p50", "p90", "p95", "p99")
MOST_REPEATS: Final = 100


def _as_list(value: object) -> object:
    if isinstance(value, str):
        parts = value.replace("x", ",").split(",") if value.strip() else []
        if not all(part.strip() for part in parts):
            raise wrong(f"has a gap: {value!r}", "write 4x8x16, or [4, 8, 16]")
        return parts
    return [value] if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _as_bounds(value: object) -> object:
    """`ttft_p99=500ms,tpot_p99=30ms`, or a mapping, as seconds."""
    if isinstance(value, str):
        pairs = [part.partition("=") for part in value.split(",") if part.strip()]
        if not all(mark for _, mark, _ in pairs):
            raise wrong(f"must be bounds, not {value!r}", "write ttft_p99=500ms,tpot_p99=30ms")
        value = {name.strip(): text.strip() for name, _, text in pairs}
    if not isinstance(value, dict):
        raise wrong("must be bounds by name", "write {ttft_p99: 500ms}")
    found: dict[str, float] = {}
    for name, text in value.items():
        try:
            found[str(name)] = parse_duration(text)
        except InputError as error:
            raise wrong(f"has {name} = {text!r}, which is not a duration", error.hint) from error
    return found


Numbers = Annotated[
    tuple[Annotated[int, Field(ge=1)], ...], BeforeValidator(_as_list),
    WithJsonSchema({"anyOf": [{"type": ["integer", "string"]}, {"type": "array", "items": {"type": "integer"}}]}),
]  # fmt: skip
"""Whole numbers: a list, or `1,8,64`."""

Rates = Annotated[
    tuple[Annotated[float, Field(gt=0)], ...], BeforeValidator(_as_list),
    WithJsonSchema({"anyOf": [{"type": ["number", "string"]}, {"type": "array", "items": {"type": "number"}}]}),
]  # fmt: skip
"""Rates: a list, or `1,2.5,inf`."""

Bounds = Annotated[
    dict[str, float], BeforeValidator(_as_bounds),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object"}], "title": "bounds"}),
]  # fmt: skip
"""Durations by name: a mapping, or `ttft_p99=500ms,tpot_p99=30ms`."""


class LoadSearch(Strict):
    """Search for the largest load that meets latency targets, in place of `concurrencies`."""

    slo: Bounds
    """Latency targets: `ttft_p99=500ms,tpot_p99=30ms`."""
    maximise: Literal["concurrency", "rate"] = "concurrency"
    """Quantity to maximise: requests in flight, or requests a second."""
    min: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Lower bound of the search."""
    max: float = Field(default=4096.0, gt=0, allow_inf_nan=False)
    """Upper bound of the search."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_slo(self.slo)
        if not self.slo:
            raise contradiction("slo", "`slo` is empty, and a search needs a latency target", "write {ttft_p99: 500ms}")
        if self.max < self.min:
            raise contradiction("max", f"`max` is {self.max:g}, less than `min`")
        for name in ("min", "max") if self.maximise == "concurrency" else ():
            if getattr(self, name) % 1:
                raise contradiction(name, f"`{name}` must be a whole number of requests in flight")
        return self


SETS: Final = {"gsm8k": "gsm8k", "mmlu": "mmlu_generative", "gpqa": "gpqa_diamond_cot_zeroshot"}
"""Sets of questions -> the task of lm-eval that an endpoint can answer."""


class QuestionFields(Strict):
    """Questions with known answers."""

    tasks: Texts = ()
    """Tasks of lm-eval, asked in place of a load."""
    tasks_dir: Text = ""
    """Folder with further tasks of lm-eval (YAML)."""
    limit: int = Field(default=0, ge=0)
    """Questions per task, from the first; default: all."""
    num_fewshot: int | None = Field(default=None, ge=0)
    """Examples before each question; default: as the task says."""
    max_tokens: int = Field(default=0, ge=0)
    """Longest answer, in tokens; default: as the task says, else 256."""
    hub_token: SecretSource | None = None
    """Token of the Hugging Face hub, for gated questions."""

    @field_validator("tasks", mode="after")
    @classmethod
    def _as_tasks(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(SETS.get(name, name) for name in names)


class BenchmarkSpec(QuestionFields):
    """Loads on one or more endpoints. Each load is a point with a verdict of its own."""

    kind: Literal["benchmark"] = "benchmark"
    """Kind of document; required, as a benchmark is never guessed from its keys."""
    name: Text = ""
    """Swarm to measure."""
    endpoint: Texts = ()
    """URLs of OpenAI-compatible servers instead; with several, their points alternate."""
    model: Text = ""
    """Name of the model; default: the only one served."""
    api: Literal["chat", "completions"] = "chat"
    """API to call."""
    isl: int = Field(default=1024, ge=1)
    """Input tokens per request, chat template included."""
    osl: int = Field(default=128, ge=1)
    """Output tokens per request."""
    range_ratio: float = Field(default=1.0, gt=0, le=1)
    """Shortest length as a share of `isl` and `osl`; lengths are uniform from there; 1: fixed lengths."""
    concurrency: Numbers = ()
    """Requests in flight, one point each; default: 1. With `rate`: limit of requests in flight."""
    rate: Rates = ()
    """Requests per second, one point each, without waiting for earlier answers; `inf`: all at once."""
    arrival: Text = "poisson"
    """Arrival process: `poisson` (default), `constant` or `burst:N` (N at once, at the same mean rate)."""
    burstiness: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Burstiness of `poisson` arrivals: shape of the gamma distribution of gaps; 1 is Poisson, less is bursty."""
    trace: Text = ""
    """File of recorded arrivals (JSON lines or CSV) in place of `rate`: `timestamp`, and `input_length` and
    `output_length` if the lengths count too."""
    trace_unit: Literal["s", "ms", "us"] = "ms"
    """Unit of the trace's timestamps."""
    requests: int = Field(default=0, ge=0)
    """Requests per point; default: as many as fit into `duration`, or as a p99 needs."""
    duration: Seconds = 0.0
    """Length of a point, e.g. 60s; default: until a p99 is known."""
    warmup: int = Field(default=-1, ge=-1)
    """Warm-up requests before the measured ones; default: as many as are in flight."""
    timeout: Seconds = 600.0
    """Time limit of one request."""
    cache: Text = "cold"
    """Prefix cache: `cold` (default) shares nothing, `warm` sends known prompts, `shared:0.3` shares the first 30 %."""
    stream: bool = True
    """Stream answers token by token; whole answers have no TTFT."""
    seed: int = 0
    """Random seed for prompts, lengths and arrivals: the same seed sends the same."""
    headers: dict[str, Text] = Field(default_factory=dict)
    """HTTP headers of each request."""
    extra_body: dict[str, Json] = Field(default_factory=dict)
    """JSON to merge into each request."""
    insecure: bool = False
    """Do not verify the endpoint's certificate."""
    ca_file: Text = ""
    """CA certificates (PEM) to verify the endpoint with, in place of the system's."""
    api_key: SecretSource | None = None
    """API key of the endpoint."""
    gpus: int = Field(default=0, ge=0)
    """Number of GPUs behind an endpoint given by URL, for numbers per GPU; known for a swarm."""
    gpu_type: Text = ""
    """Type of these GPUs, as in the price list: `H100 SXM`."""
    price: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Price of one GPU per hour, in USD; default: the list price of the type."""
    prices: Text = ""
    """Price list of your own, YAML: `[{type: H100 SXM, currency: EUR, per_gpu_hour: 2.50, source: contract}]`."""
    slo: Bounds = Field(default_factory=dict)
    """Latency targets for each point: `ttft_p99=500ms,tpot_p99=30ms,e2e_p95=10s`."""
    goodput: Bounds = Field(default_factory=dict)
    """Per-request targets; goodput counts requests that meet them: `ttft=500ms,tpot=30ms`."""
    validity: dict[str, Json] = Field(default_factory=dict)
    """Thresholds of validity rules: `V12.window: 5s`."""
    repeats: int = Field(default=1, ge=1, le=MOST_REPEATS)
    """Repetitions per point."""
    meta: dict[str, Text] = Field(default_factory=dict)
    """Metadata to store with the points."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.name and self.endpoint:
            raise contradiction("endpoint", "cannot be given beside `name`", "a benchmark is of one of them")
        if self.requests and self.duration:
            raise contradiction("duration", "cannot be given beside `requests`", "a point has one bound, or none")
        self._check_pairs()
        if self.price and self.prices:
            raise contradiction("price", "cannot be given beside `prices`", "a GPU has one price")
        if (self.price or self.prices) and self.endpoint and not self.gpus:
            said = "price" if self.price else "prices"
            raise contradiction(said, "has no meaning without the number of GPUs", "say it: gpus: 8, or --gpus 8")
        _check_slo(self.slo)
        for name in self.goodput:
            if name not in _BOUNDED:
                raise contradiction("goodput", f"has {name!r}", "a request is bounded by ttft, tpot and e2e")
        if len(self.endpoint) > 1 and self.api_key is not None:
            raise contradiction("api_key", "cannot be given to several endpoints", "a key belongs to one of them")
        return self

    def _check_pairs(self) -> None:
        if self.insecure and self.ca_file:
            raise contradiction("insecure", "cannot be given beside `ca_file`", "check a certificate, or do not")
        for name in ("rate", "trace", "headers", "extra_body", "insecure", "ca_file") if self.tasks else ():
            if getattr(self, name):
                raise contradiction(name, "cannot be given beside `tasks`", "it is for loads")
        if self.tasks and len(self.concurrency) > 1:
            raise contradiction("concurrency", "has several values beside `tasks`", "answers are the same at each")
        for name in ("rate", "arrival", "burstiness") if self.trace else ():
            if getattr(self, name) != type(self).model_fields[name].default:
                raise contradiction(name, "cannot be given beside `trace`", "a trace says when requests come")
        if self.trace_unit != "ms" and not self.trace:
            raise contradiction("trace_unit", "has no meaning without `trace`", "name the file: --trace FILE")


def _check_slo(slo: dict[str, float]) -> None:
    for name in slo:
        metric, _, statistic = name.rpartition("_")
        if metric not in (*_BOUNDED, "icl") or statistic not in _STATISTICS:
            raise contradiction("slo", f"has {name!r}, which is not a percentile", "write ttft_p99, tpot_p50, e2e_mean")

"""Benchmarks: from a document to loads on a target, and where points are kept."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import orjson

from remuda.base.clock import SET_S
from remuda.base.disk.files import read_whole
from remuda.base.disk.paths import state_paths
from remuda.base.errors import InputError
from remuda.base.extras import need_batch
from remuda.base.ids import api_path
from remuda.base.secrets import SecretRef
from remuda.bench import load as loads
from remuda.bench.cost import Price, find_price, nearest, read_prices
from remuda.bench.generator.http_stream import RequestTarget, tls
from remuda.bench.generator.trace import read_trace
from remuda.bench.judging.verdict import INVALID, read_thresholds
from remuda.bench.load import Load
from remuda.bench.perform import BenchSession, JudgingTerms, MeasuredEndpoint, SwarmWatch
from remuda.bench.point import Hardware
from remuda.bench.store import PointStore
from remuda.client.bench.energy import recorded_by
from remuda.client.jobs import targets
from remuda.look.prices import our_prices
from remuda.plan.identity import CONFIG
from remuda.wire.fields import alike

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from remuda.bench.generator.load_workers import LoadProgress
    from remuda.bench.generator.trace import Trace
    from remuda.bench.point import Point
    from remuda.specs.benchmark import BenchmarkSpec
    from remuda.specs.reading.load import Loaded
    from remuda.specs.reading.resolve import Override

#: Of a trace, and of what else is named by a flag: a million requests have 80 MB.
_MOST_BYTES: Final = 256 << 20
#: What a point says of the job that measured it.
JOB: Final = "job"


@dataclass(frozen=True)
class EndpointSource:
    """Who is measured, without keys: a job's driver reads it elsewhere.

    Attributes:
        base: URL.
        model: name of the model; empty for the only one that is served.
        key_env: variable with the key.
        key_file: file with the key.
        swarm: its name, where its host can be asked how many replicas are ready.
        is_own: it is a swarm of this user.
        engines: addresses of its replicas.
        replicas: asked for.
        config: fingerprint of what serves, where remuda has brought it up.
        endpoint_file: `endpoint.json` of a swarm, where the endpoint may move.
    """

    base: str
    model: str
    key_env: str = ""
    key_file: str = ""
    swarm: str = ""
    is_own: bool = False
    engines: tuple[str, ...] = ()
    replicas: int = 0
    config: str = ""
    endpoint_file: str = ""


@dataclass(frozen=True)
class BenchPlan:
    """What a benchmark measures: every load on every target, `repeats` times."""

    spec: BenchmarkSpec
    sources: list[EndpointSource]
    sessions: list[BenchSession]
    loads: list[Load]
    job: str = ""
    """Of which this is the driver."""


@dataclass(frozen=True)
class Measured:
    """A point that was measured, or was there already."""

    point: Point
    is_stored: bool = False
    """It was measured before, and counts."""


def store() -> PointStore:
    """Where points are kept."""
    paths = state_paths()
    return PointStore(paths.root / "bench")


def by_address(kept: PointStore) -> dict[str, list[Point]]:
    """All stored points: the measurements of each address, the oldest first; of answers also by that of questions."""
    found: dict[str, list[Point]] = {}
    for point in kept.points():
        for address in {point.id, (point.accuracy or {}).get("question", point.id)}:
            found.setdefault(address, []).append(point)
    return found


def read(file: Path | None, overrides: Sequence[Override]) -> Loaded[BenchmarkSpec]:
    """A benchmark's document and flags.

    Raises:
        InputError: something is wrong; says where.
    """
    from remuda.specs.benchmark import BenchmarkSpec
    from remuda.specs.reading.load import load as load_document
    from remuda.specs.reading.resolve import Override

    said = overrides if file is not None else [Override("kind", "benchmark", "remuda bench"), *overrides]
    loaded = load_document(file, said, expect="benchmark")
    if not loaded.resolved.says(("kind",)):
        raise InputError("does not say that it is a benchmark", hint="add `kind: benchmark`", where=str(file))
    if not isinstance(loaded.spec, BenchmarkSpec):
        raise InputError(f"is a {loaded.kind}, and a benchmark is needed here", where=loaded.file)
    return cast("Loaded[BenchmarkSpec]", loaded)


def plan(loaded: Loaded[BenchmarkSpec], say: Callable[[str], None]) -> BenchPlan:
    """Targets and loads of a document; waits for a swarm that is coming up.

    Raises:
        InputError: a value is wrong.
        NotFound: there is no such swarm.
        RemudaError: it does not come up.
    """
    need_batch("a benchmark takes")
    spec = loaded.spec
    if not spec.name and not spec.endpoint:
        raise InputError("a benchmark needs an endpoint", hint="name one with --endpoint URL, or a swarm with --name")
    for url in spec.endpoint:
        if url.startswith("/"):
            hint = "write --endpoint http://HOST:PORT, and --api chat or completions for the path"
            raise InputError(f"{url!r} is a path, not the URL of an endpoint", hint=hint, where="--endpoint")
    if words := unpriced(spec):
        say(words)
    try:
        read_thresholds(spec.validity)
    except InputError as error:
        raise loaded.locate(error) from error
    for load in loads_of(spec, trace_of(spec)):
        loads.check(load)
    if spec.tasks:
        from remuda.client.bench import accuracy

        accuracy.check(spec)
    _check_ca(spec)
    return plan_of(
        spec, [source_of_swarm(spec, say)] if spec.name else [_of_endpoint(spec, url) for url in spec.endpoint]
    )


def plan_of(spec: BenchmarkSpec, sources: list[EndpointSource], *, job: str = "") -> BenchPlan:
    """The same for sources that are known.

    Raises:
        InputError: a key is missing, or a header is none.
    """
    meta = {**spec.meta, **({JOB: job} if job else {})}
    terms = JudgingTerms(read_thresholds(spec.validity), spec.slo, spec.goodput, meta, price_of(spec))
    trace = trace_of(spec)
    sessions = [BenchSession(_target(spec, source), terms, trace) for source in sources]
    return BenchPlan(spec, sources, sessions, loads_of(spec, trace), job)


def trace_of(spec: BenchmarkSpec) -> Trace | None:
    """The record that a load is made of, as far as the benchmark wants it; None without one.

    Raises:
        InputError: it cannot be read, or is none.
    """
    if not spec.trace:
        return None
    return read_trace(_read(spec.trace, "--trace"), spec.trace, spec.trace_unit).head(spec.requests, spec.duration)


def loads_of(spec: BenchmarkSpec, trace: Trace | None = None) -> list[Load]:
    """A load for each concurrency, or for each rate or the record (then with each bound of concurrency)."""
    extra_body = orjson.dumps(spec.extra_body, option=orjson.OPT_SORT_KEYS).decode()
    own = {"concurrency": 1, "rate": 0.0, "duration_s": spec.duration, "timeout_s": spec.timeout}
    base = Load(**alike(Load, spec) | own | {"extra_body": extra_body})
    if trace is not None:
        return [replace(loads.of_trace(base, trace), concurrency=bound) for bound in spec.concurrency or (0,)]
    if spec.rate:
        return [replace(base, rate=rate, concurrency=bound) for rate in spec.rate for bound in spec.concurrency or (0,)]
    return [replace(base, concurrency=count) for count in spec.concurrency or (1,)]


def price_of(spec: BenchmarkSpec) -> Price | None:
    """What an hour of a GPU of this benchmark costs; None where nobody says.

    Raises:
        InputError: the list of prices cannot be read, or does not have the type.
    """
    if spec.price:
        return Price(spec.gpu_type, spec.price, source="said by the user")
    if not spec.prices:
        return find_price(our_prices(), spec.gpu_type)
    prices = read_prices(_read(spec.prices, "--prices"), spec.prices)
    found = find_price(prices, spec.gpu_type)
    if found is None:
        near = nearest(prices, spec.gpu_type) or [price.type for price in prices]
        hint = f"it has {', '.join(near)}; name one with --gpu-type"
        of = repr(spec.gpu_type) if spec.gpu_type else "a GPU without a type"
        raise InputError(f"{spec.prices} has no price of {of}", hint=hint, where="--prices")
    return found


def unpriced(spec: BenchmarkSpec) -> str:
    """What is to be said of a type of GPU that our list of prices does not have; empty where it has, or need not."""
    if not spec.gpu_type or price_of(spec) is not None:
        return ""
    near = nearest(our_prices(), spec.gpu_type)
    words = f"did you mean {' or '.join(near)}? Else say --price" if near else "say --price"
    return f"no price of {spec.gpu_type!r} is known, so nothing is said of money; {words}"


def _read(file: str, flag: str) -> str:
    try:
        return read_whole(Path(file).expanduser(), _MOST_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        said = (getattr(error, "strerror", "") or "it is not text").lower()
        raise InputError(f"{file} cannot be read: {said}", where=flag) from error


def _check_ca(spec: BenchmarkSpec) -> None:
    if not spec.ca_file:
        return
    _read(spec.ca_file, "--ca-file")
    try:
        tls(verify=True, ca_file=spec.ca_file)
    except OSError as error:
        hint = "name a file of certificates in PEM: -----BEGIN CERTIFICATE-----"
        raise InputError(f"{spec.ca_file} holds no certificate", where="--ca-file", hint=hint) from error


def located(spec: BenchmarkSpec) -> BenchmarkSpec:
    """The same with whole paths: a job's driver stands in another directory."""
    files = {name: getattr(spec, name) for name in ("trace", "ca_file", "prices", "tasks_dir")}
    whole = {name: str(Path(file).expanduser().absolute()) for name, file in files.items() if file}
    return spec.model_copy(update=whole)


def _headers(spec: BenchmarkSpec) -> tuple[tuple[str, str], ...]:
    for name, value in spec.headers.items():
        if not name.strip() or any(char in name + value for char in "\r\n\0") or ":" in name:
            raise InputError(f"{name!r} cannot be a header", where="--header", hint="write NAME=VALUE")
    return tuple(spec.headers.items())


def _target(spec: BenchmarkSpec, source: EndpointSource) -> MeasuredEndpoint:
    key = SecretRef(file=source.key_file, env=source.key_env).read() if source.key_file or source.key_env else ""
    engines = tuple(RequestTarget(base, key, is_own=True) for base in source.engines)

    def watch(since: float) -> SwarmWatch:
        from remuda.client.http import connect

        return watched(connect().get(api_path(source.swarm), fresh="true"), since)

    recorded = recorded_by(source.swarm) if source.swarm else None
    sample, sampled = recorded or (None, 0)
    return MeasuredEndpoint(
        RequestTarget(
            source.base, key, _headers(spec), is_own=source.is_own, verify=not spec.insecure,
            ca_file=str(Path(spec.ca_file).expanduser()) if spec.ca_file else "",
        ), source.model, engines,
        Hardware(spec.gpus, spec.gpu_type, source.replicas), watch if source.swarm else None, sample, sampled,
        source.config,
    )  # fmt: skip


def watched(view: Mapping[str, Any], since: float) -> SwarmWatch:
    """How a swarm is, as a view that was asked for after `since` says: its router may not have answered meanwhile."""
    router = view.get("router") or {}
    is_known = router.get("counted_at", 0.0) >= since - SET_S  # by the host's clock
    return SwarmWatch(int(view["ready"]), int(router.get("stats", {}).get("retries", -1)) if is_known else -1)


def _of_endpoint(spec: BenchmarkSpec, url: str) -> EndpointSource:
    secret = spec.api_key
    target = targets.of_endpoint(url, spec.model, secret.env if secret else "")
    key_file = secret.file if secret else ""
    return EndpointSource(target.endpoint, target.model, target.api_key_env if not key_file else "", key_file)


def source_of_swarm(spec: BenchmarkSpec, say: Callable[[str], None]) -> EndpointSource:
    """A swarm or deployment of this user; waits until it is up.

    Raises:
        NotFound: there is none of that name.
        RemudaError: it does not come up.
    """
    from remuda.client.http import connect
    from remuda.plan.model import Role

    target = targets.of_swarm(spec.name, spec.model, "", say)
    view = connect().get(api_path(spec.name))
    engines = tuple(
        task["url"].rstrip("/").removesuffix("/v1")
        for task in view["tasks"] if Role(task["role"]).answers and task["url"]
    )  # fmt: skip
    return EndpointSource(
        target.endpoint, target.model, key_file=target.api_key_file, swarm=spec.name, is_own=True, engines=engines,
        replicas=int(view["wanted"]), config=view["labels"].get(CONFIG, ""), endpoint_file=target.endpoint_file,
    )  # fmt: skip


def run(
    plan: BenchPlan, kept: PointStore, show: Callable[[Load, LoadProgress], None], *, again: bool = False
) -> Iterator[Measured]:
    """Measure all points, one after the other; yields each when it is stored.

    Points that were measured before and count are not measured again, unless `again`. A job counts its own points only,
    whatever their verdict.

    Raises:
        RemudaError: a point cannot be measured.
    """
    if plan.spec.tasks:
        from remuda.client.bench import accuracy

        for session, source in zip(plan.sessions, plan.sources, strict=True):
            yield accuracy.measure(plan.spec, session, source, kept, show, again=again)
        return
    for session in plan.sessions:
        asyncio.run(session.open())
    for repeat in range(plan.spec.repeats):
        for load in plan.loads:
            for session in plan.sessions:
                tried = kept.of(session.address(load))
                known = [
                    point
                    for point in tried
                    if (point.meta.get(JOB) == plan.job if plan.job else point.verdict != INVALID)
                ]
                if len(known) > repeat and not again:
                    yield Measured(session.priced(known[repeat]), is_stored=True)
                    continue
                yield measure(session, load, kept, show)


def measure(
    session: BenchSession, load: Load, kept: PointStore, show: Callable[[Load, LoadProgress], None]
) -> Measured:
    """Measure one load, and store the point.

    Its prompts are none that this endpoint was sent for the same load before, also where that was judged by other rules
    or was cut short.

    Raises:
        RemudaError: it cannot be measured, or not be stored.
    """
    seen = kept.begin(load.digest, session.target.place.base)
    point, rows = asyncio.run(session.measure(load, partial(show, load), repeat=seen))
    return Measured(kept.write(point, rows))


def to_json(found: Sequence[Measured]) -> list[dict[str, Any]]:
    """Points for programs."""
    return [{**one.point.to_json(), "stored_before": one.is_stored} for one in found]

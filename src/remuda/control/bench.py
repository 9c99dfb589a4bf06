"""Benchmarks: from a document to loads on a target, and where points are kept."""

from __future__ import annotations

import asyncio
import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import orjson

from remuda.base.errors import InputError
from remuda.base.ids import api_path
from remuda.base.paths import state_paths
from remuda.base.secrets import SecretRef
from remuda.bench import load as loads
from remuda.bench.line import Place
from remuda.bench.load import Load
from remuda.bench.perform import Session, Target, Terms
from remuda.bench.point import Hardware
from remuda.bench.store import Store
from remuda.bench.verdict import INVALID, read_thresholds
from remuda.control import targets
from remuda.control.client import connect
from remuda.specs.benchmark import BenchmarkSpec
from remuda.specs.load import load as load_document
from remuda.specs.resolve import Override

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from remuda.bench.crew import Live
    from remuda.bench.point import Point
    from remuda.specs.load import Loaded


@dataclass(frozen=True)
class Plan:
    """What a benchmark measures: every load on every target, `repeats` times."""

    spec: BenchmarkSpec
    sessions: list[Session]
    loads: list[Load]


@dataclass(frozen=True)
class Measured:
    """A point that was measured, or was there already."""

    point: Point
    is_stored: bool = False
    """It was measured before, and counts."""


def store() -> Store:
    """Where points are kept."""
    paths = state_paths()
    return Store(paths.root / "bench")


def read(file: Path | None, overrides: Sequence[Override]) -> Loaded[BenchmarkSpec]:
    """A benchmark's document and flags.

    Raises:
        InputError: something is wrong; says where.
    """
    said = overrides if file is not None else [Override("kind", "benchmark", "remuda bench"), *overrides]
    loaded = load_document(file, said, expect="benchmark")
    if not loaded.resolved.says(("kind",)):
        raise InputError("does not say that it is a benchmark", hint="add `kind: benchmark`", where=str(file))
    if not isinstance(loaded.spec, BenchmarkSpec):
        raise InputError(f"is a {loaded.kind}, and a benchmark is needed here", where=loaded.file)
    return cast("Loaded[BenchmarkSpec]", loaded)


def plan(loaded: Loaded[BenchmarkSpec], say: Callable[[str], None]) -> Plan:
    """Targets and loads of a document; waits for a swarm that is coming up.

    Raises:
        InputError: a value is wrong.
        NotFound: there is no such swarm.
        RemudaError: it does not come up.
    """
    spec = loaded.spec
    if not spec.name and not spec.endpoint:
        raise InputError("a benchmark needs an endpoint", hint="name one with --endpoint URL, or a swarm with --name")
    for url in spec.endpoint:
        if url.startswith("/"):
            hint = "write --endpoint http://HOST:PORT, and --api chat or completions for the path"
            raise InputError(f"{url!r} is a path, not the URL of an endpoint", hint=hint, where="--endpoint")
    try:
        terms = Terms(read_thresholds(spec.validity), spec.slo, spec.goodput, spec.meta)
    except InputError as error:
        raise loaded.locate(error) from error
    found = loads_of(spec)
    for load in found:
        loads.check(load)
    ours = [_of_swarm(spec, say)] if spec.name else [_of_endpoint(spec, url) for url in spec.endpoint]
    return Plan(spec, [Session(target, terms) for target in ours], found)


def loads_of(spec: BenchmarkSpec) -> list[Load]:
    """A load for each concurrency, or for each rate (then with each bound of concurrency)."""
    base = Load(
        spec.isl, spec.osl, spec.range_ratio, arrival=spec.arrival, requests=spec.requests, duration_s=spec.duration,
        warmup=spec.warmup, timeout_s=spec.timeout, cache=spec.cache, stream=spec.stream, api=spec.api, seed=spec.seed,
        extra_body=orjson.dumps(spec.extra_body, option=orjson.OPT_SORT_KEYS).decode(),
    )  # fmt: skip
    if spec.rate:
        return [replace(base, rate=rate, concurrency=bound) for rate in spec.rate for bound in spec.concurrency or (0,)]
    return [replace(base, concurrency=count) for count in spec.concurrency or (1,)]


def _headers(spec: BenchmarkSpec) -> tuple[tuple[str, str], ...]:
    for name, value in spec.headers.items():
        if not name.strip() or any(char in name + value for char in "\r\n\0") or ":" in name:
            raise InputError(f"{name!r} cannot be a header", where="--header", hint="write NAME=VALUE")
    return tuple(spec.headers.items())


def _of_endpoint(spec: BenchmarkSpec, url: str) -> Target:
    secret = spec.api_key.reference() if spec.api_key else None
    key_env = secret.env if secret else ""
    target = targets.of_endpoint(url, spec.model, key_env)
    key = secret.read() if secret else ""
    if not secret and target.api_key_env:
        key = SecretRef(env=target.api_key_env).read()
    hardware = Hardware(spec.gpus, spec.gpu_type)
    return Target(Place(target.endpoint, key, _headers(spec)), target.model, hardware=hardware)


def _of_swarm(spec: BenchmarkSpec, say: Callable[[str], None]) -> Target:
    target = targets.of_swarm(spec.name, spec.model, "", say)
    key = SecretRef(file=target.api_key_file).read() if target.api_key_file else ""
    client = connect()
    view = client.get(api_path(spec.name))
    engines = tuple(
        Place(task["url"].rstrip("/").removesuffix("/v1"), key, is_own=True)
        for task in view["tasks"] if task["role"] == "replica" and task["url"]
    )  # fmt: skip
    hardware = Hardware(spec.gpus, spec.gpu_type, int(view["wanted"]))
    place = Place(target.endpoint, key, _headers(spec), is_own=True)
    return Target(place, target.model, engines, hardware, lambda: int(client.get(api_path(spec.name))["ready"]))


def run(plan: Plan, kept: Store, show: Callable[[Load, Live], None], *, again: bool = False) -> Iterator[Measured]:
    """Measure all points, one after the other; yields each when it is stored.

    Points that were measured before and count are not measured again, unless `again`.

    Raises:
        RemudaError: a point cannot be measured.
    """
    for session in plan.sessions:
        asyncio.run(session.open())
    for repeat in range(plan.spec.repeats):
        for load in plan.loads:
            for session in plan.sessions:
                tried = kept.of(session.address(load))
                known = [point for point in tried if point.verdict != INVALID]
                if len(known) > repeat and not again:
                    yield Measured(known[repeat], is_stored=True)
                    continue
                measuring = session.measure(load, functools.partial(show, load), repeat=len(tried))
                point, rows = asyncio.run(measuring)
                yield Measured(kept.write(point, rows))


def to_json(found: Sequence[Measured]) -> list[dict[str, Any]]:
    """Points for programs."""
    return [{**one.point.to_json(), "stored_before": one.is_stored} for one in found]

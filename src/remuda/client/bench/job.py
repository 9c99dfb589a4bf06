"""A benchmark as a job: sent to the supervisor, and driven here or beside a swarm on a cluster."""

from __future__ import annotations

import json
import os
import time
from collections import deque
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from remuda.base.disk.files import write_atomic
from remuda.base.errors import InputError, NotFound, Rejected, RemudaError
from remuda.bench.judging.verdict import INVALID, VALID
from remuda.client.bench import benchmarks
from remuda.client.jobs.batches import DONE, failure
from remuda.client.jobs.drivers import PROGRESS_FILE, address_in, say
from remuda.specs.benchmark import BenchmarkSpec
from remuda.views.job_folders import OUTCOME

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from remuda.bench.generator.load_workers import LoadProgress
    from remuda.bench.load import Load
    from remuda.bench.point import Point
    from remuda.bench.store import PointStore
    from remuda.client.bench.benchmarks import BenchPlan
    from remuda.views.job_folders import JobFolder

BENCH: Final = "bench.json"
#: What a shell sees of a verdict.
IS_INVALID, IS_SUSPECT = 10, 11
_TELL_S: Final = 5.0
#: What another attempt would meet again.
_LASTING: Final = (InputError, NotFound, Rejected)


def exit_code(points: Sequence[Point], *, allow_suspect: bool = False, allow_changed: bool = False) -> int:
    """What a shell sees of verdicts: 10 when one is invalid, 11 when one is suspect or valid under changed rules."""
    if any(point.verdict == INVALID for point in points):
        return IS_INVALID
    suspect = any(point.verdict != VALID for point in points) and not allow_suspect
    changed = any(point.changed for point in points) and not allow_changed
    return IS_SUSPECT if suspect or changed else 0


def files(plan: BenchPlan, *, endpoint_file: str = "", **allowed: bool) -> dict[str, dict[str, Any]]:
    """What the driver finds in the job's folder; keys stay where they are.

    Args:
        plan: what to measure.
        endpoint_file: where the driver finds the endpoint, if it runs on a cluster beside its swarm.
        allowed: see `exit_code`.
    """
    return {BENCH: {
        "spec": json.loads(benchmarks.located(plan.spec).model_dump_json()),
        "sources": [asdict(source) for source in plan.sources],
        "endpoint_file": endpoint_file, "allowed": allowed,
    }}  # fmt: skip


def drive(folder: JobFolder) -> int:
    """Measure what the folder says, and leave the verdict in it.

    Points that this job has measured are neither measured again nor judged again: a driver that is started again goes
    on behind them, whatever their verdict is.

    Returns:
        0 when the job has ended, well or not: its folder says how; else the error's own code.
    """
    told = folder.read(BENCH)
    try:
        found = _measure(folder, told)
    except _LASTING as error:
        say(f"{error}\n{error.hint}".strip())
        folder.write(OUTCOME, failure(error))
        return 0
    except RemudaError as error:
        say(f"{error}\n{error.hint}".strip())
        return error.exit_code
    counts = {word: sum(1 for point in found if point.verdict == word) for word in (VALID, "suspect", INVALID)}
    words = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    numbers = {"points": len(found), **counts, "exit_code": exit_code(found, **told["allowed"])}
    folder.write(OUTCOME, {"state": DONE, "reason": words, "summary": numbers})
    return 0


def _measure(folder: JobFolder, told: dict[str, Any]) -> list[Point]:
    spec = BenchmarkSpec.model_validate(told["spec"])
    sources = [benchmarks.EndpointSource(**source) for source in told["sources"]]
    if told["endpoint_file"]:
        # Beside its swarm: the host is on another machine, and the router is where the file says.
        sources = [replace(sources[0], base=address_in(told["endpoint_file"]), swarm="")]
    found: list[Point] = []
    deque(measured(benchmarks.plan_of(spec, sources, job=folder.id), benchmarks.store(), found), maxlen=0)
    return found


def measured(plan: BenchPlan, kept: PointStore, found: list[Point], *, again: bool = False) -> Iterator[Point]:
    """Measure all points and say each with its reasons; they are added to `found`, too.

    Raises:
        RemudaError: a point cannot be measured.
    """
    for one in benchmarks.run(plan, kept, Teller(found), again=again):
        yield told(one.point, found)


def told(point: Point, found: list[Point]) -> Point:
    """The same, said with its reasons and added to what was found."""
    found.append(point)
    say(f"{point.name} {point.label}: {point.verdict}")
    for check in point.reasons:
        say(f"  {check.code} {check.name}: {check.text}")
    return point


class Teller:
    """Tells the supervisor that it gets on: a driver that does is not given up."""

    def __init__(self, found: list[Point]) -> None:
        self._found = found
        self._file = os.environ.get(PROGRESS_FILE, "")
        self._told = 0.0

    def __call__(self, load: Load, live: LoadProgress) -> None:
        """A load is under way."""
        if not self._file or time.monotonic() - self._told < _TELL_S:
            return
        self._told = time.monotonic()
        with suppress(OSError):
            step = {
                "step": len(self._found),
                "requests": live.issued if live.line else len(live.rows),
                "load": load.concurrency,
            }
            write_atomic(Path(self._file), json.dumps(step), sync=False)

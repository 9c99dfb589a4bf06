"""The benchmark of a deployment as its driver runs it: loads, or a command of the user's, and what is left of them."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from remuda.base.disk.files import write_atomic
from remuda.base.disk.private import make_private
from remuda.base.errors import InputError, RemudaError, Unwritable
from remuda.batch.address import ENDPOINT_FILE
from remuda.client import mirror
from remuda.plan.deployment.bench import BENCH, SEARCH, TOGETHER, TOLD
from remuda.specs.benchmark import BenchmarkSpec
from remuda.specs.places import is_here
from remuda.supervise.summary import ENDED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from remuda.bench.load import Load
    from remuda.bench.point import Point
    from remuda.bench.store import PointStore
    from remuda.client.bench.benchmarks import BenchPlan, EndpointSource
    from remuda.client.http import HostClient

TASK: Final = f"{BENCH}/0"
VERDICT: Final = "verdict.json"
"""In the folder of the benchmark: what came of it."""
RESULT: Final = "vllm.json"
"""Beside each point: the same as `vllm bench serve` saves it."""


@dataclass(frozen=True)
class BenchmarkEnd:
    """How a deployment with a benchmark has ended."""

    view: Mapping[str, Any]
    exit_code: int
    folder: Path
    """Of the benchmark, in the run directory."""
    verdict: Mapping[str, Any]
    """What the driver left; empty of a command."""

    def points(self) -> list[Point]:
        """Those that were measured."""
        from remuda.client.bench import benchmarks

        kept = benchmarks.store()
        return [kept.find(name) for name in self.verdict.get("points", ())]


def ended(client: HostClient, name: str) -> BenchmarkEnd:
    """Wait until a deployment has ended with its benchmark.

    Raises:
        RemudaError: it ended otherwise: taken down, or its workers failed.
        HostUnreachable: the host went away, and no other came.
    """
    ((view,),) = deque(mirror.wait(client, [name], lambda views: views[0]["phase"] in ENDED), maxlen=1)
    code = next((task["exit_code"] for task in view["tasks"] if task["task"] == TASK), None)
    if code is None or view["phase"] == "DOWN":
        reason = f": {view['reason']}" if view["reason"] else ""
        raise RemudaError(f"{name} is {view['phase']}, and its benchmark did not finish{reason}",
                          hint=f"remuda explain {name}")  # fmt: skip
    folder = Path(view["run_dir"]) / BENCH
    try:
        verdict = json.loads((folder / VERDICT).read_text())
    except (OSError, ValueError):
        verdict = {}
    return BenchmarkEnd(view, int(code), folder, verdict)


# --- the driver ------------------------------------------------------------------------------------------------------


def drive(path: Path) -> int:
    """What the task runs; its exit code is the verdict's, or that of the command, which it becomes.

    Args:
        path: folder of what it is told.
    """
    from remuda.client.jobs.drivers import say

    if not (path / TOLD).is_file():
        raise InputError(f"{path} is not the folder of a job", hint="`remuda job list` shows jobs")
    told = json.loads((path / TOLD).read_text())
    folder = Path(told["run_dir"]) / BENCH
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / VERDICT).unlink(missing_ok=True)
        return _measure(told, folder) if "load" in told or TOGETHER in told else _become(told, folder)
    except (RemudaError, OSError) as error:
        known = error if isinstance(error, RemudaError) else Unwritable(f"{folder} cannot be written: {error.strerror}")
        say(f"{known}\n{known.hint}".strip())
        return known.exit_code


def _measure(told: Mapping[str, Any], folder: Path) -> int:
    from remuda.client.bench import benchmarks, job, search
    from remuda.client.jobs import drivers

    asked, is_swept = told.get(TOGETHER, [told]), TOGETHER in told
    kept = benchmarks.store()
    found: list[Point] = []
    counting: list[Point] = []
    codes: list[int] = []
    ran: list[int] = []
    allowed = {"allow_suspect": is_swept, "allow_changed": is_swept}
    error: RemudaError | None = None
    try:
        for one in sorted(asked, key=_may_stumble):
            if "load" not in one:
                ran.append(_run(one, folder, kept))
                continue
            spec, source = _source(one)
            plan = scaled(benchmarks.plan_of(spec, [source]), one["requests_each"], one["warmup_each"])
            if SEARCH in one:
                hunt = search.hunt_of(one, plan)
                outcome = search.run(
                    hunt, kept, job.Teller(found), lambda tried: keep(kept, job.told(tried.point, found), folder)
                )
                drivers.say(search.result(hunt, outcome))
                codes.append(search.exit_code(outcome, **allowed))
                continue
            for point in job.measured(plan, kept, found, again=not is_swept and not spec.tasks):
                keep(kept, point, folder)
                counting.append(point)
    except RemudaError as failed:
        error = failed
    codes = [error.exit_code] if error else [*codes, *ran, job.exit_code(counting, **allowed)]
    code = min((code for code in codes if code), default=0)  # invalid before suspect
    wrong = next((one for one in ran if one), 0)
    ends = f"a command ended with code {wrong}" if wrong else "" if found else "all commands have ended with 0"
    verdict = verdict_of(found, code, str(error) if error else ends)
    write_atomic(folder / VERDICT, json.dumps(verdict, indent=1))
    if error:
        raise error
    drivers.say(verdict["verdict"])  # The last line is what its task is known by.
    return code


def _may_stumble(told: Mapping[str, Any]) -> bool:
    """Whether it is a command, or questions: where they fail, the endpoint serves the loads all the same."""
    return "load" not in told or bool(told["load"].get("tasks"))


def _source(told: Mapping[str, Any]) -> tuple[BenchmarkSpec, EndpointSource]:
    """What is measured, and where.

    Raises:
        RemudaError: it was taken down, or does not come up.
    """
    from remuda.client.bench import benchmarks
    from remuda.client.jobs import drivers

    name, key = told["name"] if is_here(told["backend"]) else "", told.get("key_env", "")
    spec = BenchmarkSpec.model_validate({**told["load"], "name": name})
    if spec.name:
        return spec, benchmarks.source_of_swarm(spec, drivers.say)
    return spec, benchmarks.EndpointSource(_address(told), spec.model, key, config=told.get("config", ""))


def _run(told: Mapping[str, Any], folder: Path, kept: PointStore) -> int:
    """Run a command of the user's unless it has ended with 0 before; its exit code."""
    from remuda.client.jobs import drivers

    if kept.has_run(told["address"]):
        return 0
    own = make_private(folder / told["address"][:16], below=folder)
    argv, env = told["command"], {**os.environ, **srt_variables(told, _address(told), own), **told["env"]}
    try:
        code = subprocess.run(argv, env=env, cwd=told["cwd"] or None, check=False).returncode
    except OSError as error:
        drivers.say(f"{argv[0]!r} cannot be started in {told['cwd']}: {error.strerror}")
        return 127
    drivers.say(f"{shlex.join(argv)}: exit code {code}")
    if code == 0:
        kept.ran(told["address"])
    return code if code >= 0 else 128 - code


def scaled(plan: BenchPlan, requests_each: int, warmup_each: int) -> BenchPlan:
    """The same with requests and a warm-up for each request in flight."""
    return replace(plan, loads=[_scaled(load, requests_each, warmup_each) for load in plan.loads])


def _scaled(load: Load, requests_each: int, warmup_each: int) -> Load:
    warmup = warmup_each * load.concurrency if warmup_each >= 0 else -1
    return replace(load, requests=requests_each * load.concurrency, warmup=warmup)


def foreseen(told: Mapping[str, Any], servers: int) -> BenchPlan:
    """What a driver will measure that is told this, with the addresses of its loads, before anything is started."""
    from remuda.client.bench import benchmarks

    spec = BenchmarkSpec.model_validate(told["load"])
    # A driver on a cluster cannot ask the host how many servers there are.
    replicas = servers if is_here(told["backend"]) else 0
    source = benchmarks.EndpointSource("", spec.model, replicas=replicas, config=told["config"])
    return scaled(benchmarks.plan_of(spec, [source]), told["requests_each"], told["warmup_each"])


def verdict_of(points: Sequence[Point], code: int, error: str) -> dict[str, Any]:
    """What is left of a benchmark beside its points."""
    counts = Counter(point.verdict for point in points)
    words = [f"{counts[word]} {word}" for word in ("valid", "suspect", "invalid") if counts[word]]
    return {
        "exit_code": code, "verdict": ", ".join([*words, error] if error else words),
        "points": [point.name for point in points],
    }  # fmt: skip


def keep(kept: PointStore, point: Point, folder: Path) -> None:
    """Put a point into the folder of the benchmark, too: its files, and the result as other tools read it.

    Raises:
        Unwritable: the disk refuses.
    """
    from remuda.client.bench import files

    try:
        shutil.copytree(kept.folder(point), folder / point.name, dirs_exist_ok=True)
        with suppress(InputError):  # Nothing was answered: that format has no word for it.
            write_atomic(folder / point.name / RESULT, files.export(kept, [point], "vllm", {}))
    except OSError as error:
        raise Unwritable(f"{folder} cannot be written: {error}", hint=f"the point is kept: {point.name}") from error


def srt_variables(told: Mapping[str, Any], endpoint: str, folder: Path) -> dict[str, str]:
    """What a command finds in its environment; what its recipe says of the same name is left to it."""
    url = urlsplit(endpoint)
    found = {
        "SRT_FRONTEND_HOST": url.hostname or "", "SRT_FRONTEND_PORT": str(url.port or ""), "SRT_ENDPOINT": endpoint,
        "SRT_MODEL_NAME": told["model"], "SRT_JOB_NAME": told["name"], "SRT_LOG_DIR": str(folder),
    }  # fmt: skip
    return {name: value for name, value in found.items() if name not in told["said"]}


def _become(told: Mapping[str, Any], folder: Path) -> int:
    argv = told["command"]
    env = {**os.environ, **srt_variables(told, _address(told), folder), **told["env"]}
    try:
        os.execvpe(argv[0], argv, env)  # noqa: S606 - the user's own command
    except OSError as error:
        raise InputError(f"{argv[0]!r} cannot be started: {error.strerror}", where="benchmark.command") from error


def _address(told: Mapping[str, Any]) -> str:
    """URL of the endpoint, once all of it is up; on a cluster, where the host is on another machine, as its file says.

    Raises:
        RemudaError: it was taken down, or does not come up.
    """
    from remuda.client.jobs import drivers, targets

    if not is_here(told["backend"]):
        return drivers.address_in(f"{told['run_dir']}/{ENDPOINT_FILE}")
    return targets.of_swarm(told["name"], "", "", drivers.say).endpoint.replace("//0.0.0.0:", "//127.0.0.1:")

"""The benchmark of a deployment: a group that measures it once it serves, and with whose end all of it ends. Pure."""

from __future__ import annotations

import hashlib
import json
import math
from typing import TYPE_CHECKING, Any, Final

from remuda import enter
from remuda.base.errors import InputError
from remuda.plan.engines.base import secret, secrets_of
from remuda.plan.identity import CONFIG
from remuda.plan.job import WATCH
from remuda.plan.model import (
    FILES_MARK,
    Command,
    Endpoint,
    Group,
    Replace,
    Resources,
    RestartRule,
    Role,
    Secret,
    Workload,
)
from remuda.specs.deployment import ANSWERS, LOADS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from remuda.specs.deployment import DeploymentSpec

BENCH: Final = "bench"
"""Name of the group, and of the folder of the run directory that holds what came of it."""
KEY: Final = "OPENAI_API_KEY"
HUB_TOKEN: Final = "HF_TOKEN"  # noqa: S105 - its name
TOLD: Final = "deployed.json"
"""File that its driver reads: what is measured, and where."""
SEARCH: Final = "search"
"""Key of it: between which loads the largest is looked for; see `specs.benchmark.LoadSearch`."""
TOGETHER: Final = "together"
"""Key of it: what several benchmarks measure; points that are known stay as they are, and suspect ones are good."""


def with_benchmark(workload: Workload, spec: DeploymentSpec, *, python: str, home: str, cwd: str) -> Workload:
    """The workload of a deployment with the group that measures it, which it ends with; the same without a benchmark.

    Args:
        workload: without it.
        spec: of the deployment.
        python: interpreter that has remuda, where the group runs.
        home: state directory, where points are kept.
        cwd: where a command of the user's is run.

    Raises:
        InputError: it would end with a service, too.
    """
    group = bench_group(workload, spec, python=python, home=home, cwd=cwd)
    if group is None:
        return workload
    if workload.ends_with:
        sentence = f"the deployment ends with the service {workload.ends_with} or with its benchmark, not with both"
        raise InputError(sentence, hint="set benchmark.type=manual, or `terminal: false`", where="benchmark")
    return workload.model_copy(update={"groups": (*workload.groups, group), "ends_with": group.name})


def bench_group(workload: Workload, spec: DeploymentSpec, *, python: str, home: str, cwd: str) -> Group | None:
    """The group alone; None where nothing is measured. Arguments as of `with_benchmark`."""
    bench = spec.benchmark
    if bench.type == "manual":
        return None
    endpoint = workload.endpoint or Endpoint()
    front = next((group for group in workload.groups if group.name == endpoint.router), None)
    last = endpoint.gate or endpoint.router
    return Group(
        name=BENCH,
        role=Role.DRIVER,
        count=1,
        command=Command(
            # -P: it is started where the command was typed, and no file there may pass for a module of ours.
            argv=(python, "-P", *enter.words("drive"), FILES_MARK),
            env={**_late(spec), "REMUDA_HOME": home},
            secret_env=_secrets(spec),
            cwd=cwd,
            files={TOLD: json.dumps(told(workload, spec), indent=1)},
        ),
        restart=RestartRule(policy="never"),
        replace=Replace(policy="never"),
        kill_grace_s=30.0,
        after=(last,) if last else tuple(group.name for group in workload.groups if group.role.serves),
        # On a cluster it is a job beside the frontend's, and as large; where that is on this machine, so is it.
        resources=front.resources if front else Resources(),
        pools=front.pools if front else (),
        backend="local" if workload.is_asked_here and not workload.is_here else "",
        watch=None if workload.is_asked_here else WATCH,
    )


def told(workload: Workload, spec: DeploymentSpec) -> dict[str, Any]:
    """What the driver of the group reads.

    A load has requests and a warm-up by the number of those in flight, so each point has its own.
    """
    bench = spec.benchmark
    common = {"name": workload.name, "backend": workload.backend, "run_dir": workload.run_dir, "type": bench.type}
    if bench.type not in (*LOADS, *ANSWERS):
        early = {name: text for name, text in _env(spec).items() if _is_early(name)}
        return {**common, "model": spec.model.name or "", "command": list(bench.command), "said": sorted(bench.env),
                "env": early}  # fmt: skip
    key = {"key_env": KEY} if spec.api_key is not None else {}
    loads = {**common, "load": load_words(workload, spec), **key, "config": workload.labels.get(CONFIG, "")}
    if bench.search is None:
        return {**loads, "requests_each": bench.num_prompts_mult, "warmup_each": bench.num_warmup_mult}
    # A search measures until its percentiles are known, unless it is said how many requests that takes.
    each = bench.num_prompts_mult if "num_prompts_mult" in bench.model_fields_set else 0
    return {**loads, "requests_each": each, "warmup_each": -1, SEARCH: bench.search.model_dump()}


def command_address(workload: Workload, spec: DeploymentSpec, seen: Sequence[object]) -> str:
    """The content address of a command on a deployment: one that has ended with 0 need not run again.

    Args:
        workload: of the deployment.
        spec: of it.
        seen: where the command is run, and what tells its files of today from those that lie there tomorrow.
    """
    said = [workload.labels.get(CONFIG, ""), spec.benchmark.command, _env(spec), seen]
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def measuring(
    workload: Workload, asked: Sequence[tuple[DeploymentSpec, int]], cwd: str,
    seen: Callable[[Sequence[str]], Sequence[object]],
) -> Workload:  # fmt: skip
    """The workload of a deployment that ends once the points of several benchmarks are there, what is missing measured.

    Args:
        workload: of one of them, accepted.
        asked: those that differ in nothing but the benchmark, and how often each load is to be measured.
        cwd: where commands are run.
        seen: of a command, see `command_address`.

    Raises:
        InputError: questions of theirs differ in a variable.
    """
    key = asked[0][0].api_key  # of which the endpoint is
    asked = [(spec.model_copy(update={"api_key": key}), repeats) for spec, repeats in asked]
    bench = next(group for group in workload.groups if group.name == BENCH)
    loads = [told(workload, spec) for spec, _ in asked]
    env, secrets = dict[str, str](), dict[str, Secret]()
    for one, (spec, repeats) in zip(loads, asked, strict=True):
        secrets |= _secrets(spec)
        if spec.benchmark.type == "custom":
            one |= {
                "env": _env(spec),
                "cwd": cwd,
                "address": command_address(workload, spec, seen(spec.benchmark.command)),
            }
        else:
            one["load"]["repeats"] = repeats
            if other := [name for name, text in _late(spec).items() if env.get(name, text) != text]:
                sentence = f"{other[0]} is not the same for all questions to a deployment"
                hint = "say the same for all, or sweep them one after the other"
                raise InputError(sentence, hint=hint, where="benchmark.env")
            env |= _late(spec)
    files = {TOLD: json.dumps({**loads[0], TOGETHER: loads}, indent=1)}
    env["REMUDA_HOME"] = bench.command.env["REMUDA_HOME"]
    changed = {"files": files, "env": env, "secret_env": secrets}
    bench = bench.model_copy(update={"command": bench.command.model_copy(update=changed)})
    groups = tuple(bench if group.name == BENCH else group for group in workload.groups)
    # One that has ended is never the answer: what it did not measure is asked of the next.
    return workload.model_copy(update={"groups": groups, "digest": workload.uid})


def _secrets(spec: DeploymentSpec) -> dict[str, Secret]:
    return {**_key(spec), **_token(spec), **(secrets_of(spec) if spec.benchmark.type == "custom" else {})}


def _key(spec: DeploymentSpec) -> dict[str, Secret]:
    """The variable in which loads and commands find the key of the endpoint, unless the recipe says it otherwise."""
    return {KEY: secret(spec.api_key)} if spec.api_key is not None and KEY not in _env(spec) else {}


def _token(spec: DeploymentSpec) -> dict[str, Secret]:
    """The variable in which what asks gated questions finds the token of the hub."""
    return {HUB_TOKEN: secret(spec.benchmark.hub_token)} if spec.benchmark.hub_token is not None else {}


def _env(spec: DeploymentSpec) -> dict[str, str]:
    """Variables of a command of the user's; none of what is for engines is for a program of ours."""
    own = spec.benchmark.env if spec.benchmark.type in ("custom", *ANSWERS) else {}
    return {**(spec.env if spec.benchmark.type == "custom" else {}), **own}


def _late(spec: DeploymentSpec) -> dict[str, str]:
    return {name: text for name, text in _env(spec).items() if not _is_early(name)}


def _is_early(name: str) -> bool:
    """Whether an interpreter reads a variable when it starts: ours, which becomes the command, must not."""
    return name.startswith(("PYTHON", "LD_"))


def load_words(workload: Workload, spec: DeploymentSpec) -> dict[str, Any]:
    """The benchmark in the words of a document of kind benchmark.

    A rate of `inf` alone is a closed loop: as many requests are in flight as may be. Beside other rates it is one.
    """
    bench = spec.benchmark
    rates = () if all(math.isinf(rate) for rate in bench.req_rate) else bench.req_rate
    gpus = sum(one.count * one.resources.gpus * one.resources.nodes for one in workload.groups if one.role.serves)
    first = next(iter(spec.by_name()))
    search: dict[str, Any] = {"slo": bench.search.slo} if bench.search is not None else {}
    if bench.search is not None and bench.search.maximise == "rate":
        rates = (bench.search.min,)
    about = {
        "deployment": workload.name, "framework": spec.engine_of(first).type, "precision": spec.model.precision,
        "image": spec.container or "",
    }  # fmt: skip
    asked: dict[str, Any] = {name: getattr(bench, name) for name in ("tasks_dir", "limit", "num_fewshot", "max_tokens")}
    asked |= {"tasks": [*bench.tasks] or [bench.type], "concurrency": list(bench.concurrencies[:1]), "rate": []}
    words = {
        "kind": "benchmark", "name": workload.name, "model": spec.model.name or "", "isl": bench.isl, "osl": bench.osl,
        "range_ratio": bench.random_range_ratio, "concurrency": list(bench.concurrencies),
        "rate": ["inf" if math.isinf(rate) else rate for rate in rates],
        "api": "chat" if bench.use_chat_template else "completions",
        "gpus": gpus, "gpu_type": spec.gpu_type if gpus else "",
        "meta": {name: text for name, text in about.items() if text}, **search,
        **(asked if bench.type in ANSWERS else {}), "validity": bench.validity or None,
    }  # fmt: skip
    return {name: value for name, value in words.items() if value is not None}

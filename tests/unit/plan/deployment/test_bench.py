"""What of a recipe's benchmark becomes which word of a load, and what a command is told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from remuda.base.errors import InputError
from remuda.client.bench.benchmarks import BenchPlan, loads_of
from remuda.client.bench.deployed import scaled
from remuda.plan.deployment.bench import TOLD, bench_group, load_words, with_benchmark
from remuda.plan.job import WATCH
from remuda.plan.model import Command, Endpoint, Group, Kind, Pool, Resources, Role, Secret, Workload
from remuda.specs.benchmark import BenchmarkSpec
from remuda.specs.deployment import DeploymentSpec

if TYPE_CHECKING:
    from remuda.bench.load import Load

LOAD = {"type": "sa-bench", "isl": 64, "osl": 32, "concurrencies": [2, 4]}
PLACES = {"python": "/r/python", "home": "/home/me/.remuda", "cwd": "/work"}


def spec_of(benchmark: dict[str, Any], **more: Any) -> DeploymentSpec:
    document = {
        "name": "apart", "model": {"path": "/m/tiny", "name": "tiny"}, "engine": "mocker",
        "roles": {"prefill": {}, "decode": {"workers": 2}}, "benchmark": benchmark, **more,
    }  # fmt: skip
    return DeploymentSpec.model_validate(document)


def workload(router: str = "frontend", gpus: int = 0, backend: str = "local") -> Workload:
    def group(name: str, role: Role, count: int) -> Group:
        return Group(name=name, role=role, count=count, command=Command(argv=("x",)), resources=Resources(gpus=gpus))

    groups = (group("prefill", Role.PREFILL, 1), group("decode", Role.DECODE, 2), group("frontend", Role.ROUTER, 1))
    return Workload(
        name="apart", kind=Kind.DEPLOYMENT, uid="u", backend=backend, run_dir="/runs/apart", groups=groups,
        endpoint=Endpoint(router=router, model="tiny"),
    )  # fmt: skip


def loads(**changes: Any) -> list[Load]:
    """The loads that are offered in the end."""
    spec = spec_of({**LOAD, **changes})
    group = bench_group(workload(), spec, **PLACES)
    assert group is not None
    told = json.loads(group.command.files[TOLD])
    benchmark = BenchmarkSpec.model_validate(told["load"])
    plan = BenchPlan(benchmark, [], [], loads_of(benchmark))
    return scaled(plan, told["requests_each"], told["warmup_each"]).loads


@pytest.mark.parametrize(
    ("changes", "word", "expected"),
    [
        ({}, "concurrency", [2, 4]),
        ({}, "isl", [64, 64]),
        ({}, "osl", [32, 32]),
        ({}, "range_ratio", [0.8, 0.8]),
        ({"random_range_ratio": 1}, "range_ratio", [1, 1]),
        ({}, "requests", [20, 40]),
        ({"num_prompts_mult": 3}, "requests", [6, 12]),
        ({}, "warmup", [4, 8]),
        ({"num_warmup_mult": 0}, "warmup", [0, 0]),
        ({}, "api", ["chat", "chat"]),
        ({"use_chat_template": False}, "api", ["completions", "completions"]),
        ({}, "is_open", [False, False]),
        ({"req_rate": "inf"}, "is_open", [False, False]),
        ({"req_rate": 5}, "rate", [5, 5]),
        ({"req_rate": [5, "inf"]}, "rate", [5, 5, float("inf"), float("inf")]),
        ({"req_rate": [5, "inf"]}, "concurrency", [2, 4, 2, 4]),
        ({"concurrencies": "1x8"}, "requests", [10, 80]),
        ({"type": "sglang-bench"}, "requests", [20, 40]),
    ],
)
def test_each_word_of_a_recipe_has_its_place_in_a_load(changes: dict[str, Any], word: str, expected: list[Any]) -> None:
    assert [getattr(load, word) for load in loads(**changes)] == expected


def test_what_is_kept_beside_the_points() -> None:
    spec = spec_of(LOAD, gpu_type="h100", container="/c.sqsh")
    words = load_words(workload(gpus=4), spec)
    assert (words["name"], words["model"], words["gpus"], words["gpu_type"]) == ("apart", "tiny", 12, "h100")
    assert words["meta"] == {"deployment": "apart", "framework": "mocker", "image": "/c.sqsh"}
    assert load_words(workload(), spec)["gpu_type"] == "", "a simulated engine has no GPU, whatever its recipe says"


def test_nothing_is_measured_by_hand() -> None:
    assert with_benchmark(workload(), spec_of({"type": "manual"}), **PLACES) == workload()


def test_a_command_has_the_environment_of_the_deployment_and_its_own() -> None:
    custom = {"type": "custom", "command": ["run.sh", "-x"], "env": {"SRT_JOB_NAME": "mine", "A": "two"}}
    spec = spec_of(custom, env={"A": "one", "B": "one", "PYTHONPATH": "/theirs"}, secret_env={"KEY": {"file": "/key"}})
    group = bench_group(workload(backend="slurm"), spec, **PLACES)
    assert group is not None
    assert group.command.env == {"A": "two", "B": "one", "SRT_JOB_NAME": "mine", "REMUDA_HOME": "/home/me/.remuda"}
    assert list(group.command.secret_env) == ["KEY"]
    assert json.loads(group.command.files[TOLD]) == {
        "name": "apart", "backend": "slurm", "run_dir": "/runs/apart", "type": "custom", "model": "tiny",
        "command": ["run.sh", "-x"], "said": ["A", "SRT_JOB_NAME"], "env": {"PYTHONPATH": "/theirs"},
    }  # fmt: skip
    load = bench_group(workload(), spec_of(LOAD, env={"A": "one"}), **PLACES)
    assert load is not None
    assert "A" not in load.command.env, "what is for engines is not for a program of ours"


def test_questions_are_told_in_the_words_of_a_benchmark() -> None:
    questions = {
        "type": "gpqa", "limit": 40, "concurrencies": [8, 16], "req_rate": 5, "hub_token": {"env": "MINE"},
        "env": {"HF_HOME": "/h", "PYTHONPATH": "/x"},
    }  # fmt: skip
    group = bench_group(workload(), spec_of(questions, env={"A": "one"}), **PLACES)
    assert group is not None
    assert group.command.env == {"HF_HOME": "/h", "REMUDA_HOME": "/home/me/.remuda"}
    assert group.command.secret_env == {"HF_TOKEN": Secret(env="MINE")}
    asked = BenchmarkSpec.model_validate(json.loads(group.command.files[TOLD])["load"])
    assert (asked.tasks, asked.limit, asked.concurrency) == (("gpqa_diamond_cot_zeroshot",), 40, (8,))
    assert (asked.api, asked.rate, asked.num_fewshot, asked.hub_token) == ("chat", (), None, None)


def test_it_comes_after_the_gate_and_is_a_job_beside_the_frontend() -> None:
    made = workload(backend="slurm")
    place = {"resources": Resources(cpus=2), "pools": (Pool(name="cpu"),)}
    groups = (*made.groups[:-1], made.groups[-1].model_copy(update=place))
    endpoint = Endpoint(router="frontend", gate="gate")
    group = bench_group(made.model_copy(update={"groups": groups, "endpoint": endpoint}), spec_of(LOAD), **PLACES)
    assert group is not None
    assert (group.after, group.resources.cpus, group.pools[0].name, group.watch) == (("gate",), 2, "cpu", WATCH)


def test_a_deployment_has_one_end() -> None:
    made = workload().model_copy(update={"ends_with": "mine"})
    assert with_benchmark(made, spec_of({"type": "manual"}), **PLACES) == made
    with pytest.raises(InputError, match="ends with the service mine or with its benchmark, not with both"):
        with_benchmark(made, spec_of(LOAD), **PLACES)


def test_without_a_router_it_comes_after_the_workers() -> None:
    group = bench_group(workload(router=""), spec_of(LOAD), **PLACES)
    assert group is not None
    assert group.after == ("prefill", "decode")

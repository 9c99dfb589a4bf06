"""Recipes of all engines and frontends, as files: `tests/cases/deployments/NAME.yaml` gives what `NAME.txt` says."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.deploymentcases import BALANCER, CASES, FRONT, SITE, text_of_case

from remuda.plan.deployment import has_balancer, plan_deployment, serving
from remuda.plan.deployment.bench import load_words
from remuda.plan.deployment.packing import in_one_job
from remuda.plan.identity import config_of
from remuda.plan.model import Resources
from remuda.specs.reading.document import parse
from remuda.specs.recipe.load import build

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("file", sorted(CASES.glob("*.yaml")), ids=lambda path: path.stem)
def test_what_is_planned_of_a_recipe(file: Path) -> None:
    assert text_of_case(file) == file.with_suffix(".txt").read_text()


def test_every_case_is_whole() -> None:
    assert {path.stem for path in CASES.glob("*.yaml")} == {path.stem for path in CASES.glob("*.txt")}


@pytest.mark.parametrize("file", sorted(CASES.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_config_is_known_without_a_plan_and_is_what_was_recorded_of_it(file: Path) -> None:
    """`configs.json` is of the version that kept the first points: what was measured then is known now."""
    spec = build(parse(file.read_text(), file.name))[0].loaded.spec
    balancer, front = BALANCER if has_balancer(spec) else None, FRONT if spec.frontend.type != "none" else None
    facts: Any = SimpleNamespace(
        stamp=lambda path, module="": [[path, module]], program=lambda name: "" if "/" in name else f"/bin/{name}"
    )
    bare, whole = serving(spec, SITE), plan_deployment(spec, front, SITE, balancer).workload
    recorded = json.loads((CASES / "configs.json").read_text())[file.stem]
    assert [config_of(one, spec, spec.model.path, facts) for one in (bare, whole)] == [recorded] * 2
    assert load_words(bare, spec) == load_words(in_one_job(whole, spec), spec)


WORKERS = """\
schema: 2
name: x
model: {path: /models/m, name: m}
engine: sglang
roles:
  prefill: {nodes: 1}
  decode: {nodes: 1}
slurm: {partition: gpu}
"""


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("prefill: {nodes: 1}", "prefill: {nodes: 1, workers: 5}",
         "roles.prefill.workers: 5 workers of prefill share 4 GPUs: fewer than one each"),
        ("prefill: {nodes: 1}", "prefill: {nodes: 2, workers: 3, gpus: 3}",
         "roles.prefill.workers: 3 workers of prefill with 3 GPUs each need 3 nodes, and it has 2"),
        ("prefill: {nodes: 1}", "prefill: {nodes: 2, gpus: 6}",
         "roles.prefill.gpus: a worker of prefill has 6 GPUs and a node has 4: it must use all of each"),
        ("decode: {nodes: 1}", "decode: {nodes: colocate}",
         "roles.decode.workers: 1 workers of decode share 0 GPUs: fewer than one each"),
        ("decode: {nodes: 1}", "decode: {nodes: colocate, gpus: 2}",
         "roles.decode.nodes: 1 workers of decode with 2 GPUs each share prefill's nodes, which leaves 0"),
        ("engine: sglang", "engine: llamacpp",
         "engine.type: llamacpp does both in one server and is not a Dynamo worker"),
        ("engine: sglang", "engine: {type: vllm, connector: pigeon}",
         "engine.connector: the connector 'pigeon' is not known"),
        ("engine: sglang\nroles:\n  prefill: {nodes: 1}",
         "engine: vllm\nroles:\n  prefill: {nodes: 1, args: {connector: [nixl, lmcache]}}",
         "roles.prefill.args.connector: the connector ['nixl', 'lmcache'] is not known"),
        ("engine: sglang", "engine: vllm\nfrontend: {type: smg}",
         "frontend.type: disaggregated prefill/decode with vllm is not supported behind smg yet"),
        ("engine: sglang", "engine: mocker\nfrontend: {type: smg}",
         "frontend.type: the mocker is asked by Dynamo's frontend only"),
        ("engine: sglang", "engine: sglang\nfrontend: {type: none}",
         "frontend.type: without a frontend there is one worker"),
        ("engine: sglang", "engine: trtllm\nfrontend: {type: trtllm_serve}",
         "frontend.type: TensorRT-LLM's own frontend cannot be started yet"),
        ("engine: sglang\nroles:\n  prefill: {nodes: 1}", "engine: llamacpp\nroles:\n  prefill: {nodes: 2}",
         "roles.prefill.gpus: llamacpp cannot be started over 2 nodes yet"),
        ("engine: sglang\nroles:\n  prefill: {nodes: 1}",
         "engine: vllm\nroles:\n  prefill: {nodes: 3, args: {data-parallel-size: 12}}",
         "roles.prefill.args: vllm with 12 data-parallel ranks over 3 nodes cannot be started yet"),
        ("prefill: {nodes: 1}", "prefill: {nodes: 1, args: {disaggregation-mode: decode}}",
         "roles.prefill.args.disaggregation-mode: `roles.prefill.args.disaggregation-mode` is 'decode'"),
        ("slurm: {partition: gpu}", "slurm: {partition: gpu}\nsbatch_directives: {'x; rm': 1}",
         "backend.sbatch_directives: 'x; rm' is not an option of Slurm"),
    ],
)  # fmt: skip
def test_what_cannot_be_brought_up_is_said_before_anything_is_allocated(
    tmp_path: Path, old: str, new: str, sentence: str
) -> None:
    assert old in WORKERS
    file = tmp_path / "r.yaml"
    file.write_text(WORKERS.replace(old, new))
    assert text_of_case(file).startswith(f"error: {sentence}")


def test_in_a_fleet_what_stands_before_workers_is_here() -> None:
    text = WORKERS.replace("schema: 2", "kind: deployment").replace("slurm: {partition: gpu}", "backend: fleet")
    spec = build(parse(f"{text}frontend: {{type: dynamo, replicas: 2}}\n", "r.yaml"))[0].loaded.spec
    workload = plan_deployment(spec, FRONT, SITE, BALANCER).workload
    assert (workload.backend, workload.place["partition"], workload.is_asked_here) == ("slurm", "fleet", True)
    here = {group.name for group in workload.groups if group.backend == "local"}
    assert here == {"frontend", "balancer", "relay", "gate"}
    for name in ("frontend", "balancer"):
        group = workload.group(name)
        assert group.listen is not None
        assert (group.listen.public, group.resources, group.silence_s) == (False, Resources(), 0.0)
    packed = in_one_job(workload, spec.model_copy(update={"allocation": "one-job"}))
    assert {group.name for group in packed.groups if group.together} == {"prefill", "decode"}


@pytest.mark.parametrize(
    ("gpu_type", "said", "bound"),
    [
        ("GB200", None, ("numactl", "-m", "0,1")),
        ("gb300-nvl72", None, ("numactl", "-m", "0,1")),
        ("gb200", "false", ()),
        ("b200", None, ()),
        ("b200", "true", ("numactl", "-m", "0,1")),
        ("b200", "1", ("numactl", "-m", "1")),
    ],
)
def test_to_which_memory_a_worker_of_tensorrt_llm_is_bound(
    gpu_type: str, said: str | None, bound: tuple[str, ...]
) -> None:
    text = WORKERS.replace("engine: sglang", f"engine: {{type: trtllm, numa_memory_bind: {said or 'null'}}}")
    spec = build(parse(f"{text}resources: {{gpu_type: {gpu_type}}}\n", "r.yaml"))[0].loaded.spec
    argv = plan_deployment(spec, FRONT, SITE).workload.groups[0].command.argv
    assert argv[: len(bound) + 1] == (*bound, "trtllm-llmapi-launch")

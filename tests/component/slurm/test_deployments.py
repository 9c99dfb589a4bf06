"""`remuda apply` on a real Slurm: a job a worker, and workers that span nodes."""

from __future__ import annotations

import json
import os
import re
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import until

if TYPE_CHECKING:
    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed

STANDINS = Path(__file__).parents[2] / "standins"
RECIPE = """\
schema: 2
name: wide
model: {{path: {model}, name: tiny}}
engine: sglang
environment: {{PYTHONPATH: "{standins}"}}
resources: {{gpus_per_node: 2, gpu_type: any}}
slurm: {{partition: spot, account: inference, time_limit: "01:00:00", frontend_partition: cpu}}
roles:
  prefill: {{nodes: 2, workers: 1}}
  decode: {{nodes: 2, workers: 1}}
frontend: {{type: sglang-router, cpus: 1, mem: 200MB}}
"""


def ask(site: Home) -> int:
    """Tokens of an answer."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}
    request = urllib.request.Request(site.view("wide")["endpoint"] + "/v1/chat/completions")
    request.add_header("content-type", "application/json")
    with urllib.request.urlopen(request, json.dumps(body).encode(), timeout=60) as answer:
        return int(json.load(answer)["usage"]["completion_tokens"])


def tasks(site: Home) -> dict[str, dict[str, Any]]:
    return {task["task"]: task for task in site.view("wide")["tasks"]}


def test_prefill_over_two_nodes_beside_decode_over_two_nodes(site: Home, slurm: SlurmBed) -> None:
    (site.root / "model").mkdir()
    (site.root / "model/config.json").write_text("{}")
    recipe = site.root / "recipe.yaml"
    recipe.write_text(RECIPE.format(model=site.root / "model", standins=STANDINS))
    try:
        done = site.run("apply", str(recipe))
    except AssertionError as error:
        raise AssertionError(f"{error}\n{site.run('logs', 'wide', '--role', 'prefill').stdout}") from None
    assert "wide is up: prefill 1/1, decode 1/1, model tiny" in done.stderr
    assert site.view("wide")["roles"] == [
        {"role": "prefill", "ready": 1, "wanted": 1}, {"role": "decode", "ready": 1, "wanted": 1},
    ]  # fmt: skip
    jobs = [line.split() for line in slurm.run("squeue", "-h", "-o", "%j %P %D %N").stdout.splitlines()]
    shapes = {name.split(".")[1]: (partition, nodes) for name, partition, nodes, _ in jobs}
    assert shapes == {"prefill": ("spot", "2"), "decode": ("spot", "2"), "frontend": ("cpu", "1")}
    used = slurm.run("squeue", "-h", "-p", "spot", "-o", "%N").stdout.split()
    names = [name for text in used for name in slurm.run("scontrol", "show", "hostnames", text).stdout.split()]
    assert len(set(names)) == 4, "no node is shared"
    assert ask(site) == 5
    gate = site.run("logs", "wide", "--role", "gate").stdout
    assert "sglang:prompt_tokens_total of prefill: 0 → 7" in gate
    assert "2 ranks are here" in site.run("logs", "wide", "--role", "prefill").stdout

    # The job that decodes is cancelled: another takes its place, and prefill is left alone.
    before = tasks(site)
    slurm.run("scancel", next(task["native"] for name, task in before.items() if name == "decode/0"))
    until(lambda: tasks(site)["decode/0"]["attempt"] > before["decode/0"]["attempt"], "another job decodes")
    until(lambda: site.view("wide")["phase"] == "RUNNING", "all is well again")
    until(lambda: ask(site) == 5, "it answers")
    assert tasks(site)["prefill/0"]["attempt"] == before["prefill/0"]["attempt"]
    site.run("down", "wide")
    assert slurm.run("squeue", "-h", "-o", "%j").stdout == ""


RANKS = """\
schema: 2
name: ranks
model: {{path: {root}/model, name: tiny}}
engine: trtllm
environment: {{PATH: "{root}/bin:{path}", PYTHONPATH: "{standins}"}}
resources: {{gpus_per_node: 2}}
slurm: {{partition: spot, account: inference, time_limit: "01:00:00"}}
roles: {{agg: {{nodes: {nodes}, workers: {workers}, args: {{cuda_graph_config: null}}}}}}
frontend: {{type: {front}}}
allocation: {allocation}
"""


@pytest.mark.parametrize(
    ("workers", "front", "allocation"), [(1, "none", "per-worker"), (2, "smg", "one-job")], ids=["alone", "in one job"]
)
def test_ranks_of_mpi_over_two_nodes(site: Home, slurm: SlurmBed, workers: int, front: str, allocation: str) -> None:
    (site.root / "model").mkdir()
    (site.root / "model/config.json").write_text("{}")
    (site.root / "bin").mkdir()
    words = {
        "trtllm-llmapi-launch": f'{STANDINS}/llmapi_launch.py "$@"',
        "trtllm-serve": '-m sglang.launch_server --model-path "$1" --served-model-name tiny --host "$3" --port "$5"',
    }
    for name, more in words.items():
        program = site.root / "bin" / name
        program.write_text(f"#!/bin/sh\nexec {sys.executable} {more}\n")
        program.chmod(0o755)
    recipe = site.root / "ranks.yaml"
    recipe.write_text(RANKS.format(
        root=site.root, path=os.environ["PATH"], standins=STANDINS, workers=workers, nodes=2 * workers, front=front,
        allocation=allocation,
    ))  # fmt: skip
    try:
        done = site.run("apply", str(recipe))
    except AssertionError as error:
        raise AssertionError(f"{error}\n{site.run('logs', 'ranks', '--role', 'agg').stdout}") from None
    assert f"ranks is up: {workers} of {workers} replica" in done.stderr
    nodes: list[str] = []
    for log in site.paths.workload("ranks").glob("agg-*/*/child.log"):
        said = re.findall(r"rank (\d) of 4 is on (\S+), shares moe_shared_(\d+)", log.read_text())
        assert sorted(rank for rank, _, _ in said) == ["0", "1", "2", "3"]
        assert len({shared for _, _, shared in said}) == 1
        nodes += {node for _, node, _ in said}
    assert len(nodes) == len(set(nodes)) == 2 * workers, "no node is shared"
    site.run("down", "ranks")
    assert slurm.run("squeue", "-h", "-o", "%j").stdout == ""

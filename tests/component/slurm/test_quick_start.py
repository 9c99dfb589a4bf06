"""The quick start of domyn-swarm, from its file to its last command, on a cluster whose names are those of the file."""

from __future__ import annotations

import json
import tempfile
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conftest import PYTHON

import remuda
from remuda.testing.slurm import SlurmBed
from remuda.testing.slurm.topology import NodeShape, Partition, Qos, Topology

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Home

SOURCES = str(Path(remuda.__file__).parents[1])
#: As it stands in the quick start, character by character; the cluster has these names.
CONFIG = """\
# config.yaml
model: "HuggingFaceTB/SmolLM3-3B-Base"
gpus_per_replica: 16
replicas: 2
backend:
  type: slurm
  partition: partition_name    # your HPC partition
  account: account_name          # your HPC account
  qos: qos_name             # qos for cluster + jobs
"""
NODES = ("big-1", "big-2")
#: The defaults ask for 32 CPUs and 16 GB for the endpoint, and for 32 CPUs for each replica.
CLUSTER = Topology(
    nodes=tuple(NodeShape(name, "a100", 16, cpus=128, memory_mib=512_000) for name in NODES),
    partitions=(Partition("partition_name", NODES, "Default=YES"),),
    qos=(Qos("qos_name"),),
    accounts=("account_name",),
)
#: Stands where vLLM's command stands on the nodes: the same words, an engine that needs no GPU.
VLLM = f"""#!/bin/sh
case "$*" in *--help*) echo "--host --port --tensor-parallel-size"; exit 0;; esac
model=$2
while [ "$1" != --host ]; do shift; done
export PYTHONPATH={SOURCES}
exec {PYTHON} -m remuda.testing.engine --model "$model" "$1" "$2" "$3" "$4"
"""
SCRIPT = """\
import json, os, sys, urllib.request
body = {"model": os.environ["MODEL"], "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
request = urllib.request.Request(os.environ["ENDPOINT"] + "/v1/chat/completions", json.dumps(body).encode(),
                                 {"content-type": "application/json"})
print(sys.argv[1:], json.load(urllib.request.urlopen(request, timeout=60))["usage"]["completion_tokens"])
"""


@pytest.fixture
def cluster() -> Iterator[SlurmBed]:
    bed = SlurmBed(tempfile.mkdtemp(prefix="rmsl", dir="/tmp"), topology=CLUSTER, owned=True)
    try:
        bed.up()
        yield bed
    finally:
        bed.down()


def test_every_step_of_it(home: Home, cluster: SlurmBed) -> None:
    home.env |= {**cluster.env(), "REMUDA_SLURM_POLL_S": "0.5"}
    (home.root / "config.yaml").write_text(CONFIG)
    engine = home.root / "vllm"
    engine.write_text(VLLM)
    engine.chmod(0o755)
    shown = home.run("up", "-c", "config.yaml", "--dry-run").stdout
    array = next(line for line in shown.splitlines() if line.startswith("sbatch ") and "--array=" in line)
    words = "--partition=partition_name --account=account_name --qos=qos_name --gres=gpu:4 --cpus-per-task=32 --nodes=4"
    assert words in array
    assert "--time=1-12:00:00 " in array
    assert "--array=0-1" in array

    # The nodes here have all 16 GPUs, and the engine is a stand-in: the file says neither.
    here = ("--set", "gpus_per_node=16", "--set", f"engine_path={engine}")
    up = home.run("up", "-c", "config.yaml", *here)
    assert up.stdout.startswith("OPENAI_BASE_URL=http://")
    (swarm,) = json.loads(home.run("swarm", "list", "--json").stdout)
    name = swarm["name"]
    assert name.startswith("smollm3-3b-base")
    with urllib.request.urlopen(up.stdout.strip().partition("=")[2] + "/models", timeout=60) as answer:
        assert json.load(answer)["data"][0]["id"] == "HuggingFaceTB/SmolLM3-3B-Base"

    messages = [[{"role": "user", "content": f"question {number}"}] for number in range(20)]
    pq.write_table(pa.table({"messages": messages}), home.root / "chat_completion.parquet")
    home.run(
        "job", "submit", "--name", name, "--job-kwargs", '{"temperature":0.3}', "--checkpoint-interval", "16",
        "--max-concurrency", "8", "--retries", "2", "--input", "chat_completion.parquet", "--output", "results.parquet",
    )  # fmt: skip
    results = pq.read_table(home.root / "results.parquet")
    assert results.column("messages").to_pylist() == messages
    assert results.column("error").null_count == 20

    (home.root / "my_custom_driver.py").write_text(SCRIPT)
    done = home.run("job", "submit-script", "--name", name, "my_custom_driver.py", "--", "--verbose", "--foo", "bar")
    assert "['--verbose', '--foo', 'bar'] 4" in done.stdout

    assert "2 of 2 ready" in home.run("status", name).stdout
    assert name in home.run("swarm", "list").stdout
    home.run("down", name)
    assert cluster.run("squeue", "-h", "-o", "%j").stdout == ""

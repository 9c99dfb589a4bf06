"""The quick start of domyn-swarm, from its file to its last command, on a cluster whose names are those of the file."""

from __future__ import annotations

import json
import os
import tempfile
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conftest import until

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
#: What the file leaves to its defaults: a replica is 4 nodes of 4 GPUs, each with 32 CPUs, held together by Ray.
NODES = tuple(f"node-{number}" for number in range(1, 9))
CLUSTER = Topology(
    nodes=tuple(NodeShape(name, "a100", 4, cpus=128, memory_mib=512_000) for name in NODES),
    partitions=(Partition("partition_name", NODES, "Default=YES"),),
    qos=(Qos("qos_name"),),
    accounts=("account_name",),
)
#: Stands where vLLM's module stands: the same words, on the Ray cluster that it is given, and an engine without GPUs.
VLLM = """\
import os, sys
if "--help" in " ".join(sys.argv):
    print("--host --port --tensor-parallel-size --distributed-executor-backend")
    sys.exit()
import ray
from tests.fakes.engine import main
words = sys.argv[1:]
said = dict(zip(words, words[1:]))
assert said["--distributed-executor-backend"] == "ray", words
ray.init(address=os.environ["RAY_ADDRESS"])
assert sum(node["Resources"]["GPU"] for node in ray.nodes()) == int(said["--tensor-parallel-size"]) == 16, words
sys.exit(main(["--model", said["serve"], "--host", said["--host"], "--port", said["--port"]]))
"""
#: Eight nodes of real Ray keep two cores busy for eight minutes; two are tested elsewhere. This one only counts.
RAY = """\
import json, socket
def init(address, **_):
    host, _, port = address.rpartition(":")
    global head
    head = host, int(port)
__version__ = "2.55.0"

def nodes():
    with socket.create_connection(head, 30) as line:
        line.sendall(b"?\\n")
        return [{"Alive": True, "Resources": {"GPU": gpus}} for gpus in json.loads(line.makefile().readline())]
"""
RAY_START = """\
import json, socket, sys, threading
said = dict(word.partition("=")[::2] for word in sys.argv[1:])
there = {}
def serve(line):
    asked = line.makefile().readline().strip()
    if asked == "?":
        line.sendall(json.dumps(list(there.values())).encode() + b"\\n")
    elif asked:
        there[line] = float(asked)
        line.recv(1)
        del there[line]
    line.close()
if "--head" in said:
    there[None] = float(said["--num-gpus"])
    listener = socket.create_server(("0.0.0.0", int(said["--port"])), backlog=100)
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
host, _, port = said["--address"].rpartition(":")
with socket.create_connection((host, int(port)), 30) as line:
    line.settimeout(None)
    line.sendall(said["--num-gpus"].encode() + b"\\n")
    line.recv(1)
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
    packages = {"vllm/entrypoints/cli/main.py": VLLM, "ray/__init__.py": RAY, "ray/scripts/scripts.py": RAY_START}
    for name, text in packages.items():
        path = home.root / "packages" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    home.env["PYTHONPATH"] = os.pathsep.join([str(home.root / "packages"), SOURCES])
    shown = home.run("up", "-c", "config.yaml", "--dry-run").stdout
    array = next(line for line in shown.splitlines() if line.startswith("sbatch ") and "--array=" in line)
    words = "--partition=partition_name --account=account_name --qos=qos_name --gres=gpu:4 --cpus-per-task=32 --nodes=4"
    assert words in array
    assert "--time=1-12:00:00 " in array
    assert "--array=0-1" in array

    up = home.run("up", "-c", "config.yaml", timeout=600)
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

    # The first that is ready is enough for all of the above.
    until(lambda: "2 of 2 ready" in home.run("status", name).stdout, "both are ready", 480)
    assert name in home.run("swarm", "list").stdout
    home.run("down", name)
    assert cluster.run("squeue", "-h", "-o", "%j").stdout == ""

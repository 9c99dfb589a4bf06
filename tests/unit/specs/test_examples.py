"""The examples that ship, and a domyn-swarm file with everything in it, are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.plan.context import Context
from remuda.plan.derive import derive
from remuda.plan.swarm import replica_group
from remuda.specs.backend import LeptonBackend, LocalBackend, SlurmBackend
from remuda.specs.reading.document import parse
from remuda.specs.reading.load import build
from remuda.specs.swarm import SwarmSpec

EXAMPLES = Path(__file__).parents[3] / "examples"
EVERYTHING = """\
model: deepseek-ai/DeepSeek-R1-0528
revision: null
replicas: 2
gpus_per_replica: 8
gpus_per_node: 4
nodes: 4
replicas_per_node: null
cpus_per_task: 32
image: /shared/images/vllm.sif
args: "--enable-expert-parallel --reasoning-parser deepseek_r1"
port: 8000
home_directory: /home/me/.swarm
env:
  HF_HOME: /models
  N: 1
wait_endpoint_s: 1200
backend:
  type: slurm
  partition: p
  account: a
  qos: q
  ray_port: 6379
  ray_dashboard_port: 8265
  venv_path: /venv
  time_limit: "36:00:00"
  exclude_nodes: "node[001-004]"
  node_list: "node[005-008]"
  log_directory: /logs
  template_path: /t.j2
  nginx_template_path: /n.j2
  mail_user: me@example.org
  modules: [cuda]
  preamble: ["#SBATCH --exclusive"]
  endpoint:
    cpus_per_task: 4
    mem: 16GB
    threads_per_core: 1
    wall_time: 24:00:00
    nginx_image: /n.sif
    nginx_timeout: 60s
    port: 9001
    poll_interval: 10
watchdog:
  enabled: true
  probe_interval: 30
  http_path: health
  http_timeout: 2.0
  readiness_timeout: 600
  restart_policy: on-failure
  unhealthy_restart_after: 120
  max_restarts: 3
  restart_backoff_initial: 5
  restart_backoff_max: 60
  kill_grace_seconds: 10
  log_level: info
  ray: {enabled: false, expected_tp: null, probe_timeout_s: 120.0, status_grace_s: 10.0, probe_interval_s: 30.0}
"""
LEPTON = """\
model: m
backend:
  type: lepton
  workspace_id: workspace_id
  endpoint:
    image: vllm/vllm-openai
    allowed_dedicated_node_groups:
      - nodegroup-xx
    resource_shape: gpu.4xh200
    api_token_secret_name: token
    allowed_nodes: [a]
    mounts: [{path: /, from: "node-nfs:x", mount_path: /mnt}]
    env:
      HF_HOME: /mnt/lepton-shared-fs/hf_home/
  job:
    allowed_dedicated_node_groups:
      - nodegroup-xx
    image: igeniusai/domyn-swarm:latest
  env: {A: b}
"""


def read(text: str) -> SwarmSpec:
    spec = build(parse(text, "s.yaml")).spec
    assert isinstance(spec, SwarmSpec)
    return spec


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("swarm-*.yaml")), ids=lambda path: path.name)
def test_examples_are_read_and_planned(file: Path) -> None:
    spec = derive(read(file.read_text()), Context(gpus=("0",), cpus=4)).spec
    assert replica_group(spec, "/env/bin/python").count == spec.replicas


def test_the_examples_are_there() -> None:
    names = {path.name for path in EXAMPLES.glob("swarm-*.yaml")}
    assert names >= {"swarm-local.yaml", "swarm-vllm-local.yaml", "swarm-command.yaml", "swarm-slurm.yaml"}


def test_a_file_with_every_field() -> None:
    spec = read(EVERYTHING)
    assert isinstance(spec.backend, SlurmBackend)
    assert spec.backend.time_limit == "36:00:00"
    assert spec.backend.endpoint.wall_time == "24:00:00"
    assert spec.backend.endpoint.nginx_timeout == 60
    assert spec.watchdog.http_path == "/health"
    assert spec.env == {"HF_HOME": "/models", "N": "1"}
    placed = derive(spec, Context()).spec
    assert (placed.nodes, placed.replicas_per_node, placed.cpus_per_task) == (4, None, 32)


def test_documented_defaults() -> None:
    spec = read("model: m\nbackend: {type: slurm, partition: p, account: a, qos: q}")
    full = derive(spec, Context()).spec
    assert (full.replicas, full.gpus_per_replica, full.gpus_per_node, full.port) == (1, 4, 4, 8000)
    assert (full.nodes, full.replicas_per_node, full.cpus_per_task, full.wait_endpoint_s) == (1, 1, 32, 600)
    assert (full.engine, full.args, full.image, full.revision, full.env) == ("vllm", (), None, None, {})
    backend = full.backend
    assert isinstance(backend, SlurmBackend)
    assert (backend.ray_port, backend.ray_dashboard_port, backend.time_limit) == (6379, 8265, "36:00:00")
    router = backend.endpoint
    assert (router.cpus_per_task, router.mem, router.threads_per_core, router.wall_time) == (2, "2GB", 1, "24:00:00")
    assert (router.nginx_timeout, router.port, router.poll_interval) == (60, None, 10)
    dog = full.watchdog
    assert (dog.enabled, dog.probe_interval, dog.http_path, dog.http_timeout) == (True, 30, "/health", 2)
    assert (dog.readiness_timeout, dog.restart_policy, dog.unhealthy_restart_after) == (600, "on-failure", 120)
    assert (dog.max_restarts, dog.restart_backoff_initial, dog.restart_backoff_max) == (3, 5, 60)
    assert (dog.kill_grace_seconds, dog.log_level) == (10, "info")
    assert (dog.ray.enabled, dog.ray.expected_tp, dog.ray.probe_timeout_s) == (False, None, 120)
    assert (dog.ray.status_grace_s, dog.ray.probe_interval_s) == (10, 30)


def test_lepton() -> None:
    backend = read(LEPTON).backend
    assert isinstance(backend, LeptonBackend)
    assert backend.endpoint.mounts == ({"path": "/", "from": "node-nfs:x", "mount_path": "/mnt"},)
    defaults = read("model: m\nbackend: {type: lepton, workspace_id: w}").backend
    assert isinstance(defaults, LeptonBackend)
    assert (defaults.endpoint.image, defaults.endpoint.resource_shape) == ("vllm/vllm-openai:latest", "gpu.8xh200")
    assert (defaults.job.image, defaults.job.resource_shape) == ("igeniusai/domyn-swarm:latest", "gpu.8xh200")
    assert defaults.endpoint.mounts[0]["mount_path"] == "/mnt/lepton-shared-fs"


def test_a_model_is_enough() -> None:
    assert isinstance(read("model: m").backend, LocalBackend)

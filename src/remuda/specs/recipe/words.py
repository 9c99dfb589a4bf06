"""Every key of srtctl's recipes, and what becomes of it here. This table reads recipes and is a table of the docs.

A path may have one part `*`, a key of the user's own. What stands below a path goes with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from remuda.specs.service import ServiceFields

Path = tuple[str, ...]


class Fate(StrEnum):
    """What becomes of a key."""

    USED = "used"
    IGNORED = "ignored"
    REFUSED = "refused"


@dataclass(frozen=True)
class Word:
    """One key of a recipe.

    Args:
        path: of the key there.
        to: of the same thing in a deployment; empty where it has none.
        fate: whether it is used.
        why: for one that is not used, the reason; else what differs, or nothing.
    """

    path: Path
    to: Path = ()
    fate: Fate = Fate.USED
    why: str = ""


def _used(path: str, to: str = "", why: str = "") -> Word:
    return Word(_path(path), _path(to or path), Fate.USED, why)


def _ignored(path: str, why: str) -> Word:
    return Word(_path(path), (), Fate.IGNORED, why)


def _refused(path: str, why: str) -> Word:
    return Word(_path(path), (), Fate.REFUSED, why)


def _path(text: str) -> Path:
    return tuple(text.split("."))


_ONE_JOB: Final = "each worker is a job of its own"
_OURS: Final = "status, events and results are always kept"
_PROFILED: Final = "profilers of engines cannot be started yet"
_WATCHED: Final = "every task is watched and reported"
_ANSWERS: Final = (
    "repeat", "max_context_length", "categories", "temperature", "top_p", "top_k", "num_requests", "concurrency",
    "prefix_ratios", "mooncake_workload",
    "ttft_threshold_ms", "itl_threshold_ms", "dataset_name", "dataset_path", "trace_file",
)  # fmt: skip

_BOTH: Final = (
    _used("name"),
    _used("python", "", "remuda's own word"),
    _used("model.path"),
    _used("model.container", "container"),
    _used("model.precision"),
    _used("model.name"),
    _ignored("model.stage_dir", "models are read where they are"),
    _used("resources.gpu_type", "gpu_type", "any name, for tables: GPUs are chosen by the partition"),
    _used("resources.gpus_per_node", "gpus_per_node"),
    _ignored("resources.spread_workers", _ONE_JOB),
    _ignored("resources.het_jobs", _ONE_JOB),
    _used("slurm.account", "backend.account"),
    _used("slurm.partition", "backend.partition"),
    _used("slurm.qos", "backend.qos"),
    _used("slurm.frontend_partition", "backend.frontend_partition", "remuda's own word"),
    _used("slurm.time_limit", "backend.time_limit"),
    _used("sbatch_directives", "backend.sbatch_directives"),
    _used("srun_options", "backend.srun_options"),
    _used("environment", "env"),
    _used("container_mounts", "mounts"),
    _used("extra_mount", "mounts", "added to `container_mounts`"),
    _refused("setup_script", "a script that changes the image at the start cannot be run yet: put it into the image"),
    _ignored("enable_config_dump", "the resolved recipe is always kept"),
    _used("health_check.max_attempts"),
    _used("health_check.interval_seconds"),
    _ignored("output", "the directory is chosen with `home_directory`"),
    _used("identity", "", "kept with the results"),
    _ignored("reporting", _OURS),
    _ignored("profiling", _PROFILED),
    _ignored("observability", _WATCHED),
    _ignored("telemetry", _WATCHED),
    _used("benchmark.type", "", "longbenchv2, agentperf and others cannot be run yet"),
    _used("benchmark.num_examples", "benchmark.limit"),
    _used("benchmark.num_shots", "benchmark.num_fewshot"),
    _used("benchmark.num_threads", "benchmark.concurrencies", "the first of them, of a benchmark of answers"),
    _used("benchmark.max_tokens"),
    *(
        _used(f"benchmark.{name}", "", "remuda's own word: of a benchmark of answers")
        for name in ("tasks", "tasks_dir", "limit", "num_fewshot", "hub_token")
    ),
    _used("benchmark.isl"),
    _used("benchmark.osl"),
    _used("benchmark.concurrencies"),
    _used("benchmark.search", "", "of remuda alone: the largest load within latency targets"),
    _used("benchmark.validity", "", "of remuda alone: thresholds of the rules by which a point counts"),
    _used("benchmark.req_rate"),
    _used("benchmark.random_range_ratio"),
    _used("benchmark.num_prompts_mult"),
    _used("benchmark.num_warmup_mult"),
    _used("benchmark.use_chat_template"),
    _used("benchmark.command"),
    _used("benchmark.container_image", "benchmark.container"),
    _used("benchmark.env"),
    _used("benchmark.placement"),
    _used("benchmark.client_placement", "benchmark.placement.node"),
    _ignored("benchmark.client_dedicated_node", "the load is a task of its own"),
    _ignored("benchmark.colocate_with_frontend", "the load is a task of its own"),
    _refused("benchmark.sweep", "write it as `sweep` of the recipe"),
    *(
        _ignored(f"benchmark.{name}", "lm-eval's task says it, or it is of a benchmark that cannot be run yet")
        for name in _ANSWERS
    ),
    _ignored("benchmark.custom_tokenizer", "lengths are counted by the server"),
    _ignored("benchmark.reuse_http_connections", "connections are always kept"),
    _ignored("benchmark.aiperf_package", "loads are generated by remuda"),
    _ignored("benchmark.aiperf_args", "loads are generated by remuda"),
    *(_ignored(f"benchmark.slow_down_{name}", "not needed") for name in ("sleep_time", "wait_time")),
    _refused("sweep", "a sweep is several recipes: remuda apply --sweep"),
    _used("frontend.args"),
    _used("frontend.env"),
    _used("frontend.cpus", "", "remuda's own word: of its job"),
    _used("frontend.mem", "", "remuda's own word: of its job"),
    _ignored("frontend.nginx_container", "several frontends stand behind smg"),
    _ignored("frontend.nginx_raise_ulimit", "limits are raised where they may be"),
    _ignored("frontend.nginx_session_affinity", "not built yet"),
    _ignored("frontend.nginx_session_affinity_header", "not built yet"),
    _ignored("frontend.nginx_keepalive_timeout", "connections are kept as long as a request may take"),
    _refused("frontend.ctx_router", "TensorRT-LLM's own router cannot be set up yet"),
    _refused("frontend.gen_router", "TensorRT-LLM's own router cannot be set up yet"),
    _refused("frontend.server_config_extra", "TensorRT-LLM's own router cannot be set up yet"),
    _used("dynamo.install", "", "nothing is installed: a note where the image may have no Dynamo"),
    _used("dynamo.version", "", "before 1.0, where there is an image: etcd and NATS are started"),
    _ignored("dynamo.hash", "Dynamo is what the image has"),
    _ignored("dynamo.top_of_tree", "Dynamo is what the image has"),
    _ignored("dynamo.wheel", "Dynamo is what the image has"),
    _ignored("dynamo.cargo_patches", "Dynamo is what the image has"),
    _used("dynamo.request_plane", "", "`http`, which Dynamo has no more, is read as `tcp`"),
    _used("dynamo.event_plane"),
    _used("dynamo.discovery", "", "remuda's own word"),
    _used("allocation", "", "remuda's own word"),
    *(_used(name, "", "remuda's own word") for name in ServiceFields.model_fields),
)

_ENGINES: Final = ("sglang", "vllm", "trtllm", "mocker")
_KNOBS: Final = (
    "kv_events_config", "connector", "dp_launch_mode", "publish_events_and_metrics", "numa_memory_bind", "engine_type",
    "speedup_ratio", "decode_speedup_ratio", "num_gpu_blocks_override", "max_num_seqs", "max_num_batched_tokens",
    "block_size", "data_parallel_size", "num_workers", "startup_time", "kv_transfer_bandwidth", "kv_cache_dtype",
    "enable_prefix_caching", "enable_chunked_prefill", "preemption_mode",
)  # fmt: skip
_OF_A_ROLE: Final = (
    "nodes", "workers", "gpus", "env", "args", "extra_args", "engine", "container", "kv_events", "srun_options",
    "critical",
)  # fmt: skip
_ROLES: Final = {"prefill": "prefill", "decode": "decode", "agg": "aggregated"}

VERSION_1: Final = (
    *_BOTH,
    *(_used(f"resources.{role}_nodes", f"roles.{role}.nodes") for role in _ROLES),
    *(_used(f"resources.{role}_workers", f"roles.{role}.workers") for role in _ROLES),
    *(_used(f"resources.gpus_per_{role}", f"roles.{role}.gpus") for role in _ROLES),
    _used("backend.type", "engine.type", "sglang where it is not said"),
    *(_used(f"backend.{knob}", f"engine.{knob}") for knob in _KNOBS),
    *(_used(f"backend.{theirs}_environment", f"roles.{ours}.env") for ours, theirs in _ROLES.items()),
    *(
        _used(f"backend.{engine}_config.{theirs}", f"roles.{ours}.args")
        for engine in _ENGINES
        for ours, theirs in _ROLES.items()
    ),
    _refused("backend.mooncake_kv_store", "a Mooncake store cannot be started yet"),
    _ignored("backend.allow_prefill_decode_colocation", "GPUs are never shared"),
    _ignored("backend.allow_prefill_decode_colocation_across_nodes", "GPUs are never shared"),
    _ignored("backend.set_cuda_visible_devices", "each worker sees its own GPUs"),
    _ignored("backend.sequential_node_start", "workers start by themselves"),
    _used("frontend.type", "", "`sglang` and `vllm` are their routers: sglang-router, vllm-router"),
    _ignored("frontend.enable_multiple_frontends", "one frontend, or as many as `num_additional_frontends` adds"),
    _used("frontend.num_additional_frontends", "frontend.replicas", "and one"),
    _used("frontend.orchestrator_placement", "frontend.placement.node"),
    _ignored("frontend.dedicated_node", "the frontend has a job of its own"),
    _ignored("infra.etcd_nats_dedicated_node", "services have jobs of their own"),
    _used("infra.nats_max_payload_mb", "services", "a service of type nats with that option"),
)
"""Recipes without `schema`, and the layout before them."""

VERSION_2: Final = (
    *_BOTH,
    _ignored("schema", "tells the version"),
    _used("engine"),
    *(_used(f"roles.{role}.{key}") for role in _ROLES for key in _OF_A_ROLE),
    *(_refused(f"roles.{role}.sidecar", "write it as a service") for role in _ROLES),
    _used("services"),
    _used("frontend.type"),
    _used("frontend.replicas"),
    _used("frontend.container"),
    _used("frontend.placement"),
    _used("dynamo.source.pypi", "dynamo.version"),
    _ignored("dynamo.source", "Dynamo is what the image has"),
    _ignored("dynamo.patches", "Dynamo is what the image has"),
    _used("health_check.fatal_log_markers"),
    _used("health_check.extra_fatal_log_patterns"),
    _refused("host_setup", "commands before and after on each node cannot be run yet"),
    _refused("post_eval", "a deployment has one benchmark: write one of type lm-eval, or use `remuda bench accuracy`"),
)
"""Recipes that say `schema: 2`."""


def words_of(version: int) -> tuple[Word, ...]:
    """All keys of a version."""
    return VERSION_2 if version == 2 else VERSION_1

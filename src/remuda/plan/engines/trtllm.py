"""TensorRT-LLM. Flags are in a file, where false stays false; only what is the launcher's is on the command line.

On Slurm it is an MPI program with a rank for each GPU, of which the first serves; elsewhere it starts its ranks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import yaml

from remuda.base.errors import InputError
from remuda.plan.engines.base import Engine, EngineCommand, Serve
from remuda.plan.engines.flags import counted
from remuda.plan.model import FILES_MARK, HOST_MARK, PORT_MARK

if TYPE_CHECKING:
    from remuda.specs.deployment import TrtllmEngine

_CONFIG: Final = "engine.yaml"


def _command(engine: Engine, serve: Serve) -> EngineCommand:
    settings: TrtllmEngine = serve.settings
    config = {str(key).lstrip("-").replace("-", "_"): value for key, value in serve.said.items()}
    if serve.gpus > 1 and not any(key.endswith("parallel_size") for key in counted(config)):
        config["tensor_parallel_size"] = serve.gpus
    for key, value in (("model_path", serve.model), ("served_model_name", serve.name)):
        if str(config.pop(key, None) or value) != str(value):
            where = f"{serve.where}.{key}"
            raise InputError(f"`{where}` differs from the deployment's", hint="leave it out", where=where)
    file = f"{FILES_MARK}/{_CONFIG}"
    start = (*_memory_bind(serve, settings), *(("trtllm-llmapi-launch",) if serve.on_slurm else ()))
    own: dict[str, Any] = {}
    if serve.dynamo:
        start = (*start, *engine.start(serve))
        own = {
            "--model-path": serve.model, "--served-model-name": serve.name, **serve.mode(),
            "--extra-engine-args": file, "--publish-events-and-metrics": settings.publish_events_and_metrics,
        }  # fmt: skip
    else:
        address = ("--host", HOST_MARK, "--port", PORT_MARK)
        start = (*start, "trtllm-serve", serve.model, *address, "--extra_llm_api_options", file)
    return replace(
        engine.made(serve, own, {}, start=start),
        env={"TRTLLM_EPLB_SHM_NAME": f"moe_shared_{PORT_MARK}"},  # workers on one node must not share it
        files={_CONFIG: yaml.safe_dump(config, sort_keys=False)},
        ranks=max(1, serve.gpus) if serve.on_slurm else 0,
        metrics_path=engine.metrics_path if serve.dynamo else "",
    )


def _memory_bind(serve: Serve, settings: TrtllmEngine) -> tuple[str, ...]:
    """On machines with Grace CPUs the memory of GPUs is NUMA nodes, too, and must be left to the GPUs."""
    said = settings.numa_memory_bind
    is_grace = serve.gpu_type.lower().startswith(("gb200", "gb300"))
    nodes = {None: "0,1" if is_grace else "", "true": "0,1", "false": ""}.get(said and said.lower(), said)
    return ("numactl", "-m", nodes) if nodes else ()


TRTLLM: Final = Engine(
    name="trtllm", build=_command, dynamo=True, help="", spans=("engine",),
    fatal=("MPI_ABORT was invoked", "Executor creation failed", "torch.OutOfMemoryError"),
    alike={  # `max_seq_len` is none of it: what prefill writes is shorter by the answer
        "page size": ("kv_cache_config.tokens_per_block", "tokens_per_block"),
        "type of the cache": ("kv_cache_config.dtype", "kv_cache_dtype"),
    },
)  # fmt: skip

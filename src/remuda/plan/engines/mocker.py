"""Dynamo's simulated engine: a real worker without a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from remuda.plan.engines.base import Engine, EngineCommand, Serve
from remuda.plan.model import BOOTSTRAP, named_mark

if TYPE_CHECKING:
    from remuda.specs.deployment import MockerEngine

_KNOBS: Final = (
    "engine_type", "speedup_ratio", "decode_speedup_ratio", "num_gpu_blocks_override", "max_num_seqs",
    "max_num_batched_tokens", "block_size", "startup_time", "kv_transfer_bandwidth", "kv_cache_dtype",
    "preemption_mode",
)  # fmt: skip
_SWITCHES: Final = ("enable_prefix_caching", "enable_chunked_prefill")


def _command(engine: Engine, serve: Serve) -> EngineCommand:
    settings: MockerEngine = serve.settings
    is_prefill = serve.role == "prefill"
    said, ports = serve.flags({"bootstrap-ports": BOOTSTRAP} if is_prefill else {})
    own = {
        "--model-path": serve.model, "--model-name": serve.name, **serve.mode(),
        "--bootstrap-ports": named_mark(BOOTSTRAP) if is_prefill else None,
    }  # fmt: skip
    knobs: dict[str, Any] = {
        key: getattr(settings, key) for key in _KNOBS if key in settings.model_fields_set or key == "speedup_ratio"
    }
    for key in _SWITCHES:
        value = getattr(settings, key)
        if value is not None:
            knobs[key if value else f"no_{key}"] = True
    return replace(engine.made(serve, own, {**knobs, **said}), ports=ports)


MOCKER: Final = Engine(
    name="mocker", build=_command, dynamo=True, alone=(),
    alike={"page size": ("block-size",), "type of the cache": ("kv-cache-dtype",)},
)  # fmt: skip

"""SGLang: `python -m sglang.launch_server`.

It takes an API key only on its command line, where everybody on the machine could read it. So it gets none: the
replicas listen on loopback, and the router in front of them asks for the key.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from remuda.base.errors import InputError
from remuda.plan.engines.base import Engine, EngineCommand, Serve, is_python
from remuda.plan.engines.flags import has
from remuda.plan.model import BOOTSTRAP, HOST_MARK, PORT_MARK, named_mark
from remuda.wire.spread import HEAD_MARK, HEAD_PORT_MARK, RANK_MARK


def _command(engine: Engine, serve: Serve) -> EngineCommand:
    if serve.path and not is_python(serve.path):
        hint = "name the Python interpreter that has sglang"
        raise InputError("`engine_path` is not an interpreter", hint=hint, where="engine_path")
    is_prefill = serve.role == "prefill"
    of_prefill = {"disaggregation-bootstrap-port": BOOTSTRAP} if is_prefill else {}  # decode asks there, and opens none
    said, ports = serve.flags({"nccl-port": "nccl", **of_prefill})
    own: dict[str, Any] = {
        "--model-path": serve.model, "--served-model-name": serve.other_name, "--host": HOST_MARK,
        "--port": named_mark("engine") if serve.dynamo else PORT_MARK,
        "--nccl-port": None if serve.is_swarm else named_mark("nccl"), **serve.mode(),
        "--disaggregation-bootstrap-port": named_mark(BOOTSTRAP) if is_prefill else None,
        "--enable-metrics": None if serve.dynamo else True, **serve.events(),
        **serve.parallel(said, "--tp" if serve.is_swarm else "--tensor-parallel-size"),
        "--device": "cpu" if not serve.gpus and not has(said, ("device",)) else None, "--revision": serve.revision,
    }  # fmt: skip
    ranks: dict[str, Any] = {}
    if serve.nodes > 1:
        meet = f"{HEAD_MARK}:{HEAD_PORT_MARK}"
        ranks = {"--nnodes": serve.nodes, "--node-rank": RANK_MARK, "--dist-init-addr": meet}
    return replace(engine.made(serve, own, said, meet=(ranks, ranks)), ports=ports)


SGLANG: Final = Engine(
    name="sglang", build=_command, program=("sglang.launch_server",), dynamo=True, alone=("agg", "prefill", "decode"),
    spans=("engine",),
    fatal=("Scheduler hit an exception", "Received sigquit from a child process", "torch.OutOfMemoryError"),
    alike={"page size": ("page-size",), "type of the cache": ("kv-cache-dtype",),
           "context length": ("context-length",)},
)  # fmt: skip

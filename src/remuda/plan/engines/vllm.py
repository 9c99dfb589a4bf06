"""vLLM: `vllm serve`, called as a module so that no script's first line can be wrong. It reads its key there."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from remuda.base.errors import InputError
from remuda.plan.engines.base import Engine, EngineCommand, Serve
from remuda.plan.engines.flags import DP, dashed, has, number, words
from remuda.plan.model import HOST_MARK, PORT_MARK, named_mark
from remuda.specs.deployment import VllmEngine
from remuda.wire.spread import HEAD_MARK, HEAD_PORT_MARK, OWN_MARK, RANK_MARK

if TYPE_CHECKING:
    from collections.abc import Mapping

_CONNECTORS: Final = {
    "nixl": {"kv_connector": "NixlConnector", "kv_role": "kv_both"},
    "lmcache": {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"},
    "kvbm": {"kv_connector": "DynamoConnector", "kv_connector_module_path": "kvbm.vllm_integration.connector",
             "kv_role": "kv_both"},
}  # fmt: skip
_HEAD_PORTS: Final = ("--data-parallel-rpc-port", "--master-port")
"""Flags for the port at which its nodes meet."""


def _command(engine: Engine, serve: Serve) -> EngineCommand:
    said, _ = serve.flags()
    start = engine.start(serve)
    env: dict[str, str] = {}
    own: dict[str, Any] = {"--served-model-name": serve.other_name}
    if serve.dynamo:
        is_half = serve.is_older and serve.role != "agg"
        own = {"--model": serve.model, **own, **({f"--is-{serve.role}-worker": True} if is_half else serve.mode())}
        env["DYN_VLLM_KV_EVENT_PORT"] = named_mark("kv_events")
    else:
        start = (*start, serve.model)
        own |= {"--host": HOST_MARK, "--port": PORT_MARK}
    if (transfer := _transfer(serve, said)) is not None:
        own |= transfer
        env |= {"VLLM_NIXL_SIDE_CHANNEL_HOST": OWN_MARK, "VLLM_NIXL_SIDE_CHANNEL_PORT": named_mark("nixl")}
    own |= {**serve.events(enable_kv_cache_events=True), **serve.parallel(said), "--revision": serve.revision}
    head_port = 0
    if serve.nodes > 1:
        head_port = number(said, _HEAD_PORTS, 0)
        said = {key: value for key, value in said.items() if dashed(key) not in _HEAD_PORTS}
    meet = _ranks(serve, said)
    made = engine.made(serve, own, said, start=start, meet=meet, negates=True)
    return replace(made, env=env, head_port=head_port)


def _ranks(serve: Serve, said: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Flags of the first node and of the others, where a server spans nodes."""
    nodes = serve.nodes
    if nodes == 1:
        return {}, {}
    if serve.by_ray:
        flag = "--distributed-executor-backend"
        return ({} if flag in serve.words else {flag: "ray"}), {}
    data = number(said, DP, 1)
    if data == 1:
        ranks: dict[str, Any] = {"--nnodes": nodes, "--node-rank": RANK_MARK, "--master-addr": HEAD_MARK,
                                 "--master-port": HEAD_PORT_MARK}  # fmt: skip
        return ranks, {**ranks, "--headless": True}
    if nodes > 2 or data % nodes:
        raise InputError(
            f"vllm with {data} data-parallel ranks over {nodes} nodes cannot be started yet",
            hint="use two nodes and an even number of ranks, or tensor parallelism", where=serve.where,
        )  # fmt: skip
    local = data // nodes
    both = {"--data-parallel-size-local": local, "--data-parallel-address": HEAD_MARK,
            "--data-parallel-rpc-port": HEAD_PORT_MARK}  # fmt: skip
    headless = {} if "--data-parallel-hybrid-lb" in words(said) else {"--headless": True}  # there each node is asked
    return both, {**both, "--data-parallel-start-rank": local, **headless}


def _transfer(serve: Serve, said: dict[str, Any]) -> dict[str, Any] | None:
    """Flags for what carries keys and values between workers; None: nothing does.

    Dynamo before 1.0 takes nixl where nothing is said, and no other way beside it.

    Args:
        serve: what is asked.
        said: its flags; `connector`, which only that Dynamo has, is taken out.
    """
    settings: VllmEngine = serve.settings or VllmEngine()
    key = next((key for key in said if dashed(key) == "--connector"), "")
    asked = said.pop(key) if key else settings.connector
    if isinstance(asked, list) and len(asked) == 1:
        asked = asked[0]
    nothing = {"--connector": "none"} if serve.is_older else {}
    if has(said, ("kv-transfer-config",)):
        return nothing
    if serve.role == "agg" and not key and "connector" not in settings.model_fields_set:
        return None
    if asked in (None, "none", "null"):
        return nothing or None
    if isinstance(asked, str) and asked in _CONNECTORS:
        return {"--connector": asked} if serve.is_older else {"--kv-transfer-config": json.dumps(_CONNECTORS[asked])}
    if isinstance(asked, dict) or (isinstance(asked, str) and asked.startswith("{")):
        return {"--kv-transfer-config": asked if isinstance(asked, str) else json.dumps(asked), **nothing}
    where = f"{serve.where}.{key}" if key else "engine.connector"
    known = "known: nixl, lmcache, kvbm, none, or the JSON of one"
    raise InputError(f"the connector {asked!r} is not known", hint=known, where=where)


VLLM: Final = Engine(
    name="vllm", build=_command, program=("vllm.entrypoints.cli.main", "serve"), dynamo=True, help="--help=all",
    spans=("ray", "engine"), key_env="VLLM_API_KEY",
    fatal=("Engine core initialization failed", "EngineCore failed to start", "torch.OutOfMemoryError"),
    alike={"page size": ("block-size",), "type of the cache": ("kv-cache-dtype",),
           "context length": ("max-model-len",)},
)  # fmt: skip

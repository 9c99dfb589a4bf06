"""llama.cpp: its server from the prebuilt wheel, or the user's own `llama-server`."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from remuda.base.errors import InputError
from remuda.plan.engines.base import RESERVED, Engine, EngineCommand, Serve
from remuda.plan.engines.flags import counted
from remuda.plan.model import HOST_MARK, PORT_MARK

LAUNCHER: Final = "remuda.enter llamacpp"
_ALL_LAYERS: Final = 999
_OWN_KEY: Final = "REMUDA_ENGINE_KEY"
"""Variable of the key that our launcher of it reads."""


def _command(engine: Engine, serve: Serve) -> EngineCommand:
    if serve.revision is not None:
        raise InputError("`revision` means nothing to llamacpp", hint="`model` is a GGUF file", where="revision")
    is_ours = serve.key is not None and "-m" in engine.start(serve)
    own = {
        "--model": serve.model, "--host": HOST_MARK, "--port": PORT_MARK, "--alias": serve.name, "--metrics": True,
        "--threads": serve.cpus or None, "--n-gpu-layers": _ALL_LAYERS if serve.gpus else 0,
        "--api-key-env": _OWN_KEY if is_ours else None,
    }  # fmt: skip
    return (replace(engine, key_env=_OWN_KEY) if is_ours else engine).made(serve, own, counted(serve.said))


LLAMACPP: Final = Engine(
    name="llamacpp", build=_command, program=(LAUNCHER,), key_env="LLAMA_API_KEY",
    reserved={**RESERVED, "--api-key-env": "set `api_key: {env: NAME}` instead"},
)  # fmt: skip

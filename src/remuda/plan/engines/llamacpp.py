"""llama.cpp: its server from the prebuilt wheel, or the user's own `llama-server`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from remuda.base.errors import InputError
from remuda.plan.engines.base import EngineCommand, option, program, refuse_reserved, secrets_of
from remuda.plan.model import HOST_MARK, PORT_MARK

if TYPE_CHECKING:
    from remuda.specs.swarm import SwarmSpec

LAUNCHER: Final = "remuda.serving.llamacpp_server"
ALL_LAYERS: Final = "999"


class Llamacpp:
    """llama.cpp's server."""

    name = "llamacpp"
    probe_path = "/health"

    def render(self, spec: SwarmSpec, python: str) -> EngineCommand:
        """The command of one replica.

        Raises:
            InputError: a revision is asked for, and the model is a file.
        """
        if spec.revision is not None:
            raise InputError("`revision` means nothing to llamacpp", hint="`model` is a GGUF file", where="revision")
        start = program(spec, python, LAUNCHER)
        embedded = len(start) > 1
        refuse_reserved(spec.args, {"--api-key-env": "set `api_key: {env: NAME}` instead"})
        key_name = "REMUDA_ENGINE_KEY" if embedded else "LLAMA_API_KEY"
        has_key = spec.api_key is not None
        argv = (
            *(*start, "--model", spec.model, "--host", HOST_MARK, "--port", PORT_MARK),
            *option("--alias", spec.served_model_name),
            *option("--threads", str(spec.cpus_per_task) if spec.cpus_per_task else None),
            *("--n-gpu-layers", ALL_LAYERS if spec.gpus_per_replica else "0"),
            *option("--api-key-env", key_name if has_key and embedded else None),
            *("--metrics", *spec.args),
        )
        return EngineCommand(
            argv=argv,
            env=dict(spec.env),
            secret_env=secrets_of(spec, key_name),
            probe_path=self.probe_path,
            metrics_path="/metrics",
            key_env=key_name if has_key else "",
            help_argv=(*start, "--help"),
            checks_key=True,
        )

"""vLLM: `vllm serve`, called as a module so that no script's first line can be wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.plan.engines.base import EngineCommand, option, program, refuse_reserved, secrets_of
from remuda.plan.model import HOST_MARK, PORT_MARK

if TYPE_CHECKING:
    from remuda.specs.swarm import SwarmSpec


class Vllm:
    """The default engine."""

    name = "vllm"
    probe_path = "/health"

    def render(self, spec: SwarmSpec, python: str) -> EngineCommand:
        """The command of one replica. The API key goes by the environment, which vLLM reads."""
        refuse_reserved(spec.args)
        start = program(spec, python, "vllm.entrypoints.cli.main")
        gpus = spec.gpus_per_replica or 0
        argv = (
            *(*start, "serve", spec.model, "--host", HOST_MARK, "--port", PORT_MARK),
            *option("--tensor-parallel-size", str(gpus) if gpus > 1 else None),
            *option("--revision", spec.revision),
            *option("--served-model-name", spec.served_model_name, unless=spec.model),
            *spec.args,
        )
        return EngineCommand(
            argv=argv,
            env=dict(spec.env),
            secret_env=secrets_of(spec, "VLLM_API_KEY"),
            probe_path=self.probe_path,
            metrics_path="/metrics",
            help_argv=(*start, "serve", "--help=all"),
            key_env="VLLM_API_KEY" if spec.api_key is not None else "",
            checks_key=True,
        )

"""SGLang: `python -m sglang.launch_server`.

It takes an API key only on its command line, where everybody on the machine could read it. So it gets none: the
replicas listen on loopback, and the router in front of them asks for the key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.base.errors import InputError
from remuda.plan.engines.base import EngineCommand, option, program, refuse_reserved, secrets_of
from remuda.plan.model import HOST_MARK, PORT_MARK

if TYPE_CHECKING:
    from remuda.specs.swarm import SwarmSpec


class Sglang:
    """SGLang's server."""

    name = "sglang"
    probe_path = "/health"

    def render(self, spec: SwarmSpec, python: str) -> EngineCommand:
        """The command of one replica.

        Raises:
            InputError: the program named is no interpreter.
        """
        refuse_reserved(spec.args)
        start = program(spec, python, "sglang.launch_server")
        if len(start) == 1:
            hint = "name the Python interpreter that has sglang"
            raise InputError("`engine_path` is not an interpreter", hint=hint, where="engine_path")
        gpus = spec.gpus_per_replica or 0
        argv = (
            *(*start, "--model-path", spec.model, "--host", HOST_MARK, "--port", PORT_MARK),
            *option("--tp", str(gpus) if gpus > 1 else None),
            *option("--device", "cpu" if gpus == 0 else None),
            *option("--revision", spec.revision),
            *option("--served-model-name", spec.served_model_name, unless=spec.model),
            *("--enable-metrics", *spec.args),
        )
        return EngineCommand(
            argv=argv,
            env=dict(spec.env),
            secret_env=secrets_of(spec),
            probe_path=self.probe_path,
            metrics_path="/metrics",
            help_argv=(*start, "--help"),
        )

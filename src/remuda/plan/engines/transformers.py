"""Transformers' own small server: `transformers serve`. For trying things out; it has no metrics and no API key."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from remuda.base.errors import InputError
from remuda.plan.engines.base import EngineCommand, is_python, option, refuse_reserved, secrets_of
from remuda.plan.model import HOST_MARK, PORT_MARK

if TYPE_CHECKING:
    from remuda.specs.swarm import SwarmSpec


class Transformers:
    """`transformers serve`, pinned to the swarm's model."""

    name = "transformers"
    probe_path = "/health"

    def render(self, spec: SwarmSpec, python: str) -> EngineCommand:
        """The command of one replica. The program is the script beside the interpreter.

        Raises:
            InputError: another served name is asked for, which this server cannot have.
        """
        refuse_reserved(spec.args)
        if spec.served_model_name not in (None, spec.model):
            sentence = "the transformers engine serves a model under its own name only"
            raise InputError(sentence, hint="leave `served_model_name` out", where="served_model_name")
        path = spec.engine_path or python
        start = str(PurePosixPath(path).parent / "transformers") if is_python(path) else path
        model = f"{spec.model}@{spec.revision}" if spec.revision else spec.model
        argv = (
            *(start, "serve", model, "--host", HOST_MARK, "--port", PORT_MARK),
            *option("--device", None if spec.gpus_per_replica else "cpu"),
            *spec.args,
        )
        return EngineCommand(
            argv=argv,
            env=dict(spec.env),
            secret_env=secrets_of(spec),
            probe_path=self.probe_path,
            help_argv=(start, "serve", "--help"),
        )

"""Any OpenAI-compatible server: the user says how it is started."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from remuda.plan.engines.base import EngineCommand, secrets_of
from remuda.plan.model import HOST_MARK, PORT_MARK
from remuda.plan.spanning import nodes_of
from remuda.wire.spread import HEAD_MARK, HEAD_PORT_MARK, RANK_MARK

if TYPE_CHECKING:
    from remuda.specs.swarm import SwarmSpec


class OwnCommand:
    """The user's own server.

    `{port}`, `{host}` and `{model}` are replaced in `command` and `args`, and nothing else is: other braces stay. The
    same are in the environment as `REMUDA_PORT`, `REMUDA_HOST`, `REMUDA_MODEL`, and the API key, if one is set, as
    `REMUDA_API_KEY`.
    """

    name = "command"
    probe_path = "/v1/models"

    def render(self, spec: SwarmSpec, python: str) -> EngineCommand:  # noqa: ARG002 - the protocol's
        """The command of one replica."""
        values = {"{port}": PORT_MARK, "{host}": HOST_MARK, "{model}": spec.model}
        count = nodes_of(spec)
        if count > 1:
            values |= {"{rank}": RANK_MARK, "{nnodes}": str(count), "{head}": HEAD_MARK, "{head_port}": HEAD_PORT_MARK}
        argv = tuple(
            re.sub(r"\{[a-z_]+\}", lambda match: values.get(match.group(), match.group()), word)
            for word in (*spec.command, *spec.args)
        )
        own = {"REMUDA_PORT": PORT_MARK, "REMUDA_HOST": HOST_MARK, "REMUDA_MODEL": spec.model}
        return EngineCommand(
            argv=argv,
            env={**own, **spec.env},
            secret_env=secrets_of(spec, "REMUDA_API_KEY"),
            probe_path=self.probe_path,
        )

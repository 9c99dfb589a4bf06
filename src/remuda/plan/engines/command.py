"""Any OpenAI-compatible server: the user says how it is started.

`{port}`, `{host}` and `{model}` are replaced in `command` and `args`, and nothing else is: other braces stay. The same
are in the environment as `REMUDA_PORT`, `REMUDA_HOST`, `REMUDA_MODEL`, and the API key, if one is set, as
`REMUDA_API_KEY`; whether the server asks for it is not known.
"""

from __future__ import annotations

import re
from typing import Final

from remuda.plan.engines.base import Engine, EngineCommand, Serve
from remuda.plan.model import HOST_MARK, PORT_MARK
from remuda.wire.spread import HEAD_MARK, HEAD_PORT_MARK, RANK_MARK


def _command(engine: Engine, serve: Serve) -> EngineCommand:
    values = {"{port}": PORT_MARK, "{host}": HOST_MARK, "{model}": serve.model}
    if serve.nodes > 1:
        more = {"{nnodes}": str(serve.nodes), "{head}": HEAD_MARK, "{head_port}": HEAD_PORT_MARK}
        values |= {"{rank}": RANK_MARK, **more}
    argv = tuple(
        re.sub(r"\{[a-z_]+\}", lambda match: values.get(match.group(), match.group()), word) for word in serve.words
    )
    return EngineCommand(
        argv,
        argv,
        env={"REMUDA_PORT": PORT_MARK, "REMUDA_HOST": HOST_MARK, "REMUDA_MODEL": serve.model},
        secret_env={"REMUDA_API_KEY": serve.key} if serve.key else {},
        probe_path=engine.probe_path,
    )


COMMAND: Final = Engine(
    name="command", build=_command, help="", probe_path="/v1/models", spans=("engine", "ray"), reserved={}
)

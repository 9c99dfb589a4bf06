"""Transformers' own small server: `transformers serve`. For trying things out; it has no metrics and no API key."""

from __future__ import annotations

from typing import Final

from remuda.base.errors import InputError
from remuda.plan.engines.base import Engine, EngineCommand, Serve
from remuda.plan.model import HOST_MARK, PORT_MARK


def _command(engine: Engine, serve: Serve) -> EngineCommand:
    """Pinned to the one model, which it serves under its own name only."""
    if serve.name not in (None, serve.model):
        sentence = "the transformers engine serves a model under its own name only"
        raise InputError(sentence, hint="leave `served_model_name` out", where="served_model_name")
    model = f"{serve.model}@{serve.revision}" if serve.revision else serve.model
    own = {"--host": HOST_MARK, "--port": PORT_MARK, "--device": None if serve.gpus else "cpu"}
    return engine.made(serve, own, {}, start=(*engine.start(serve), model))


TRANSFORMERS: Final = Engine(name="transformers", build=_command, program=("transformers", "serve"), metrics_path="")

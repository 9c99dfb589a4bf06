"""Engines: how each server program is started, asked for its health and given its secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.plan.engines.base import Engine, EngineCommand
from remuda.plan.engines.command import OwnCommand
from remuda.plan.engines.llamacpp import Llamacpp
from remuda.plan.engines.sglang import Sglang
from remuda.plan.engines.transformers import Transformers
from remuda.plan.engines.vllm import Vllm

if TYPE_CHECKING:
    from remuda.specs.swarm import SwarmSpec

__all__ = ["ENGINES", "Engine", "EngineCommand", "engine_of"]

ENGINES: dict[str, Engine] = {
    engine.name: engine for engine in (Vllm(), Sglang(), Llamacpp(), Transformers(), OwnCommand())
}
"""All engines by the name that specs use."""


def engine_of(spec: SwarmSpec) -> Engine:
    """The engine that a spec names."""
    return ENGINES[spec.engine]

"""Engines: how each server program is started, asked for its health and given its secrets; a module an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from remuda.plan.engines.base import Engine, EngineCommand, Serve
from remuda.plan.engines.command import COMMAND
from remuda.plan.engines.llamacpp import LLAMACPP
from remuda.plan.engines.mocker import MOCKER
from remuda.plan.engines.sglang import SGLANG
from remuda.plan.engines.transformers import TRANSFORMERS
from remuda.plan.engines.trtllm import TRTLLM
from remuda.plan.engines.vllm import VLLM

if TYPE_CHECKING:
    from remuda.specs.swarm import SwarmSpec

__all__ = ["ENGINES", "Engine", "EngineCommand", "Serve", "engine_of"]

ENGINES: Final[dict[str, Engine]] = {
    engine.name: engine for engine in (VLLM, SGLANG, TRTLLM, LLAMACPP, TRANSFORMERS, MOCKER, COMMAND)
}
"""All engines by the name that documents use; which of them a kind of document may name, its schema says."""


def engine_of(spec: SwarmSpec) -> Engine:
    """The engine that a swarm names."""
    return ENGINES[spec.engine]

"""Run LLM and GPU work on the clusters people already have, keep it running, and measure it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from remuda.batch.job import SwarmJob as SwarmJob
    from remuda.client.api.eks import EKSExecutor as EKSExecutor
    from remuda.client.api.executor import Executor as Executor
    from remuda.client.api.executor import ReplicaHandle as ReplicaHandle
    from remuda.client.api.swarm import Swarm as Swarm

__version__ = "0.1.0"
__all__ = ["EKSExecutor", "Executor", "ReplicaHandle", "Swarm", "SwarmJob", "__version__"]

_LAZY = {
    "EKSExecutor": "remuda.client.api.eks",
    "Executor": "remuda.client.api.executor",
    "ReplicaHandle": "remuda.client.api.executor",
    "Swarm": "remuda.client.api.swarm",
    "SwarmJob": "remuda.batch.job",
}


def __getattr__(name: str) -> object:
    """Import the public names on first use, so that `remuda --help` and the node program stay light."""
    import importlib

    module = _LAZY.get(name)
    if module is None:
        if name[0].isupper() and (told := importlib.import_module("remuda.base.words").answer(name)):
            raise ImportError(f"cannot import name {name!r} from 'remuda'. {told}")
        raise AttributeError(f"module 'remuda' has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)

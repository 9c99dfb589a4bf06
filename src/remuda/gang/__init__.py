"""Train one model on machines that cannot reach each other: copies average through an object store.

Loads the standard library, numpy and obstore only, so that it can be put into any training image.
"""

from __future__ import annotations

from remuda.gang.allreduce import ObjectStoreAllReduce
from remuda.gang.diloco import DiLoCo

__all__ = ["DiLoCo", "ObjectStoreAllReduce"]

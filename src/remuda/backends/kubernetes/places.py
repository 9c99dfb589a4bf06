"""Where allocations were sent: cluster and namespace of each, in its directory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from remuda.base.errors import BackendUnreachable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CLUSTER: Final = "cluster.json"
"""In the directory of an allocation: where it was sent, as `cluster_of` has it, with context, namespace and server."""
SERVER: Final = "server"
"""There: URL of the API server, as a context of the same name may lead to another one later."""
Where = tuple[tuple[str, str], ...]
"""A cluster and namespace, as `cluster_of` has them."""


def where_of(said: Mapping[str, str]) -> Where:
    """What was said of it, as one value."""
    return tuple(sorted(said.items()))


def sent_to(path: Path) -> Where | None:
    """What `CLUSTER` says; None: it was never sent anywhere.

    Raises:
        BackendUnreachable: it cannot be read.
    """
    try:
        return where_of(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError) as error:
        raise BackendUnreachable(f"{path} cannot be read: {error}") from error


def sent_anywhere(workloads: Path) -> list[Where]:
    """Every cluster and namespace that a state directory has sent anything to, by its run directories."""
    found = (sent_to(path) for path in workloads.glob(f"*/*/*/{CLUSTER}"))
    return list(dict.fromkeys(place for place in found if place is not None))

"""Whether two documents ask for the same: by what their user said, not by how this version renders it. Pure."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import BaseModel


def digest(spec: BaseModel, *, cwd: str, name: str, text: str = "") -> str:
    """A fingerprint of what was said; comments, the order of keys, and values that are the defaults do not count.

    Args:
        spec: as loaded, with all overrides. Of secrets it has names and places only.
        cwd: where relative paths start.
        name: of the workload.
        text: of the script that is run.
    """
    said = {**spec.model_dump(mode="json", exclude_defaults=True), "name": name}
    return hashlib.sha256(json.dumps([said, cwd, text], sort_keys=True).encode()).hexdigest()[:32]

"""Whether two documents ask for the same: by what their user said, not by how this version renders it. Pure."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import BaseModel


def digest(spec: BaseModel, *, cwd: str, name: str, text: str = "", port: tuple[str, ...] = ()) -> str:
    """A fingerprint of what was said; comments, the order of keys, and values that are the defaults do not count.

    Args:
        spec: as loaded, with all overrides. Of secrets it has names and places only.
        cwd: where relative paths start.
        name: of the workload.
        text: of the script that is run.
        port: path of the endpoint's port, which does not count: the one that it has will do.
    """
    said = {**spec.model_dump(mode="json", exclude_defaults=True), "name": name}
    _drop(said, port)
    return hashlib.sha256(json.dumps([said, cwd, text], sort_keys=True).encode()).hexdigest()[:32]


def _drop(said: dict[str, Any], path: tuple[str, ...]) -> None:
    """Take out a value, and what holds nothing any more then."""
    if not path:
        return
    key, *rest = path
    if rest and isinstance(said.get(key), dict):
        _drop(said[key], tuple(rest))
    if not rest or not said.get(key):
        said.pop(key, None)

"""Whether two documents ask for the same, and whether what was measured of one is so of another. Pure."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

    from remuda.plan.compile import PlanFacts
    from remuda.plan.model import Workload

CONFIG: Final = "config"
"""Label of what has an endpoint: the fingerprint of what serves there."""
_PLACES: Final = tuple(tuple(path.split(".")) for path in (
    "name", "home_directory", "log_level", "watchdog.log_level", "wait_endpoint_s", "idle_timeout", "api_key", "port",
    "benchmark", "identity", "frontend.host", "frontend.port", "backend.account", "backend.partition", "backend.qos",
    "backend.frontend_partition", "backend.time_limit", "backend.mail_user", "backend.exclude_nodes",
    "backend.log_directory", "backend.endpoint", "backend.job", "backend.kubeconfig", "backend.context",
    "backend.namespace", "backend.service_account", "backend.image_pull_secrets", "backend.ttl",
))  # fmt: skip
"""What a document says of where something runs, for how long, under which name, and who asks it."""
_DIRECTIVES: Final = frozenset({
    "account", "A", "partition", "p", "qos", "q", "time", "t", "job-name", "J", "output", "o", "error", "e", "comment",
    "mail-user", "mail-type", "exclude", "x",
})  # fmt: skip
"""The same among options of sbatch."""


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


def config_of(workload: Workload, spec: BaseModel, model: str, facts: PlanFacts) -> str:
    """The fingerprint of what serves a model, known before anything of it starts; see `fingerprint`.

    Args:
        workload: as planned.
        spec: without gaps.
        model: path of the model, if it has one.
        facts: see what is there.
    """
    stamps = {"model": facts.stamp(model)}
    for command in (group.command for group in workload.groups if group.role.serves):
        name = command.argv[0]
        program = command.image or ("/" not in name and facts.program(name)) or name
        stamps[program] = facts.stamp(program)
        if not command.image and "-m" in command.argv[:-1]:
            module = command.argv[command.argv.index("-m") + 1].partition(".")[0]
            stamps[f"{program} -m {module}"] = facts.stamp(program, module)
    return fingerprint(spec.model_dump(mode="json"), stamps)


def fingerprint(said: dict[str, Any], stamps: Mapping[str, Any]) -> str:
    """A fingerprint of what is served and how: of all that a document says, but for where, for how long, and for whom.

    Args:
        said: document without gaps, as plain data; it is used up.
        stamps: by path, what tells the model, images and programs of today from those that lie there tomorrow.
    """
    for path in (*_PLACES, *(() if said.get("engine") == "command" else (("cwd",),))):
        _drop(said, path)
    backend = said.get("backend")
    options = backend.get("sbatch_directives") if isinstance(backend, dict) else None
    for name in [*(options or ())]:
        if name.lstrip("-").replace("_", "-") in _DIRECTIVES:
            _drop(said, ("backend", "sbatch_directives", name))
    return hashlib.sha256(json.dumps([said, stamps], sort_keys=True).encode()).hexdigest()[:32]


def _drop(said: dict[str, Any], path: tuple[str, ...]) -> None:
    """Take out a value, and what holds nothing any more then."""
    if not path:
        return
    key, *rest = path
    if rest and isinstance(said.get(key), dict):
        _drop(said[key], tuple(rest))
    if not rest or not said.get(key):
        said.pop(key, None)

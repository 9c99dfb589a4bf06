"""Reads a state directory of Shepherd (`~/.slurm_shepherd`) and makes runs and bans of it."""

from __future__ import annotations

import json
import shlex
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda.base.errors import InputError, RemudaError
from remuda.base.ids import check_name, slug
from remuda.client import submission
from remuda.client.http import connect
from remuda.look import planning
from remuda.look.kinds.run import read as read_run
from remuda.specs.reading.resolve import Override
from remuda.specs.reading.sbatch import SbatchLine, take_options
from remuda.specs.run import RunSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from remuda.client.http import HostClient
    from remuda.look.facts import Looked
    from remuda.plan.compile import Plan

BAN_TTL_S = 43200.0
"""Of a ban that does not say when it ends."""
_FIELDS = {
    "run_mode": "mode", "max_retries": "max_retries", "keep_alive_sec": "keep_alive",
    "heartbeat_interval_sec": "heartbeat_interval", "heartbeat_grace_sec": "heartbeat_grace",
    "progress_stall_sec": "progress_stall", "backoff_base_sec": "backoff_base", "backoff_max_sec": "backoff_max",
    "blacklist_ttl_sec": "blacklist_ttl", "blacklist_limit": "blacklist_limit", "stdout_path": "output",
    "stderr_path": "error",
}  # fmt: skip
"""Field of meta.json -> field of a run."""
_FALLBACK = {"partitions": "partitions", "retry_per_partition": "retry_per_partition",
             "reset_to_preferred_sec": "reset_to_preferred"}  # fmt: skip
_SELF = frozenset({"run_id", "sbatch_script", "sbatch_args", "partition_fallback", "blacklist_enabled", "no_blacklist"})
_IGNORED = frozenset({"created_at", "updated_at", "version", "uid", "backend", "script_copy", "script_args", "workdir",
                      "keep_alive_until"})  # fmt: skip


@dataclass(frozen=True)
class Ban:
    """A node of Shepherd's blacklist."""

    node: str
    ttl_s: float
    """From now on."""
    reason: str


@dataclass(frozen=True)
class FoundRun:
    """One run of Shepherd's, planned."""

    planned: Plan
    paused: bool
    source: str
    """Its meta.json."""


@dataclass
class ShepherdState:
    """What a state directory holds."""

    runs: list[FoundRun] = field(default_factory=list)
    bans: list[Ban] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """One sentence for each file that cannot be used."""


def read(folder: Path, facts: Looked | None = None) -> ShepherdState:
    """Read a state directory of Shepherd; a file that cannot be used becomes a problem, and the others go on.

    Raises:
        InputError: it is none.
    """
    folder = folder.expanduser()
    if not (folder / "runs").is_dir() and not (folder / "blacklist.json").is_file():
        hint = "the directory that holds `runs/` and `blacklist.json`, usually ~/.slurm_shepherd"
        raise InputError("is not a state directory of Shepherd", hint=hint, where=str(folder))
    found = ShepherdState()
    facts, taken = facts or planning.facts_of(), set[str]()
    runs = folder / "runs"
    for entry in sorted(runs.iterdir()) if runs.is_dir() else ():
        if entry.is_dir():
            _take_run(entry, facts, taken, found)
    if (folder / "blacklist.json").is_file():
        _take_bans(folder / "blacklist.json", found, time.time())
    return found


def _take_run(entry: Path, facts: Looked, taken: set[str], found: ShepherdState) -> None:
    path = entry / "meta.json"
    try:
        meta = _mapping(path)
        script, overrides = overrides_of(meta, entry.name, str(path))
        planned = planning.plan("run", read_run(script, overrides, facts, taken), facts)
    except RemudaError as error:
        text = str(error) if str(path) in str(error) else f"{path}: {error}"
        found.problems.append(f"{text} ({error.hint})" if error.hint else text)
        return
    found.runs.append(FoundRun(planned, _is_paused(entry / "control.json", found), str(path)))


def _mapping(path: Path) -> dict[str, Any]:
    """A JSON object.

    Raises:
        InputError: it is none, or cannot be read.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot be read: {(error.strerror or '').lower()}", where=str(path)) from error
    except ValueError as error:
        raise InputError(f"is not JSON: {error}", where=str(path)) from error
    if not isinstance(data, dict):
        raise InputError("is not a JSON object", where=str(path))
    return data


def overrides_of(meta: Mapping[str, Any], folder: str, where: str) -> tuple[str, list[Override]]:
    """The script of a meta.json, and what it says about the run.

    Args:
        meta: its fields.
        folder: name of its directory, which is the run's where `run_id` is missing.
        where: for messages.

    Raises:
        InputError: there is no script, a field has a wrong type, or sbatch's arguments cannot be kept.
    """
    script = meta.get("sbatch_script")
    if not isinstance(script, str) or not script:
        raise InputError("`sbatch_script` is missing", hint="the script that it ran", where=where)
    fallback = meta.get("partition_fallback") or {}
    if not isinstance(fallback, dict):
        raise InputError("`partition_fallback` must be an object", where=where)
    path = Path(script).expanduser()
    said: dict[str, object] = {
        "workdir": str(path.parent),
        "backend": "slurm",
        **_sbatch(meta.get("sbatch_args"), where),
    }
    said |= {_FIELDS[name]: value for name, value in meta.items() if name in _FIELDS and value is not None}
    said |= {_FALLBACK[name]: value for name, value in fallback.items() if name in _FALLBACK and value is not None}
    same = RunSpec.model_fields.keys() - {"kind", "script", "name", "backend", "workdir", *_SELF}
    said |= {name: value for name, value in meta.items() if name in same and value is not None}
    if meta.get("blacklist_enabled") is False or meta.get("no_blacklist") is True:
        said["no_blacklist"] = True
    if not said.get("keep_alive"):
        said.pop("keep_alive", None)
    unknown = sorted(meta.keys() - _FIELDS.keys() - _SELF - _IGNORED - same)
    if unknown:
        raise InputError(f"has unknown fields: {', '.join(unknown)}", where=where)
    said["name"] = _name(str(meta.get("run_id") or folder))
    return str(path), [Override(key, value, f"{where}: {key}") for key, value in said.items()]


def _name(text: str) -> str:
    try:
        return check_name(text.lower())
    except InputError:
        return slug(text)


def _sbatch(args: object, where: str) -> dict[str, object]:
    """Fields that sbatch's arguments mean; the others stay arguments."""
    if args is None or args in ("", []):
        return {}
    if isinstance(args, list) and all(isinstance(word, str) for word in args):
        text = shlex.join(args)
    elif isinstance(args, str):
        text = args
    else:
        raise InputError("`sbatch_args` must be text or a list of texts", where=where)
    try:
        taken = take_options([SbatchLine(0, text)], where)
    except InputError as error:
        message = error.message.removeprefix(f"{where}:0: ")
        raise InputError(f"`sbatch_args`: {message}", hint=error.hint, where=where) from error
    return {**taken.layer.data, **({"sbatch_args": list(taken.options)} if taken.options else {})}


def _is_paused(path: Path, found: ShepherdState) -> bool:
    """Whether control.json says so: `{"paused": true}`, `{"action": "pause"}` and the like."""
    if not path.is_file():
        return False
    try:
        said = _mapping(path)
    except InputError as error:
        found.problems.append(f"{error}; the run is taken as not paused")
        return False
    word = str(said.get("action", said.get("command", said.get("state", "")))).lower()
    return said.get("paused") is True or said.get("pause") is True or word in ("pause", "paused")


def _take_bans(path: Path, found: ShepherdState, now: float) -> None:
    try:
        for node, entry in _entries(json.loads(path.read_text(encoding="utf-8")), str(path)):
            ban = _ban(node, entry, now)
            if ban is not None:
                found.bans.append(ban)
    except OSError as error:
        found.problems.append(f"{path}: cannot be read: {(error.strerror or '').lower()}")
    except InputError as error:
        found.problems.append(str(error))
    except ValueError as error:
        found.problems.append(f"{path}: is not JSON: {error}")


def _entries(data: object, where: str) -> Iterator[tuple[str, object]]:
    """Nodes and what is said of them, from an object by node, a list, or either under `nodes` or `blacklist`."""
    if isinstance(data, dict):
        for key in ("nodes", "blacklist", "entries"):
            if isinstance(data.get(key), (dict, list)):
                yield from _entries(data[key], where)
                return
        yield from ((str(node), entry) for node, entry in data.items() if node not in ("version", "updated_at"))
        return
    if not isinstance(data, list):
        raise InputError("is neither an object nor a list", where=where)
    for item in data:
        if isinstance(item, str):
            yield item, {}
        elif isinstance(item, dict) and isinstance(item.get("node") or item.get("name"), str):
            yield str(item.get("node") or item.get("name")), item
        else:
            raise InputError(f"has an entry without a node: {item!r}", where=where)


def _ban(node: str, entry: object, now: float) -> Ban | None:
    """A ban that is still in force, None for one that has expired."""
    said = entry if isinstance(entry, dict) else {"expires_at": entry}
    reason = str(said.get("reason") or "imported from Shepherd")
    ends = next((said[key] for key in ("expires_at", "expires", "until", "expiry", "expire_at") if key in said), None)
    if not isinstance(ends, (int, float)):
        begun = next((said[key] for key in ("added_at", "at", "ts", "timestamp", "created_at") if key in said), now)
        ttl = next((said[key] for key in ("ttl_sec", "ttl", "ttl_s") if key in said), BAN_TTL_S)
        ends = float(begun) + float(ttl) if isinstance(begun, (int, float)) and isinstance(ttl, (int, float)) else 0.0
    left = float(ends) - now
    return Ban(node, left, reason) if left > 0 else None


def take(found: ShepherdState, *, start: bool, client: HostClient | None = None) -> dict[str, Any]:
    """Hand runs and bans to the host; one that is refused becomes a problem, and the others go on.

    Args:
        found: by `read`.
        start: begin the runs; else they are recorded and stay down until `remuda restart NAME`.
        client: of the host.

    Returns:
        `runs` (views), `bans` (nodes), `problems`.
    """
    host, known = client or connect(), planning.facts_of()
    views: list[dict[str, Any]] = []
    banned: list[str] = []
    problems = list(found.problems)
    for run in found.runs:
        note = f"imported from {run.source}"
        try:
            (one,) = planning.answered([run.planned], known, checked=False)["plans"]
            item = submission.body(one) | {"running": start, "paused": run.paused, "note": note}
            views += host.post("/workloads/batch", {"workloads": [item]})
        except RemudaError as error:
            problems.append(f"{run.source}: {error}" + (f" ({error.hint})" if error.hint else ""))
    for ban in found.bans:
        body = {"ttl_s": ban.ttl_s, "reason": ban.reason, "by": "import", "force": True}
        try:
            host.post(f"/nodes/{ban.node}/ban", body, backend="slurm")
            banned.append(ban.node)
        except RemudaError as error:
            problems.append(f"node {ban.node} cannot be banned: {error}")
    return {"runs": views, "bans": banned, "problems": problems}


def shown(found: ShepherdState) -> dict[str, Any]:
    """What would be imported, for a dry run."""
    return {
        "runs": [
            {
                "name": run.planned.workload.name, "source": run.source, "script": run.planned.spec.script,
                "mode": run.planned.spec.mode, "paused": run.paused,
                "pools": [pool.name for pool in run.planned.workload.groups[0].pools], "notes": list(run.planned.notes),
            }
            for run in found.runs
        ],
        "bans": [{"node": ban.node, "ttl_s": round(ban.ttl_s), "reason": ban.reason} for ban in found.bans],
        "problems": list(found.problems),
    }  # fmt: skip

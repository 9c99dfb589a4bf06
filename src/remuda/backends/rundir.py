"""The directory of an allocation: its path, and the document in it that says what the node program shall do. Pure."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from remuda.backends.base import TaskKey, make_token, read_token
from remuda.enter import renamed
from remuda.wire.carrying import SECRET, WORK
from remuda.wire.child import BEAT_S, INDEX_MARK, MEETING_PORT_MARK, REPORT_EVERY_S, ChildSpec, RunWatch
from remuda.wire.fields import alike
from remuda.wire.spread import Spread

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.backends.base import Request
    from remuda.plan.model import Command, Group, Watch

CURRENT = "current.json"
"""Beside the attempts of a task: names the allocation that counts, see `ChildSpec.fence_file`."""
OWN_LOCKS = "ports"
"""Beside the workloads, see `ChildSpec.port_locks_own`."""


def allocation_dir(workloads: Path, token: str) -> Path:
    """Directory of one allocation. Only the token is needed, so a crash cannot lose it."""
    parts = read_token(token)
    return workloads / parts.workload / f"{parts.group}-{parts.index}" / f"attempt-{parts.attempt}-{parts.uid}"


def home_of(folder: Path, token: str) -> str:
    """State directory that the allocation's directory lies in; empty when `folder` is not that of `token`."""
    is_its = len(folder.parents) > 3 and allocation_dir(folder.parents[2], token) == folder
    return str(folder.parents[3]) if is_its else ""


def previous_dir(workloads: Path, token: str) -> Path | None:
    """Directory of the attempt before, None for the first."""
    parts = read_token(token)
    if parts.attempt <= 1:
        return None
    key = TaskKey(parts.workload, parts.group, parts.index)
    return allocation_dir(workloads, make_token(key, parts.attempt - 1, parts.uid))


def child_spec(
    request: Request,
    folder: Path,
    *,
    env: dict[str, str],
    bind_host: str,
    host_file: str,
    port_locks: str = "",
    port_locks_own: str = "",
    advertise_host: str = "",
) -> ChildSpec:
    """What the node program is asked to do for `request`.

    Args:
        request: the allocation.
        folder: its directory.
        env: environment of the child, complete but for secrets and what the node adds.
        bind_host: address that the child listens on.
        host_file: where the node program reads to whom it reports.
        port_locks: directory of lock files, where several allocations share a machine.
        port_locks_own: parent of the directories used where somebody else has made that.
        advertise_host: host in the child's address, where it is not `bind_host`.
    """
    group, listen = request.group, request.group.listen
    previous = previous_dir(folder.parent.parent.parent, request.token)
    return ChildSpec(**alike(ChildSpec, request, group.command, group) | {
        "workload": request.workload.name,
        "task": f"{request.key.group}/{request.key.index}",
        "argv": list(renamed(group.command.argv, sys.executable)),
        "run_dir": str(folder),
        "env": {name: _told(text, request) for name, text in env.items()},
        "secret_env": _secrets(group.command),
        "spread": Spread(**vars(group.spread)) if group.spread else None,
        "port": (listen.port or 20000) if listen else 0,
        "port_fixed": bool(listen and listen.fixed),
        "port_locks": port_locks,
        "port_locks_own": port_locks_own,
        "bind_host": bind_host,
        "advertise_host": advertise_host,
        "host_file": host_file,
        "watch": run_watch(group.watch, group) if group.watch else None,
        "fence_file": str(folder.parent / CURRENT) if group.watch else "",
        "previous_dir": str(previous) if previous and group.watch else "",
        "report_every_s": min(15.0, group.watch.heartbeat_interval_s) if group.watch else REPORT_EVERY_S,
        "fatal_lines": list(group.fatal_lines),
        "beat_s": BEAT_S if group.silence_s > 0 else 0.0,
    })  # fmt: skip


def _told(text: str, request: Request) -> str:
    """The value of a variable. Nothing holds the port of an attempt, which is below those of node programs."""
    port = 10000 + crc32(f"{request.workload.uid}.{request.attempt}".encode()) % 10000
    return text.replace(INDEX_MARK, str(request.key.index)).replace(MEETING_PORT_MARK, str(port))


def _secrets(command: Command) -> dict[str, dict[str, str]]:
    """Where the node reads each secret."""
    return {name: {"file": ref.file} if ref.file else {"env": ref.env} for name, ref in command.secret_env.items()}


def run_watch(watch: Watch, group: Group) -> RunWatch:
    """What the node does for a script."""
    return RunWatch(**alike(RunWatch, watch), gpus=group.resources.gpus)


def text_map(value: object) -> dict[str, str]:
    """A mapping out of a workload's `place`, texts only."""
    return {str(name): str(text) for name, text in value.items()} if isinstance(value, dict) else {}


class Travels(NamedTuple):
    """What goes to a node that has files of its own."""

    document: dict[str, Any]
    secrets: dict[str, dict[str, str]]
    """Their sources, by the name of their file."""
    paths: list[str]
    """Files of run directories."""
    folder: str
    """Of the command; empty: it has none."""


def travels(document: str, workloads: Path) -> Travels:
    """What of a child's document goes to its node. Pure.

    Raises:
        ValueError: it is no document.
    """
    spec = ChildSpec.from_json(document)
    folder, work = spec.cwd.rstrip("/") if spec.watch is not None else "", f"{spec.run_dir}/{WORK}"

    def there(word: str) -> str:
        is_in = folder and f"{word}/".startswith(f"{folder}/") and not word.startswith(f"{workloads}/")
        return work + word[len(folder) :] if is_in else word

    data: dict[str, Any] = json.loads(document)
    data["argv"], data["cwd"] = [there(word) for word in spec.argv], work
    data["env"] = {name: there(value) for name, value in spec.env.items()}
    data["secret_env"] = {name: {"file": f"{spec.run_dir}/{SECRET}{name}"} for name in spec.secret_env}
    secrets = {f"{SECRET}{name}": source for name, source in spec.secret_env.items()}
    words = [*spec.argv, *spec.env.values(), *spec.needs, spec.stdin_file]
    paths = sorted({word for word in words if word.startswith(f"{workloads}/") and "/../" not in word})
    return Travels(data, secrets, paths, folder)

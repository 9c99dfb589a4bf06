"""What faces do with recordings of GPUs: begin, look, end, read. Runs in the user's process."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from remuda.backends.base import read_token
from remuda.base.disk.files import remove_empty
from remuda.base.disk.paths import state_paths
from remuda.base.errors import Conflict, InputError, NotFound
from remuda.base.extras import need_batch
from remuda.base.ids import check_name
from remuda.base.text import did_you_mean
from remuda.base.waiting import until
from remuda.client.http import connect
from remuda.fleet.roll import Roll
from remuda.views.nodes import unknown_node
from remuda.wire.recording import Status
from remuda.wire.spool import BLOCKS, CLOSED, OPEN, STATUS, decode, records, spools, unpack

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from remuda.look.facts import Looked
    from remuda.plan.compile import Plan
    from remuda.profile import Attempt, Recorded
    from remuda.wire.recording import GpuProcess
    from remuda.wire.spool import Spool

BESIDE: Final = "recording"
"""Folder of a recording in the directory of the attempt that it was made beside."""
FRESH_S: Final = 10.0
"""A recorder says so often, at least, that it lives."""
_KIND: Final = "recording"
"""As of `plan.model.Kind`, which takes longer to load than a look does."""
_BEGIN_S: Final = 30.0
_LOOK_S: Final = 0.1
_FILES: Final = frozenset({".parquet", ".json"})


@dataclass(frozen=True)
class Session:
    """One recording on this machine.

    Attributes:
        name: of it, or `WORKLOAD/GROUP/INDEX` of the task that it was made beside.
        state: `recording`, `complete`, or `crashed`: what it left was not made one file yet.
        began: seconds since the epoch; 0: nothing was written.
        gpus: how many.
        interval_s: between two samples.
        size_bytes: of its files.
        folder: of it.
    """

    name: str
    state: str
    began: float
    gpus: int
    interval_s: float
    size_bytes: int
    folder: str


@dataclass(frozen=True)
class Live:
    """A recording under way.

    Attributes:
        name: of it.
        status: what the recorder says of itself.
        users: of each GPU, by UUID: what runs on it.
        node: of the fleet, that it is on; empty for this machine.
    """

    name: str
    status: Status
    users: dict[str, tuple[str, ...]]
    node: str = ""

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {"name": self.name, "node": self.node, **json.loads(self.status.to_json()), "users": self.users}


def nodes_of_fleet(named: Sequence[str]) -> tuple[str, ...]:
    """Nodes of this host's fleet that can be recorded: those that were named, else all that have GPUs.

    Returns:
        Their names; nothing where this host has no fleet.

    Raises:
        NotFound: there is no such node, or no fleet although one is named.
        InputError: it joined without a GPU, or all did; or nodes have files of their own.
    """
    paths = state_paths()
    if not paths.fleet_environment.exists():
        if named:
            raise NotFound("this host has no fleet", hint="start one: remuda host start --port 8090")
        return ()
    if paths.fleet_carried.exists():
        hint = "to record this machine: --here; on a node: remuda profiler start, with a host of its own"
        raise InputError("nodes of this fleet have files of their own, from which no recording comes back", hint=hint)
    members = Roll(paths.fleet / "roll.json").members
    for name in named:
        if name not in members:
            raise unknown_node(name, members, "the fleet")
        if not members[name].gpus:
            raise InputError(f"{name} has joined the fleet without a GPU", where="--node")
    found = tuple(named) or tuple(one.name for one in members.values() if one.gpus and not one.leaving)
    if not found:
        raise InputError("no node of this host's fleet has a GPU", hint="to record this machine: --here")
    return found


def plan(name: str, interval_s: float, gpus: Sequence[str], facts: Looked, nodes: Sequence[str] = ()) -> Plan:
    """Plan a recording. Nothing is started or written.

    Args:
        name: of the recording; empty: one that says when.
        interval_s: between two samples.
        gpus: indexes or UUIDs; empty: all.
        facts: of the command.
        nodes: of the fleet; empty: this machine is recorded.

    Raises:
        Conflict: there is a recording of that name.
        InputError: the name cannot be one.
    """
    from remuda.look import planning
    from remuda.plan.recording import Recording

    name = check_name(name or time.strftime("gpus-%Y%m%d-%H%M%S"), where="--name")
    folder = facts.paths.recordings / name
    if folder.exists():
        raise Conflict(f"there is a recording {name!r} already", hint="give this one another name: --name")
    return planning.plan("recording", Recording(name, str(folder), interval_s, tuple(gpus), tuple(nodes)), facts)


def begin(planned: Plan) -> list[Live]:
    """Begin to record, and wait until the recorder of each node says that it does.

    Raises:
        InputError: there is nothing to record; says why.
    """
    from remuda.client import submission

    submission.send_plans([planned], repeats=True)
    workload = planned.workload
    nodes = [pool.name for group in workload.groups for pool in group.pools] or [""]
    return _begun(workload.name, Path(workload.labels["folder"]), nodes, workload.groups[0].command.argv)


def _begun(name: str, folder: Path, nodes: Sequence[str], argv: Sequence[str]) -> list[Live]:
    """What each recorder says first, or that it said nothing in all the time that it had.

    Raises:
        InputError: that there is nothing to record.
        NotFound: none said anything.
    """
    from remuda.client import ending

    told: dict[str, Status] = {}

    def begun() -> bool:
        for node in nodes:
            status = status_of(folder / node)
            if status is not None and status.state in ("nothing", "ended", "recording"):
                told[node] = status
        return len(told) == len(nodes)

    until(begun, _BEGIN_S, _LOOK_S)
    if not told:
        where = f"nodes must see {folder} at the same path; " if nodes[0] else ""
        raise NotFound(f"{name} does not record yet", hint=f"{where}see: remuda logs {name}, remuda status {name}")
    if len(told) < len(nodes) or any(status.state == "recording" for status in told.values()):
        late = Status("late", 0.0, f"it does not record yet, see: remuda status {name}")
        return [Live(name, told.get(node, late), {}, node) for node in nodes]
    for _ in ending.take_down([name], remove=True):
        pass
    for node in nodes:
        with suppress(OSError):
            (folder / node / STATUS).unlink()
        remove_empty(folder / node)
    remove_empty(folder)
    first, why = nodes[0], told[nodes[0]].reason
    if "--gpus" in argv and why.startswith("no GPU is given"):
        gpus = argv[argv.index("--gpus") + 1].replace(",", ", ")
        raise InputError(f"{first or 'this machine'} has none of the GPUs {gpus}", where="--gpus")
    raise InputError(": ".join(filter(None, (first, why or "there is nothing to record"))))


def status_of(folder: Path) -> Status | None:
    """What the recorder of a folder said last."""
    try:
        return Status.from_json((folder / STATUS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def parts(folder: Path) -> list[Path]:
    """Folders below it in which a recorder has told of itself: its own, and one a node."""
    return [folder, *sorted(path.parent for path in folder.glob(f"*/{STATUS}"))]


def is_fresh(status: Status | None) -> bool:
    """Whether a recorder that says so records now."""
    return status is not None and status.state in ("starting", "recording") and time.time() - status.at < FRESH_S


def running() -> list[str]:
    """Names of recordings that the host keeps going."""
    views = connect().get("/workloads", kind=_KIND)
    return sorted(str(view["name"]) for view in views if view["phase"] not in ("DONE", "FAILED", "DOWN", "STOPPED"))


def live(name: str = "", node: str = "") -> list[Live]:
    """Recordings under way, of this name or all, on this node or all.

    Raises:
        NotFound: none of that name is, or not there.
    """
    paths, names = state_paths(), running()
    if name and name not in names:
        raise NotFound(f"no recording {name!r} is under way", hint=_under_way(names))
    found = []
    for one in [name] if name else names:
        folder = paths.recordings / one
        for part in parts(folder):
            status = status_of(part)
            if status is not None:
                found.append(Live(one, status, users(part), part.name if part != folder else ""))
    if node and node not in (known := [one.node for one in found if one.node]):
        raise unknown_node(node, known, "what is recorded")
    return [one for one in found if node in ("", one.node)]


def _under_way(names: Sequence[str]) -> str:
    return f"under way: {', '.join(names)}" if names else "begin one: remuda profiler start"


def users(folder: Path) -> dict[str, tuple[str, ...]]:
    """What ran on each GPU in the last second that was recorded: tasks, else names of processes."""
    found: dict[str, dict[str, None]] = {}
    every = spools(folder)
    for process in _last_second(every[-1]) if every else ():
        uuid = every[-1].header.gpus[process.gpu].uuid
        found.setdefault(uuid, {})[_owner(process.owner) or f"{process.name or '?'} ({process.pid})"] = None
    return {uuid: tuple(names) for uuid, names in found.items()}


def _last_second(spool: Spool) -> list[GpuProcess]:
    with suppress(OSError, ValueError):
        told, _ = records((spool.folder / OPEN).read_bytes())
        if told:
            return decode(unpack(*told[-1]), spool.header.values).processes
    return []


def _owner(owner: str) -> str:
    """A task's name, where the owner of a process is one."""
    return _task_of(owner.removeprefix("task:"))[0] if owner.startswith("task:") else ""


def _task_of(token: str) -> tuple[str, int]:
    """The task and the number of its attempt; 0 where a token is none."""
    try:
        parts = read_token(token)
    except ValueError:
        return token, 0
    return f"{parts.workload}/{parts.group}/{parts.index}", parts.attempt


def attempt_of(token: str) -> Attempt:
    """The task and attempt of a token."""
    from remuda.profile import Attempt

    return Attempt(*_task_of(token))


def stop(name: str = "", wait_s: float = 60.0) -> Session:
    """End a recording, and make one file of it.

    Args:
        name: of it; empty: the only one that is under way.
        wait_s: how long its end is waited for.

    Raises:
        NotFound: none is under way, or none of that name.
        InputError: several are, and none is named.
    """
    from remuda.client import ending

    names = running()
    if not name:
        if len(names) > 1:
            raise InputError("several recordings are under way", hint=f"say which: --name {' | '.join(names)}")
        name = names[0] if names else ""
    if not name or name not in names:
        what = f"no recording {name!r} is under way" if name else "no recording is under way"
        raise NotFound(what, hint=_under_way(names))
    for _ in ending.take_down([name], wait_s=wait_s):
        pass
    folder = state_paths().recordings / name
    _close(folder)
    return _session(name, folder)


def _close(folder: Path) -> None:
    need_batch(f"{folder.name} has ended, and stays in {folder}: to make one file of it takes")
    from remuda.profile import close

    with suppress(NotFound):  # it ended before its first second
        close(folder)


def sessions() -> list[Session]:
    """All recordings of this state directory, also those beside tasks; the newest first."""
    paths = state_paths()
    found = [_session(folder.name, folder) for folder in sorted(paths.recordings.glob("*")) if folder.is_dir()]
    found += [_session(task_of(folder), folder) for folder in beside(paths.workloads)]
    return sorted(found, key=lambda one: one.began, reverse=True)


def beside(root: Path, workload: str = "*") -> list[Path]:
    """Folders of recordings beside tasks, by attempt."""
    found = root.glob(f"{workload}/*/attempt-*/{BESIDE}")
    return sorted((path for path in found if path.is_dir()), key=lambda path: (path.parts[-3], _attempt(path)))


def _attempt(folder: Path) -> int:
    number = folder.parent.name.split("-")[1]
    return int(number) if number.isdigit() else 0


def task_of(folder: Path) -> str:
    """The task, as `WORKLOAD/GROUP/INDEX`, of a recording beside one."""
    workload, task = folder.parts[-4:-2]
    group, _, index = task.rpartition("-")
    return f"{workload}/{group}/{index}"


def _session(name: str, folder: Path) -> Session:
    every = spools(folder)
    files = [path for path in folder.rglob("*") if path.is_file()]
    is_open = any(path.name == OPEN or path.name.startswith(BLOCKS) for path in files)
    told = [status for part in parts(folder) if (status := status_of(part)) is not None]
    is_over = told and all(status.state in ("ended", "nothing") for status in told)
    state = "recording" if any(map(is_fresh, told)) else "crashed" if is_open and not is_over else "complete"
    if not every and not (folder / CLOSED).exists():
        state = "recording" if state == "recording" else "empty"
    first = every[0].header if every else None
    return Session(
        name, state, first.wall_ns / 1e9 if first else 0.0, len({gpu.uuid for one in every for gpu in one.header.gpus}),
        first.interval_us / 1e6 if first else 0.0, sum(path.stat().st_size for path in files), str(folder),
    )  # fmt: skip


def recover() -> Iterator[Session]:
    """Make one file of what each recording left whose recorder or host died."""
    for session in sessions():
        if session.state == "crashed":
            _close(Path(session.folder))
            yield _session(session.name, Path(session.folder))


def paths_of(target: str) -> list[Path]:
    """Files and folders that a name, a run or a path means.

    Raises:
        NotFound: there is no recording of that name, and no file.
    """
    path = Path(target).expanduser()
    if path.suffix in _FILES and path.is_file():
        return [path]
    paths = state_paths()
    named = paths.recordings / target
    if "/" not in target and named.is_dir():
        return [named]
    workload, _, task = target.partition("/")
    attempts = beside(paths.workloads, workload) if workload and workload not in (".", "..") else []
    if found := [folder for folder in attempts if not task or task_of(folder) == target]:
        return found
    if path.is_dir() and (spools(path) or any(path.glob("*.parquet"))):
        return [path]
    known = sorted({one.name.split("/")[0] for one in sessions()})
    raise NotFound(
        f"there is no recording {target!r}", hint=did_you_mean(target, known, "see: remuda profiler sessions")
    )


def read(target: str) -> Recorded:
    """A recording as one timeline, over all attempts of a run.

    Raises:
        NotFound: there is none of that name.
        InputError: a file is none.
    """
    from remuda.profile import read as read_paths

    found = paths_of(target)
    name = target if len(found) > 1 or BESIDE in found[0].name else ""
    return read_paths(*found, name=name, attempt_of=attempt_of)

"""Looks whether all is well, without a host if need be, and ends what nobody wants any more."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import stat
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from remuda import __version__
from remuda.backends import registry
from remuda.backends.base import pack_token
from remuda.base.disk.paths import StatePaths
from remuda.base.errors import HostUnreachable, InputError, RemudaError
from remuda.base.settings import database_url
from remuda.base.units import show_counted
from remuda.client.http import HostClient
from remuda.client.upkeep.owners import Claimed, FoundAllocation, Home, judge
from remuda.fleet.processes import orphans
from remuda.look import run_dirs
from remuda.store.peek import Peek, peek
from remuda.views import unknown_allocs
from remuda.wire.process import start_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from remuda.backends.base import Backend, Stray

OK, NOTE, PROBLEM = "ok", "note", "problem"
TO_END: Final = (Claimed.ORPHAN, Claimed.HOMELESS)
_OVER = frozenset({"waiting", "failed", "done", "stopped"})
_GRACE_S, _KILL_S = 10.0, 60.0
_LOOK_AGAIN_S = 0.5
_WRITTEN_BYTES = 1 << 18
_FEW_BYTES = 1 << 28
_LOST: Final = (
    "bring a copy back: remuda db restore COPY; without one, what goes on of them is below, and remuda doctor --clean "
    "ends it; then remove their directories"
)
_NEEDED = ("sbatch", "squeue", "scancel", "scontrol")


@dataclass(frozen=True)
class DoctorCheck:
    """One thing that was looked at."""

    name: str
    state: str
    """`ok`, `note` or `problem`."""
    sentence: str
    todo: str = ""


@dataclass(frozen=True)
class Examination:
    """All that was looked at."""

    checks: tuple[DoctorCheck, ...]
    findings: tuple[FoundAllocation, ...]
    """Every allocation of this user that carries a token, wanted ones too."""
    stale_secrets: tuple[Path, ...] = ()

    @property
    def is_well(self) -> bool:
        """Whether nothing is wrong with this state directory, and nothing is left of it that somebody has to end."""
        return not any(one.is_own for one in _left(self.findings)) and all(one.state != PROBLEM for one in self.checks)

    def to_json(self) -> dict[str, Any]:
        """A JSON-able dict."""
        return {
            "well": self.is_well,
            "checks": [asdict(check) for check in self.checks],
            "allocations": [
                {
                    "token": finding.stray.token, "backend": finding.backend, "native": finding.stray.native,
                    "state": finding.stray.native_state, "node": finding.stray.node, "since": finding.stray.since,
                    "home": finding.stray.home, "verdict": finding.verdict.value, "sentence": finding.sentence,
                    "todo": finding.todo, "own": finding.is_own,
                }
                for finding in self.findings
            ],
        }  # fmt: skip


def examine(paths: StatePaths) -> Examination:
    """Look at everything. Starts nothing, and changes nothing but to write the node program where it is missing."""
    directory = _state_directory(paths)
    host, host_checks = _host(paths)
    backends, checks = _backends(paths)
    # What runs is looked up before the database: whatever was running then had been recorded.
    strays, silent = asyncio.run(_list_all(backends))
    seen, database = _database(paths, host)
    silent = [_weighed(check, seen) for check in silent]
    here = _here(paths, seen, host)
    normal = [(name, replace(stray, home=os.path.realpath(stray.home) if stray.home else "")) for name, stray in strays]
    looked_at = {path: _home(path) for path in {stray.home for _, stray in normal} - {"", here.path}}
    others = {path: home for path, home in looked_at.items() if home is not None}
    findings = tuple(judge(stray, name, here, others) for name, stray in normal)
    recorded = seen.workloads if seen is not None else None
    uids = {name: uid for name, (uid, _) in (recorded or {}).items()}
    stale = tuple(run_dirs.stale_secrets(paths, uids)) if recorded is not None else ()
    wanted = sum(is_wanted for _, is_wanted in (recorded or {}).values())
    checks = [
        directory, *_disk(paths), *host_checks, *_unwatched(wanted, here), *database, *checks, *silent,
        *_leftovers(paths, seen), *_secrets(stale), *_of_fleets(), *_of_others(findings),
    ]  # fmt: skip
    return Examination(tuple(checks), findings, stale)


# The parts


def _state_directory(paths: StatePaths) -> DoctorCheck:
    root = paths.root
    if not root.is_dir():
        return DoctorCheck(
            "state directory", NOTE, f"{root} is not there yet; the first command that needs it makes it"
        )
    if not os.access(root, os.W_OK | os.X_OK):
        return DoctorCheck(
            "state directory", PROBLEM, f"{root} cannot be written", f"check its owner and mode: ls -ld {root}"
        )
    if root.stat().st_mode & 0o077:
        return DoctorCheck("state directory", PROBLEM, f"{root} is open to other users", f"chmod 700 {root}")
    if said := paths.told():
        return DoctorCheck("state directory", NOTE, f"{root}, but {said}")
    return DoctorCheck("state directory", OK, str(root))


def _disk(paths: StatePaths) -> list[DoctorCheck]:
    """Whether there is room for what has to be recorded: tried by writing, because of quotas."""
    if not paths.root.is_dir():
        return []
    try:
        with tempfile.TemporaryFile(dir=paths.root) as file:
            file.write(b"\0" * _WRITTEN_BYTES)
            file.flush()
            os.fsync(file.fileno())
        free = shutil.disk_usage(paths.root).free
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        said = f"no room is left for {paths.root}" if full else f"{paths.root} cannot be written: {error.strerror}"
        todo = "make room: remuda db prune, remuda down NAME --remove, or a larger quota" if full else ""
        return [DoctorCheck("disk", PROBLEM, f"{said}; nothing new can be recorded", todo)]
    said = f"{free / 1e9:.1f} GB free for {paths.root}"
    return [DoctorCheck("disk", NOTE if free < _FEW_BYTES else OK, said)]


def _slurm_conf(environ: Mapping[str, str]) -> list[DoctorCheck]:
    """A configuration that is named and is not there makes every command of Slurm fail."""
    path = environ.get("SLURM_CONF", "")
    if not path or os.path.isfile(path):  # noqa: PTH113 - as Slurm takes it, without expansion
        return []
    todo = "load the module of your site again, or unset SLURM_CONF"
    return [DoctorCheck("slurm", PROBLEM, f"SLURM_CONF is {path}, and there is no such file", todo)]


def _host(paths: StatePaths) -> tuple[dict[str, Any], list[DoctorCheck]]:
    """What the host says of itself (empty: it says nothing), and how that is."""
    try:
        view: dict[str, Any] = HostClient(paths, timeout_s=10.0).get("/host")
    except HostUnreachable as error:
        if not paths.socket.exists():
            return {}, [DoctorCheck("host", OK, "none runs on this machine; commands that need one start it")]
        said = f"none answers, and its socket lies there: {error.message}"
        return {}, [DoctorCheck("host", NOTE, said, "the next command that needs a host replaces it")]
    except RemudaError as error:
        return {}, [DoctorCheck("host", PROBLEM, f"it answers with an error: {error}", "remuda host logs")]
    said = f"pid {view['pid']} on {view['node']}, version {view['version']}"
    if view["version"] != __version__:
        todo = "remuda host stop, then remuda host start; what runs keeps running"
        return view, [DoctorCheck("host", PROBLEM, f"{said}, but this command is version {__version__}", todo)]
    return view, [DoctorCheck("host", OK, said)]


def _unwatched(wanted: int, here: Home) -> list[DoctorCheck]:
    if not wanted or here.host:
        return []
    said = f"{wanted} workloads are wanted, and no host looks after them"
    return [DoctorCheck("workloads", PROBLEM, said, "remuda host start")]


def _backends(paths: StatePaths) -> tuple[Mapping[str, Backend], list[DoctorCheck]]:
    """The backends that can be asked here, and what they lack."""
    try:
        registry.install_node_program(paths)
        known = dict(registry.backends(paths))
        program = sorted(paths.node.glob("remuda-node-*.pyz"))
        checks = [DoctorCheck("node program", OK, f"{len(program)} in {paths.node}, that of this version among them")]
    except RemudaError as error:
        return {}, [DoctorCheck("node program", PROBLEM, str(error), error.hint)]
    except OSError as error:
        return {}, [DoctorCheck("node program", PROBLEM, f"it cannot be written: {error}", f"check {paths.node}")]
    environ = registry.environment(paths)
    missing = [name for name in _NEEDED if shutil.which(name, path=environ.get("PATH")) is None]
    if len(missing) == len(_NEEDED):
        known.pop("slurm", None)
        return known, [
            *checks,
            DoctorCheck("slurm", OK, "its commands are not on this machine; jobs were not looked for"),
        ]
    if missing:
        said = (
            f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not in PATH, though other commands of it are"
        )
        return known, [*checks, DoctorCheck("slurm", PROBLEM, said, "load the module of your site, or set PATH")]
    if no_conf := _slurm_conf(environ):
        known.pop("slurm", None)
        return known, [*checks, *no_conf]
    accounting = (
        ""
        if shutil.which("sacct", path=environ.get("PATH"))
        else "; without sacct, how jobs ended is known from files only"
    )
    return known, [*checks, DoctorCheck("slurm", OK, f"its commands are here{accounting}")]


async def _list_all(backends: Mapping[str, Backend]) -> tuple[list[tuple[str, Stray]], list[DoctorCheck]]:
    """All allocations with the backend of each, and which backends gave no answer."""
    names = list(backends)
    answers = await asyncio.gather(*(backends[name].list_all() for name in names), return_exceptions=True)
    found: list[tuple[str, Stray]] = []
    silent: list[DoctorCheck] = []
    for name, answer in zip(names, answers, strict=True):
        if isinstance(answer, RemudaError):
            said = f"what it runs is unknown: {answer}"
            silent.append(DoctorCheck(name, PROBLEM, said, answer.hint or "try again when it answers"))
        elif isinstance(answer, BaseException):
            raise answer
        else:
            found += [(name, stray) for stray in answer]
    return sorted(found, key=lambda item: item[1].token), silent


def _weighed(check: DoctorCheck, seen: Peek | None) -> DoctorCheck:
    """That a backend is silent which nothing here uses is only worth a note."""
    is_used = seen is None or (seen.exists and (seen.workloads is None or check.name in seen.backends))
    return check if is_used else replace(check, state=NOTE)


def _database(paths: StatePaths, host: Mapping[str, Any]) -> tuple[Peek | None, list[DoctorCheck]]:
    """What the database says, None where nobody knows which one it is."""
    try:
        seen = peek(database_url(paths))
    except InputError as error:
        return None, [DoctorCheck("database", PROBLEM, error.message, error.hint)]
    if host and host["database"] != seen.where:
        said = f"the host uses {host['database']}, and this command {seen.where}"
        return None, [
            DoctorCheck("database", PROBLEM, said, "set REMUDA_DATABASE_URL as it was where the host was started")
        ]
    if not seen.exists:
        said = f"{seen.where} is not there yet"
        if not run_dirs.listed(paths):
            return seen, [DoctorCheck("database", OK, f"{said}; the first host makes it")]
        todo = "if it is elsewhere, set REMUDA_DATABASE_URL; if it was lost, remuda db restore COPY"
        return None, [DoctorCheck("database", PROBLEM, f"{said}, though there are run directories", todo)]
    if seen.problem:
        return seen, [DoctorCheck("database", PROBLEM, seen.problem, seen.hint)]
    return seen, list(_sound(seen))


def _sound(seen: Peek) -> Iterator[DoctorCheck]:
    said = f"{seen.where}, revision {seen.revision}"
    if seen.revision > seen.newest_revision:
        said += f", and this command knows {seen.newest_revision} at most"
        yield DoctorCheck("database", PROBLEM, said, "use the newer remuda that wrote it")
    elif seen.revision < seen.newest_revision:
        yield DoctorCheck("database", NOTE, f"{said}; the next host brings it to {seen.newest_revision}")
    else:
        yield DoctorCheck("database", OK, said)
    if seen.on_network and seen.journal_mode == "wal":
        said = f"it is in WAL mode on {seen.file_system}, where other machines may damage it"
        yield DoctorCheck("database", PROBLEM, said, "remuda host stop; remuda db upgrade")


def _here(paths: StatePaths, seen: Peek | None, host: Mapping[str, Any]) -> Home:
    path = os.path.realpath(paths.root)
    name = f"pid {host['pid']} on {host['node']}" if host else _leader(seen)
    if seen is not None and not seen.exists:
        return Home(path, host=name, workloads={}, tokens={})
    if seen is None or seen.workloads is None:
        return Home(path, host=name)
    tokens = {token: phase not in _OVER for token, phase in seen.tasks.items()}
    packs = {pack_token(token): True for token, lives in tokens.items() if token and lives}
    return Home(path, True, name, seen.workloads, packs | tokens)


def _leader(seen: Peek | None) -> str:
    """Whose host has the lease; empty when nobody has it now."""
    if seen is None or seen.lease_until < time.time():
        return ""
    if seen.lease_node == os.uname().nodename and not start_time(seen.lease_pid):
        return ""  # it was killed a moment ago
    return f"pid {seen.lease_pid} on {seen.lease_node}"


def _home(path: str) -> Home | None:
    """Another state directory; None where it cannot be looked at."""
    paths = StatePaths(Path(path))
    try:
        is_there = stat.S_ISDIR(paths.root.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        is_there = False
    except OSError:
        return None  # such as in a folder of somebody else
    if not is_there:
        return Home(path, exists=False)
    seen = peek(paths.database)
    if not _leader(seen) and HostClient(paths, timeout_s=5.0).is_up():
        return Home(path, host=f"on {os.uname().nodename}")
    return Home(path, host=_leader(seen))


def _leftovers(paths: StatePaths, seen: Peek | None) -> list[DoctorCheck]:
    if seen is None or seen.workloads is None:
        return []
    lost = unknown_allocs.forgotten(paths, seen.workloads)
    checks = [DoctorCheck("lost records", NOTE, unknown_allocs.sentence(lost), _LOST)] if lost else []
    left = [entry.name for entry in run_dirs.listed(paths) if entry.name not in {*seen.workloads, *lost}]
    if not left:
        return checks
    shown = ", ".join(left[:5]) + (f" and {len(left) - 5} more" if len(left) > 5 else "")
    said = f"{len(left)} run directories in {paths.workloads} are of no workload: {shown}"
    return [*checks, DoctorCheck("run directories", NOTE, said, "remove those that you do not need; nothing else does")]


def _secrets(stale: Sequence[Path]) -> list[DoctorCheck]:
    if not stale:
        return []
    said = f"{len(stale)} folders of secrets are of workloads that are gone, the first is {stale[0]}"
    return [DoctorCheck("secrets", NOTE, said, "remuda doctor --clean removes them")]


def _of_fleets() -> Iterator[DoctorCheck]:
    found: dict[str, list[tuple[int, str]]] = {}
    for pid, name, folder in orphans():
        found.setdefault(folder, []).append((pid, name))
    for folder, daemons in found.items():
        named = ", ".join(f"{name} (pid {pid})" for pid, name in daemons)
        said = f"{named}: of {folder}, which was removed"
        yield DoctorCheck("fleet", NOTE, said, f"end what is left: kill {' '.join(str(pid) for pid, _ in daemons)}")


def _left(findings: Iterable[FoundAllocation]) -> list[FoundAllocation]:
    """What somebody has to end, or to look at."""
    return [finding for finding in findings if finding.verdict in (*TO_END, Claimed.UNKNOWN)]


def _of_others(findings: Iterable[FoundAllocation]) -> list[DoctorCheck]:
    others = [finding for finding in _left(findings) if not finding.is_own]
    if not others:
        return []
    said = f"{show_counted(len(others), 'allocation')} of other state directories may be left over"
    return [DoctorCheck("allocations", NOTE, said, "the lines below say how each can be ended")]


# Ending


def to_clean(seen: Examination, *, gone_homes: bool) -> list[FoundAllocation]:
    """What `clean` would end."""
    verdicts = TO_END if gone_homes else (Claimed.ORPHAN,)
    return [finding for finding in seen.findings if finding.verdict in verdicts]


def clean(paths: StatePaths, findings: Sequence[FoundAllocation], tell: Callable[[str], None]) -> None:
    """Ask allocations to end, kill what does not, and wait until they are gone or a minute is over.

    Raises:
        BackendUnreachable: no answer; what is left is not known.
    """
    asyncio.run(_clean(dict(registry.backends(paths)), findings, tell))


async def _clean(
    backends: Mapping[str, Backend], findings: Sequence[FoundAllocation], tell: Callable[[str], None]
) -> None:
    left = {finding.stray.token: finding for finding in findings if not _is_back(finding)}
    begun = time.monotonic()
    forced = False
    for finding in left.values():
        await backends[finding.backend].remove(finding.stray)
    while left:
        for name in {finding.backend for finding in left.values()}:
            living = {stray.token for stray in await backends[name].list_all()}
            for token in [token for token, finding in left.items() if finding.backend == name]:
                if token not in living:
                    tell(f"{token} has ended")
                    del left[token]
        passed = time.monotonic() - begun
        if passed > _KILL_S:
            return
        if passed > _GRACE_S and not forced:
            forced = True
            for finding in left.values():
                await backends[finding.backend].remove(finding.stray, force=True)
        await asyncio.sleep(_LOOK_AGAIN_S if left else 0)


def _is_back(finding: FoundAllocation) -> bool:
    """Whether a state directory that was gone has appeared again: then what it started is its own."""
    return finding.verdict is Claimed.HOMELESS and Path(finding.stray.home).exists()

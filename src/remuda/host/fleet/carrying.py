"""The head's side of carried allocations: gives a node the files of a job that runs there, and takes what it writes.

A node that fetches an allocation has it: the claim is made here, before the answer, so there is one copy, and none of
what was cancelled before. All of it works on files; call it in a thread.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import threading
import time
from base64 import b64encode
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from remuda.backends.base import is_token, read_token
from remuda.backends.left import Left
from remuda.backends.registry import install_node_program
from remuda.backends.rundir import travels
from remuda.base.disk.files import write_atomic
from remuda.base.errors import Rejected, Unavailable
from remuda.base.units import show_size
from remuda.fleet.carried.folder import pack
from remuda.node.child.launch import SecretMissing, read_secret
from remuda.node.records import REPORT
from remuda.wire.carrying import (
    ALWAYS,
    DOCUMENT,
    HOME_MARK,
    KEEPS,
    MOST_FILE,
    MOST_FILES,
    MOST_IN_ALL,
    PIECE_BYTES,
    Errand,
    FilePart,
    Kept,
    Parcel,
    Push,
    Wanted,
    is_grown,
    is_inside,
)
from remuda.wire.exit import CANNOT_START, ExitRecord
from remuda.wire.fleet import to_json, told
from remuda.wire.process import ProcessId
from remuda.wire.report import Report

if TYPE_CHECKING:
    from collections.abc import Callable
    from subprocess import CompletedProcess

    from remuda.base.disk.paths import StatePaths

_LOG = logging.getLogger("remuda.host.fleet")
VERBS: Final = ("fetch", "piece", "mirror")
MOST: Final = 8 << 20
"""Bytes of the files that go to a node for one allocation."""
FULL: Final = (
    f"it has written more than {MOST_FILES:,} files, or {show_size(MOST_IN_ALL)}, beside its folder: nothing more of "
    "them comes to the head"
)


class Carrying:
    """Carried allocations of one state directory.

    Args:
        paths: of it.
        take: is given their reports.
    """

    def __init__(self, paths: StatePaths, take: Callable[[Report], None]) -> None:
        self._paths, self._take = paths, take
        self._left, self._store = Left(paths.workloads), paths.fleet / "folders"
        self._packing, self._packed_at = threading.Lock(), dict[str, tuple[float, str]]()

    def proof(self) -> list[str]:
        """A file, and what is in it: who sees that at the same path shares this state directory."""
        path = self._paths.fleet / "proof"
        if not path.exists():
            write_atomic(path, secrets.token_hex(32), mode=0o600)
        return [str(path), path.read_text()]

    def heard(self, node: str, *, shares: bool, are_all: bool) -> None:
        """A node has said that it lives, and whether it, and all nodes of the fleet, share the state directory."""
        file = self._paths.fleet_heard / node
        file.parent.mkdir(mode=0o700, exist_ok=True)
        file.touch(mode=0o600)
        os.utime(file, (time.time(), time.time()))  # of this machine's clock, not of a file server's
        if not shares:
            self._paths.fleet_carried.touch(mode=0o600)
        elif are_all:
            self._paths.fleet_carried.unlink(missing_ok=True)

    async def answer(self, verb: str, node: str, body: bytes, ask: Callable[..., CompletedProcess[str]]) -> str:
        """What a node is answered to one of `VERBS`; errors as of the method of that name."""
        if verb == "fetch":
            return to_json(await asyncio.to_thread(self.fetch, node, told(Errand, body), ask))
        if verb == "piece":
            return to_json(await asyncio.to_thread(self.piece, node, told(Wanted, body)))
        kept, reports = await asyncio.to_thread(self.mirror, node, body)
        for report in reports:
            self._take(report)
        return to_json(kept)

    def fetch(self, node: str, errand: Errand, ask: Callable[..., CompletedProcess[str]]) -> Parcel:
        """The files of an allocation for the node that runs its job.

        Args:
            node: who asks.
            errand: what for.
            ask: runs one of Slurm's commands.

        Raises:
            Rejected: its job does not run there, or it is another's.
            Unavailable: that cannot be told, or done, now.
        """
        if not is_token(errand.token) or not errand.job.isdigit():
            raise Rejected(f"job {errand.job[:40]!r} cannot be an allocation's")
        _check_runs(node, errand, ask)
        folder = Path(self._left.folder(errand.token))
        try:
            self._claim(node, errand)
            parcel = self._parcel(folder, errand.token)
            kept = {"node": node, "job": errand.job, "tar": parcel.tar, "program": parcel.program}
            write_atomic(folder / KEEPS, json.dumps(kept) + "\n", mode=0o600)
            return parcel
        except (OSError, ValueError) as error:
            raise Unavailable(f"the files of {errand.token} cannot be read or written: {error}") from error

    def _claim(self, node: str, errand: Errand) -> None:
        """Let this job be the allocation's, unless another is, or it was cancelled before it ran."""
        kept = self._left.carried(errand.token)
        mine = ProcessId(pid=1, start=f"job {errand.job}", boot="", node=node)
        has_it = (kept.get("node"), kept.get("job")) == (node, errand.job)
        if not has_it and self._left.take(errand.token, mine) != mine:
            raise Rejected(f"{errand.token} is claimed already, or was cancelled before it ran")

    def _parcel(self, folder: Path, token: str) -> Parcel:
        """What goes to the node; where it cannot, that is the allocation's last word."""
        try:
            return self._packed(folder)
        except (SecretMissing, Rejected, PermissionError) as error:
            record = ExitRecord(token, read_token(token).attempt, CANNOT_START, time.time(), reason=str(error))
            write_atomic(folder / "exit.json", record.to_json(), mode=0o600)
            raise Rejected(str(error)) from error

    def _packed(self, folder: Path) -> Parcel:
        root, total = self._paths.workloads, 0
        goes = travels((folder / DOCUMENT).read_text(encoding="utf-8"), root)
        files: dict[str, list[Any]] = {}
        for path in map(Path, goes.paths):
            if path.is_file():
                total += path.stat().st_size
                if total > MOST:
                    raise Rejected(f"{path} is too large: {MOST >> 20} MiB go to a node with an allocation")
                text = path.read_text(encoding="utf-8", errors="surrogateescape")
                files[str(path.relative_to(root))] = [path.stat().st_mode & 0o700, text]
        name = str(folder.relative_to(root))
        for key, source in goes.secrets.items():
            files[f"{name}/{key}"] = [0o600, read_secret(key.partition(".")[2], source, os.environ)]
        text = json.dumps(goes.document, ensure_ascii=False).replace(f"{root}/", f"{HOME_MARK}/")
        files[f"{name}/{DOCUMENT}"] = [0o600, text.replace(f'"{root}"', f'"{HOME_MARK}"')]
        tar = self._tar(goes.folder) if goes.folder else ""
        return Parcel(name, files, install_node_program(self._paths).name, tar)

    def _tar(self, folder: str) -> str:
        """Name of a packed folder; who asked before it began to be looked through has it with the others."""
        asked = time.monotonic()
        with self._packing:
            began, name = self._packed_at.get(folder, (0.0, ""))
            if began < asked:
                began = time.monotonic()
                name = pack(Path(folder), self._store, self._paths.root).name
                self._packed_at[folder] = began, name
            return name

    def _kept(self, token: str) -> dict[str, Any]:
        return self._left.carried(token) if is_token(token) else {}

    def piece(self, node: str, wanted: Wanted) -> FilePart:
        """More of a file that a node's parcel names.

        Raises:
            Rejected: it has none of that name.
            Unavailable: it cannot be read now.
        """
        kept = self._kept(wanted.token)
        if kept.get("node") != node or not wanted.name or wanted.name not in (kept["program"], kept["tar"]):
            raise Rejected(f"no file {wanted.name[:80]!r} goes to {node} with {wanted.token[:80]!r}")
        folder = self._store if wanted.name == kept["tar"] else self._paths.node
        try:
            with (folder / wanted.name).open("rb") as file:
                file.seek(min(max(0, wanted.at), 1 << 40))
                return FilePart(b64encode(file.read(PIECE_BYTES)).decode())
        except OSError as error:
            raise Unavailable(f"{wanted.name} cannot be read: {error}") from error

    def mirror(self, node: str, body: bytes) -> tuple[Kept, list[Report]]:
        """Write what an allocation has written on its node; its reports are returned, too.

        Raises:
            ValueError: it cannot be read.
            Rejected: a name that is none of the allocation's files.
            Unavailable: it cannot be written now.
        """
        line, _, data = body.partition(b"\n")
        push = told(Push, line)
        kept = self._kept(push.token)
        if kept.get("node") != node or kept.get("done"):  # told once, an end is not taken back
            return Kept(foreign=True), []
        folder = Path(self._left.folder(push.token))
        sizes: dict[str, int] = {}
        reports: list[Report] = []
        try:
            noted = kept if kept.get("full") or not _is_full(folder) else {**kept, "full": FULL}
            for text in push.parts:
                how, at, size, name = _part(text)
                piece, data = data[:size], data[size:]
                if len(piece) != size:
                    raise ValueError(f"{name} is not whole")
                is_left = name in sizes or ("full" in noted and name not in ALWAYS)
                if not is_left and not self._write(folder, how, name, at, piece):
                    sizes[name] = _size(folder / name)
                elif name == REPORT:
                    reports += _reports(push.token, piece)
            if push.done and not sizes:
                noted = {**noted, "done": True}
            if noted != kept:
                write_atomic(folder / KEEPS, json.dumps(noted) + "\n", mode=0o600)
        except OSError as error:
            raise Unavailable(f"what {push.token} wrote cannot be kept: {error}") from error
        if "full" in noted and "full" not in kept:
            _LOG.warning("%s: %s", push.token, FULL)
        return Kept(sizes), reports

    def _write(self, folder: Path, how: str, name: str, at: int, piece: bytes) -> bool:
        """One part; False where the file has another size than it should."""
        path = folder / name
        with suppress(FileExistsError, NotADirectoryError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.is_dir() or not path.parent.is_dir():  # it was the other one before: that stays
            return True
        if how == "put":
            write_atomic(path, piece, mode=0o600, sync=name.startswith("exit"))
        elif how == "turn":
            older = path.with_name(f"{path.name}.1")
            if _size(path) != at or not path.exists():  # maybe it was turned before, and the answer was lost
                return not path.exists() and _size(older) >= at
            path.replace(older)
        else:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "ab") as file:
                if os.fstat(fd).st_size != at:
                    return False
                file.write(piece)
        return True


def _is_full(folder: Path) -> bool:
    """Whether an allocation has all the files, or bytes, that it may have."""
    sizes = [_size(Path(top, name)) for top, _, names in os.walk(folder) for name in names]
    return len(sizes) >= MOST_FILES or sum(sizes) >= MOST_IN_ALL


def _reports(token: str, piece: bytes) -> list[Report]:
    with suppress(ValueError):
        report = Report.from_json(piece.decode())
        return [report] if report.token == token else []
    return []


def _check_runs(node: str, errand: Errand, ask: Callable[..., CompletedProcess[str]]) -> None:
    """See that Slurm has this job, of this name, on that node.

    Raises:
        Rejected: it has not.
        Unavailable: it does not say.
    """
    done = ask("squeue", "-h", "-j", errand.job, "-o", "%T %N %j")
    if done.returncode and "nvalid job id" not in done.stderr:
        raise Unavailable(f"Slurm does not say what runs on {node}: {done.stderr.strip()[-200:]}")
    if done.stdout.split() not in (["RUNNING", node, errand.token], ["CONFIGURING", node, errand.token]):
        raise Rejected(f"job {errand.job} is not {errand.token}, or does not run on {node}")


def _part(text: str) -> tuple[str, int, int, str]:
    how, at, size, name = text.split(" ", 3)
    if how not in ("add", "put", "turn") or (how == "put") == is_grown(name) or not is_inside(name):
        raise Rejected(f"an allocation has no file {name[:80]!r} that its node could write")
    if not 0 <= int(at) <= MOST_FILE - int(size) <= MOST_FILE:
        raise ValueError("a part has no such size")
    return how, int(at), int(size), name


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.lstat().st_size
    return 0

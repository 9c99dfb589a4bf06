"""Carried allocations on their node: their files come from the head, and what they write is mirrored there.

`Carrier` is a part of the client; `node/errand.py` is what asks it, from within a job. One allocation is `Carried`: a
folder that looks as it does on the head. What was sent is in a file beside it, so a client that is killed continues.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shlex
import shutil
import stat
import sys
import tarfile
import time
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from remuda.base.disk.files import create, remove_empty, write_atomic
from remuda.base.disk.private import make_private
from remuda.base.errors import HostUnreachable, NotFound, RemudaError, Unavailable
from remuda.fleet.carried.folder import clear, collect, prune, unpack
from remuda.fleet.link import Stranger
from remuda.wire.carrying import (
    ADDRESS_MARK,
    ALWAYS,
    DOCUMENT,
    HOME_MARK,
    MOST_FILE,
    MOST_FILES,
    PIECE_BYTES,
    PYTHON_MARK,
    RESULTS,
    WORK,
    Errand,
    FilePart,
    Kept,
    Parcel,
    Push,
    Wanted,
    is_grown,
    is_inside,
)
from remuda.wire.fleet import to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOOK_S: Final = 0.3
"""Between two looks at what allocations wrote."""
TURN_S: Final = 1.0
"""One allocation is pushed at a time: others on this node, which may be heard by nothing else, wait no longer."""
SOON_S, NEW_S = 0.05, 3.0
"""The same while one is so new: its first lines are waited for."""
AGAIN_S: Final = 2.0
"""After a head that did not answer."""
_ERRAND: Final = Path(__file__).resolve().parents[2] / "node" / "errand.py"
SENT, LOCK, CALL, SOCKET = ".sent.json", ".lock", "remuda-carried", "carry.sock"
_MOST_PARTS: Final = 32
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
T = TypeVar("T")


class Ask(Protocol):
    """One request to the head."""

    async def __call__(self, verb: str, message: Any, answer: Callable[[], T]) -> T:
        """As `Link.ask`."""


class Carried:
    """One allocation, while it runs here and until the head has all of it.

    Args:
        folder: of it.
        token: of it.
        sent: of each file that the head has: inode, and size or time.
        tar: what its folder was unpacked from; empty: nothing.
    """

    def __init__(self, folder: Path, token: str, sent: dict[str, list[int]], tar: str = "") -> None:
        self.folder, self.token, self.sent, self.tar = folder, token, sent, tar

    def keep(self) -> None:
        """Note what was sent."""
        text = json.dumps({"sent": self.sent, "tar": self.tar})
        write_atomic(self.folder / SENT, text, mode=0o600, sync=False)

    @classmethod
    def found(cls, folder: Path) -> Carried:
        """What an earlier client carried. Where its note is spoilt, the head says what it has."""
        task, attempt = folder.parent.name.rpartition("-"), folder.name.split("-", 2)
        token = ".".join([folder.parent.parent.name, task[0], task[2], *attempt[1:]])
        try:
            said = json.loads((folder / SENT).read_text())
            sent = {name: [int(node), abs(int(mark))] for name, (node, mark) in said["sent"].items()}
            return cls(folder, token, sent, str(said["tar"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return cls(folder, token, {})

    @property
    def lives(self) -> bool:
        """Whether its node program does."""
        fd = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def collect(self) -> None:
        """After its end: pack what the task made or changed, for the head, unless that is too large."""
        work, path = self.folder / WORK, self.folder / RESULTS
        if work.exists() and not path.exists():
            clear(Path(self.tar), work)
            collect(work, path, MOST_FILE)

    def next(self, *, lives: bool = False) -> tuple[bytes, dict[str, list[int]]] | None:
        """What to push now, and what of `sent` it changes; None where the head has all of it.

        A last word is pushed when all else is there, so who sees it on the head finds the whole output.
        """
        parts: list[str] = []
        pieces: list[bytes] = []
        changed: dict[str, list[int]] = {}
        room = PIECE_BYTES
        for name in self._names():
            is_last = name.startswith("exit")
            if len(parts) == _MOST_PARTS or room <= 0 or (is_last and (parts or lives)):
                break
            part = self._part(name, room)
            if part is not None:
                how, at, piece, mark = part
                parts.append(f"{how} {at} {len(piece)} {name}")
                pieces.append(piece)
                changed[name] = mark
                room -= len(piece)
                if how == "turn":
                    break
        if not parts:
            return None
        return b"\n".join([to_json(Push(self.token, parts)).encode(), b"".join(pieces)]), changed

    def _names(self) -> list[str]:
        """Files that are mirrored: the claim first, then those beside it, last words last, whatever lies there."""
        found = [str(path.relative_to(self.folder)) for path in _files(self.folder)]
        wanted = sorted((name.startswith("exit"), not name.startswith("claim"), "/" in name, name) for name in found)
        names = [name for *_, name in wanted if is_inside(name)]
        return [*names[:MOST_FILES], *(name for name in names[MOST_FILES:] if name in ALWAYS)]

    def _part(self, name: str, room: int) -> tuple[str, int, bytes, list[int]] | None:
        try:
            with open(os.open(self.folder / name, _READ), "rb") as file:  # noqa: PTH123
                status = os.fstat(file.fileno())
                most = MOST_FILE if is_grown(name) else PIECE_BYTES
                if not stat.S_ISREG(status.st_mode) or status.st_size > most:
                    return None
                if not is_grown(name):
                    mark = [status.st_ino, status.st_mtime_ns]
                    return None if mark == self.sent.get(name) else ("put", 0, file.read(), mark)
                if name not in self.sent:  # noted before the head has any of it: it may be another file by then
                    self.sent[name] = [status.st_ino, 0]
                    self.keep()
                was = self.sent[name]
                if was[0] != status.st_ino or status.st_size < was[1]:  # what was sent is NAME.1 now
                    return "turn", was[1], b"", [0, 0]
                file.seek(was[1])
                piece = file.read(room)
                return ("add", was[1], piece, [status.st_ino, was[1] + len(piece)]) if piece else None
        except OSError:
            return None

    def accept(self, changed: dict[str, list[int]], kept: Kept) -> None:
        """Note what the head took, and where it wants a file to continue."""
        for name, mark in changed.items():
            if name in kept.sizes:
                self.sent[name][1] = kept.sizes[name]
            elif mark == [0, 0]:  # turned: what is sent of it goes on under its new name
                self.sent[f"{name}.1"] = self.sent.pop(name)
            else:
                self.sent[name] = mark
        self.keep()

    def drop(self) -> None:
        """The head has all of it: forget it, and last that it was here. What was too large stays."""
        stays = "" if (self.folder / RESULTS).exists() else WORK
        for path in sorted(self.folder.iterdir(), key=lambda path: (path.name == LOCK, path.name == RESULTS)):
            if path.name != stays:
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        remove_empty(self.folder)


class Carrier:
    """All carried allocations of this node.

    Args:
        folder: what this machine keeps as a node.
        ask: asks its head.
        tell: is told what goes wrong, in sentences.
        address: says where others in the fleet reach this machine.
    """

    def __init__(self, folder: Path, ask: Ask, tell: Callable[[str], None], address: Callable[[], str]) -> None:
        self._home = folder / "slurm"
        self._root, self._store = folder / "carried", folder / "fetched"
        self._turn, self._changing = asyncio.Lock(), asyncio.Lock()
        self._ask, self._tell, self._address = ask, tell, address
        self._all: dict[str, Carried] = {}
        self._new_until = 0.0
        self._said: dict[str, str] = {}
        """What went wrong last, by token."""

    @property
    def owes(self) -> bool:
        """Whether the head has not all of what ran here."""
        return any(self._root.glob(f"*/*/*/{LOCK}"))

    async def run(self) -> None:
        """Carry, for as long as this client runs."""
        while True:
            try:
                await self._carry()
            except Exception as error:  # noqa: BLE001 - jobs would wait for their files without end
                self._complain("", f"nothing is carried: {error}")
            await asyncio.sleep(AGAIN_S)

    async def _carry(self) -> None:
        await asyncio.to_thread(self._prepare)
        server = await asyncio.start_unix_server(self._hear, self._home / SOCKET)
        async with server:
            while True:
                pause_s = SOON_S if time.monotonic() < self._new_until else LOOK_S
                for one in [one for one in self._all.values() if one.folder.exists()]:
                    try:
                        await self._mirror(one)
                        self._said.pop(one.token, None)
                    except Exception as error:  # noqa: BLE001 - others go on
                        self._complain(one.token, f"what {one.token} writes does not reach the head: {error}")
                        pause_s = AGAIN_S
                        if isinstance(error, HostUnreachable):
                            break
                await asyncio.sleep(pause_s)

    def _complain(self, token: str, sentence: str) -> None:
        if sentence != self._said.get(token):
            self._tell(sentence)
        self._said[token] = sentence

    def _prepare(self) -> None:
        """Find what an earlier client carried, and put there what jobs ask with."""
        make_private(self._home)
        words = [sys.executable, "-I", "-S", str(_ERRAND), str(self._home / SOCKET)]
        write_atomic(self._home / CALL, f"#!/bin/sh\nexec {shlex.join(words)}\n", mode=0o700)
        (self._home / SOCKET).unlink(missing_ok=True)
        for path in self._root.glob(f"*/*/*/{LOCK}"):  # a job without it asks again
            one = Carried.found(path.parent)
            self._all[one.token] = one

    # --- there -------------------------------------------------------------------------------------------------------

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One job that asks for its files; it hangs up when it has their lock, or is cancelled: then it has ended."""
        made = None
        try:
            said = json.loads(await asyncio.wait_for(reader.readline(), AGAIN_S))
            answer, made = await self._fetch(Errand(str(said["token"]), str(said["job"])))
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
            await reader.read()  # before it has the lock it looks like one that has ended
        except Exception as error:  # noqa: BLE001 - it asks again, and others are heard
            if not isinstance(error, OSError):  # else it was cancelled while it waited
                self._complain("", f"a job got no files: {error!r}")
        finally:
            if made is not None:
                self._all[made.token], self._new_until = made, time.monotonic() + NEW_S
            writer.close()

    async def _fetch(self, wanted: Errand) -> tuple[dict[str, str], Carried | None]:
        try:
            parcel = await self._ask("fetch", wanted, Parcel)
            program = await self._obtain(wanted.token, parcel.program)
            tar = await self._obtain(wanted.token, parcel.tar) if parcel.tar else None
            async with self._changing:
                made = await asyncio.to_thread(self._made, wanted.token, parcel, tar)
        except (Unavailable, Stranger, OSError) as error:
            self._complain(wanted.token, f"{wanted.token} waits for its files: {error}")
            return {}, None
        except RemudaError as error:
            self._tell(f"{wanted.token} is not started: {error}")
            return {"error": str(error)}, None
        folder = made.folder
        return {"document": f"{folder}/{DOCUMENT}", "program": str(program), "folder": str(folder)}, made

    async def _obtain(self, token: str, name: str) -> Path:
        """A file that a parcel names; one that came with an earlier parcel is there."""
        path = self._store / Path(name).name
        async with self._turn:
            if path.exists():
                path.touch()
                return path
            make_private(self._store)
            prune(self._store)
            part = path.with_suffix(".part")
            with create(part, 0o600) as file:
                while data := b64decode((await self._ask("piece", Wanted(token, name, file.tell()), FilePart)).data):
                    file.write(data)
                file.flush()
                await asyncio.to_thread(os.fsync, file.fileno())
            part.replace(path)
        return path

    def _made(self, token: str, parcel: Parcel, tar: Path | None) -> Carried:
        """The allocation unpacked; nothing of it is left, no secret either, where that fails."""
        try:
            return self._unpack(token, parcel, tar)
        except (RemudaError, OSError, tarfile.TarError) as error:
            if token not in self._all:
                shutil.rmtree(self._below(parcel.folder), ignore_errors=True)
            if tar is not None and isinstance(error, tarfile.TarError):
                tar.unlink(missing_ok=True)
                raise Unavailable(f"{tar} is spoilt, and fetched again: {error}") from error
            raise

    def _unpack(self, token: str, parcel: Parcel, tar: Path | None) -> Carried:
        for name, (mode, text) in parcel.files.items():
            data = self._filled(text) if name.endswith(f"/{DOCUMENT}") else text
            _put(self._below(name), data.encode("utf-8", errors="surrogateescape"), mode)
        folder = self._below(parcel.folder)
        if tar is None:
            (folder / WORK).mkdir(mode=0o700, exist_ok=True)
        elif not (folder / WORK).exists():
            unpack(tar, folder / WORK)
        made = self._all.get(token) or Carried(folder, token, {}, str(tar or ""))
        made.keep()
        return made

    def _filled(self, document: str) -> str:
        """A document with what is so on this machine."""
        for mark, own in ((HOME_MARK, str(self._root)), (ADDRESS_MARK, self._address()), (PYTHON_MARK, sys.executable)):
            document = document.replace(mark, own)
        return document

    def _below(self, name: str) -> Path:
        """A path of the head's, here.

        Raises:
            NotFound: it leads elsewhere.
        """
        if name.startswith("/") or ".." in name.split("/"):
            raise NotFound(f"{name} leads out of the run directories")
        return self._root / name

    # --- and back ----------------------------------------------------------------------------------------------------

    async def _mirror(self, one: Carried) -> None:
        """Push what an allocation wrote since the last look; of one that has ended, all of it."""
        lives = one.lives
        if not lives:
            try:
                await asyncio.to_thread(one.collect)
            except OSError as error:  # its end counts all the same
                self._complain(f"{one.token}/{WORK}", f"what {one.token} made stays in {one.folder / WORK}: {error}")
        until = time.monotonic() + TURN_S
        while (found := await asyncio.to_thread(one.next, lives=lives)) is not None:
            body, changed = found
            kept = await self._ask("mirror", body, Kept)
            if kept.foreign:
                break
            await asyncio.to_thread(one.accept, changed, kept)
            if (lives and len(body) < PIECE_BYTES) or time.monotonic() > until:
                break
        if found is None and not lives:
            kept = await self._ask("mirror", to_json(Push(one.token, done=True)).encode(), Kept)
        if not lives and (found is None or kept.foreign):
            del self._all[one.token]
            async with self._changing:
                await asyncio.to_thread(self._forget, one)

    def _forget(self, one: Carried) -> None:
        """Forget an allocation, and with the last one of its workload what they share."""
        one.drop()
        task, workload, *_ = one.folder.parents
        remove_empty(task)
        if not any(workload.glob("*/attempt-*")):
            shutil.rmtree(workload, ignore_errors=True)


def _files(folder: Path) -> Iterator[Path]:
    """Files of an allocation but those that its task works with; no link is followed."""
    for top, folders, names in os.walk(folder):
        if Path(top) == folder and WORK in folders:
            folders.remove(WORK)
        yield from (Path(top, name) for name in names if not name.startswith("."))


def _put(path: Path, data: bytes, mode: int) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomic(path, data, mode=mode, sync=False)

"""The folder of a command, which travels to a node: one file, named by what is in it, so that it is copied once."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import stat
import subprocess
import tarfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from remuda.base.disk.files import create
from remuda.base.disk.private import make_private
from remuda.base.errors import Rejected
from remuda.base.units import show_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST_BYTES: Final = 200 << 20
MOST_FILES: Final = 50_000
KEPT_S: Final = 30 * 86400.0
"""For so long after its last use a packed folder is kept,"""
MOST_KEPT: Final = 10 << 30
"""and of so many bytes in all only those of the last day."""
_GIT_S: Final = 60.0


def pack(root: Path, store: Path, without: Path) -> Path:
    """The file of a folder as it is now; of one that has not changed, the file that is there.

    Args:
        root: the folder.
        store: where such files are kept.
        without: a folder that never travels, wherever it lies.

    Raises:
        Rejected: it is none, or too large.
        OSError: it cannot be read, or its file not written.
    """
    if not root.is_dir():
        raise Rejected(f"{root} is not a folder on the head's machine, and the folder of a command goes to its node")
    found = _found(root, without.resolve())
    said = "".join(f"{name}\0{one.st_mode}\0{one.st_size}\0{one.st_mtime_ns}\0" for name, one in found.items())
    path = store / f"{hashlib.sha256(os.fsencode(said)).hexdigest()[:32]}.tar"
    if path.exists():
        path.touch()
        return path
    make_private(store)
    prune(store)
    return _write(path, root, found)


def collect(root: Path, path: Path, most: int) -> None:
    """Pack all files of a folder, unless it has none, or more than so many bytes; OSError as of `pack`."""
    found = sorted(_walk(root)) if root.exists() else []
    names = [name for name in found if stat.S_ISREG((root / name).lstat().st_mode)]
    if names and sum((root / name).lstat().st_size + 2048 for name in names) < most - 10240:  # with its headers
        _write(path, root, names)
        if path.stat().st_size > most:
            path.unlink()  # headers of long names: what is too large stays where it is


def _write(path: Path, root: Path, names: Iterable[str]) -> Path:
    draft = path.with_name(f".{secrets.token_hex(8)}")
    try:
        with create(draft, 0o600) as file, tarfile.open(fileobj=file, mode="w") as tar:
            for name in names:
                tar.dereference = not (root / name).is_symlink()  # a file of two names is two files there
                tar.add(root / name, name, recursive=False)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return path


def _found(root: Path, without: Path) -> dict[str, os.stat_result]:
    """Files and links of a folder that travel, by their names.

    Raises:
        Rejected: they are too large, or too many.
    """
    found: dict[str, os.stat_result] = {}
    total, here = 0, root.resolve()
    for name in _names(root):
        if (here / name).is_relative_to(without):
            continue
        with suppress(FileNotFoundError):  # git knows of files that were deleted
            status = (root / name).lstat()
            if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
                found[name] = status
                total += status.st_size
        if total > MOST_BYTES or len(found) > MOST_FILES:
            raise Rejected(
                f"{root} has more than {show_size(MOST_BYTES)} or {MOST_FILES:,} files, and goes to a node as a whole; "
                "name a smaller folder (--workdir DIR), or let git ignore what the node does not need"
            )
    return dict(sorted(found.items()))


def _names(root: Path) -> Iterator[str]:
    """Without what git ignores; where git does not know the folder, without names that begin with a dot."""
    words = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_GIT_S)
        if done.returncode == 0 and done.stdout:  # a repository above may ignore all of it
            for name in (os.fsdecode(name).rstrip("/") for name in done.stdout.split(b"\0") if name):
                is_repository = not (root / name).is_symlink() and (root / name / ".git").exists()
                yield from (f"{name}/{one}" for one in _names(root / name)) if is_repository else (name,)
            return
    yield from _walk(root, besides=".")


def _walk(root: Path, besides: str = "/") -> Iterator[str]:
    """Files and links of a folder but those whose names, or folders, begin so; no link is followed."""
    for top, folders, names in os.walk(root, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith(besides)]
        links = [name for name in folders if Path(top, name).is_symlink()]
        yield from (str(Path(top, name).relative_to(root)) for name in (*names, *links) if not name.startswith(besides))


def _raise(error: OSError) -> None:
    raise error


def unpack(path: Path, folder: Path) -> None:
    """Make a folder of a file; one that was not finished begins anew."""
    draft = folder.with_name(f".{folder.name}")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o700)
    with tarfile.open(path) as file:
        file.extraction_filter = getattr(tarfile, "tar_filter", None)
        file.extractall(draft)  # noqa: S202 - the head wrote it, whose programs run here, too
    draft.rename(folder)


def clear(path: Path, folder: Path) -> None:
    """Remove from a folder what was unpacked and has not changed since, and what is empty then."""
    there = {*_walk(folder)}  # not what lies behind a link that took the place of a folder
    with suppress(OSError, tarfile.TarError), tarfile.open(path) as file:
        for one in file:
            with suppress(OSError):
                status = (folder / one.name).lstat()
                same = status.st_size == one.size and abs(status.st_mtime - one.mtime) < 0.001
                if one.name in there and (stat.S_ISLNK(status.st_mode) or same):
                    (folder / one.name).unlink()
    for top, _, _ in os.walk(folder, topdown=False):
        with suppress(OSError):
            Path(top).rmdir()


def prune(store: Path) -> None:
    """Remove packed folders that nobody has used for a while."""
    found, total = [(one.stat(), one) for one in store.glob("*.tar")], 0
    for status, path in sorted(found, key=lambda one: -one[0].st_mtime):
        total += status.st_size
        if status.st_mtime < time.time() - (KEPT_S if total <= MOST_KEPT else 86400.0):
            path.unlink(missing_ok=True)

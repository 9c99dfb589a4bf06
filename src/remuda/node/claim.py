"""One copy of an allocation: whoever makes `claim.json` first runs it, every other copy ends at once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from remuda.wire.process import identify

if TYPE_CHECKING:
    from pathlib import Path

CLAIM = "claim.json"


def claim(run_dir: Path) -> bool:
    """Take the allocation whose directory this is; False when somebody took it before, dead or alive.

    The claim holds this process's `wire.ProcessId` and is complete when it becomes visible: it is written beside and
    then linked, which is atomic and exclusive on NFS too.

    Raises:
        OSError: the directory cannot be made or written.
    """
    target = run_dir / CLAIM
    if target.exists():
        return False
    run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = run_dir / f".{CLAIM}.{os.uname().nodename}.{os.getpid()}"
    text = identify(os.getpid()).to_json() + "\n"
    try:
        _write(draft, text, os.O_CREAT | os.O_TRUNC)
        taken = _link(draft, target, text)
    finally:
        draft.unlink(missing_ok=True)
    sync_directory(run_dir)
    return taken


def _link(draft: Path, target: Path, text: str) -> bool:
    try:
        os.link(draft, target)
    except FileExistsError:
        # An NFS server may have made the link and its answer been lost: then the retry says that it exists.
        return draft.stat().st_nlink == 2
    except OSError:
        return _create(target, text)
    return True


def _create(target: Path, text: str) -> bool:
    """Where there are no hard links: exclusive too, only that a crash in between leaves an incomplete claim."""
    try:
        _write(target, text, os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        return False
    return True


def _write(path: Path, text: str, flags: int) -> None:
    fd = os.open(path, os.O_WRONLY | flags, 0o644)
    with os.fdopen(fd, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Make the names in a directory survive a crash of the machine, where the file system can."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError:
        pass  # some network file systems refuse to sync directories
    finally:
        os.close(fd)

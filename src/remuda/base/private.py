"""Directories that only the user can write: what lies in them is read, and run, because of where it lies.

They are made with mode 0700 before anything is put there. One that is somebody else's, or that others can write, is
refused with a sentence: nobody knows who wrote what is in it.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from remuda.base.errors import NotPrivate

if TYPE_CHECKING:
    from pathlib import Path

WRITABLE = 0o022
"""By the group or by others."""
_REACHABLE = 0o011
_ELSEWHERE = "set REMUDA_HOME to a directory of your own"


def make_private(folder: Path, *, below: Path | None = None, instead: str = _ELSEWHERE) -> Path:
    """Make `folder` and what is missing above it, with mode 0700, or see that it is the user's alone; returns it.

    A user's own directory that others can only read is left as it is.

    Args:
        folder: to be made or looked at; a link to such a directory will do if nobody else made the link.
        below: every level from this one down to `folder` is looked at, too. Where nobody else can enter it, what is
            the user's own inside it is closed instead of refused: umasks of old have left such directories.
        instead: what to do where `folder` cannot be the user's; for the error.

    Raises:
        NotPrivate: it is somebody else's, or others can write it.
        OSError: it cannot be made.
    """
    closed = False
    for level in _levels(folder, below):
        if not _is_made(level):
            closed = _check(level, closed, instead) or closed
    return folder


def make_missing(folder: Path) -> None:
    """Make `folder` and what is missing above it, with mode 0700; what is there is not looked at.

    Raises:
        OSError: it cannot be made.
    """
    with suppress(FileExistsError):
        try:
            folder.mkdir(mode=0o700)
        except FileNotFoundError:
            make_missing(folder.parent)
            folder.mkdir(mode=0o700)


def check_private(path: Path, *, below: Path | None = None, instead: str = _ELSEWHERE) -> None:
    """The same for a file or directory that may be there; nothing is wrong where there is none.

    Raises:
        NotPrivate: it is somebody else's, or others can write it.
    """
    closed = False
    with suppress(FileNotFoundError, NotADirectoryError):
        for level in _levels(path, below):
            closed = _check(level, closed, instead) or closed


def complaint(owner: int, mode: int, me: int) -> str:
    """What speaks against trusting what has this owner and mode; empty when nothing does. Pure but for names."""
    if owner != me:
        return f"belongs to {user_name(owner)} and not to {user_name(me)} (mode {stat.S_IMODE(mode):04o})"
    if mode & WRITABLE:
        return f"can be written by others than {user_name(me)} (mode {stat.S_IMODE(mode):04o})"
    return ""


def user_name(uid: int) -> str:
    """A user for a sentence: the name, or the number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _levels(folder: Path, below: Path | None) -> list[Path]:
    if below is None or not folder.is_relative_to(below):
        return [folder]
    levels = [below]
    for part in folder.relative_to(below).parts:
        levels.append(levels[-1] / part)
    return levels


def _is_made(folder: Path) -> bool:
    """Whether it was missing, and is there now."""
    if os.path.lexists(folder):
        return False
    make_missing(folder.parent)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        return False
    return True


def _check(path: Path, closed: bool, instead: str) -> bool:
    """Refuse it, or say whether nobody else can enter it.

    Args:
        path: it.
        closed: whether nobody else can enter a directory above it.
        instead: for the error.
    """
    link, me = path.lstat(), os.geteuid()
    if stat.S_ISLNK(link.st_mode) and link.st_uid not in (me, 0):
        raise NotPrivate(f"{path} is a link that {user_name(link.st_uid)} made", hint=instead)
    status = path.stat()
    wrong = complaint(status.st_uid, status.st_mode, me)
    if wrong and closed and status.st_uid == me:
        path.chmod(stat.S_IMODE(status.st_mode) & ~WRITABLE)
        return False
    if wrong:
        raise NotPrivate(f"{path} {wrong}{_group(status)}", hint=_way_out(path, status, instead))
    return stat.S_ISDIR(status.st_mode) and not status.st_mode & _REACHABLE


def _group(status: os.stat_result) -> str:
    if not status.st_mode & stat.S_IWGRP or status.st_uid != os.geteuid():
        return ""
    try:
        return f": by all in group {grp.getgrgid(status.st_gid).gr_name}"
    except KeyError:
        return f": by all in group {status.st_gid}"


def _way_out(path: Path, status: os.stat_result, instead: str) -> str:
    if status.st_uid != os.geteuid():
        return instead
    mode = "600" if stat.S_ISREG(status.st_mode) else "700"
    return f"if nobody shares it: chmod {mode} {path}, and look whether all in it is yours; else {instead}"

"""Directories that only the user can write: what lies in them is read, and run, because of where it lies.

They are made with mode 0700 before anything is put there. One that is somebody else's, or that others can write, is
refused with a sentence: nobody knows who wrote what is in it.

Whoever can write a folder above can put another directory in its place. Where that is everybody, it is refused, too.
Where it is a group, or the one whose project folder that is, the user is told: they may be trusted.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.base.errors import NotPrivate

if TYPE_CHECKING:
    from collections.abc import Iterator

WRITABLE = 0o022
"""By the group or by others."""
_REACHABLE = 0o011
_MOST_LINKS = 40
"""On one way, as the kernel has it."""
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


@dataclass(frozen=True)
class Exposure:
    """A folder on the way to another, where somebody else can put something else in the place of the next step."""

    folder: Path
    owner: int
    group: int
    mode: int

    @property
    def to_all(self) -> bool:
        """Whether that is everybody. In a folder with the sticky bit only owners rename and remove."""
        return bool(self.mode & stat.S_IWOTH) and not self.mode & stat.S_ISVTX

    @property
    def to_group(self) -> bool:
        """Whether that is all in the group."""
        return bool(self.mode & stat.S_IWGRP) and not self.mode & stat.S_ISVTX and self.group != 0

    def who(self, me: int) -> tuple[str, ...]:
        """Those who can, for a sentence; a group without other members is nobody."""
        found = [user_name(self.owner)] if self.owner not in (me, 0) else []
        if self.to_group and not _is_own_group(self.group, me):
            found.append(f"all in group {group_name(self.group)}")
        return tuple(found)


def exposures(path: Path) -> Iterator[Exposure]:
    """The folders on the way to `path`, links and all, that others than its user and root can change."""
    me = os.geteuid()
    for step in _way(path):
        with suppress(OSError):
            status = step.lstat()
            found = Exposure(step, status.st_uid, status.st_gid, 0 if stat.S_ISLNK(status.st_mode) else status.st_mode)
            if found.to_all or found.to_group or found.owner not in (me, 0):
                yield found


def check_above(path: Path, *, instead: str = _ELSEWHERE) -> None:
    """See that not any user can replace `path`.

    Raises:
        NotPrivate: everybody can; says where, and what to do.
    """
    for found in exposures(path):
        if found.to_all:
            mine = found.owner == os.geteuid()
            todo = (
                f"chmod o-w {found.folder}" if mine else f"have its owner set the sticky bit (chmod +t {found.folder})"
            )
            raise NotPrivate(
                f"any user can replace {path}: "
                f"{found.folder}, above it, is writable by all (mode {stat.S_IMODE(found.mode):04o})",
                hint=f"{todo}, or {instead}",
            )


def told_above(path: Path, *, instead: str = _ELSEWHERE) -> str:
    """Who else can put another directory in the place of `path`, in a sentence; empty where nobody can."""
    who = dict.fromkeys(f"{one} (in {found.folder})" for found in exposures(path) for one in found.who(os.geteuid()))
    if not who:
        return ""
    return (
        f"{' and '.join(who)} can put another directory in the place of {path}, and so run programs as you; "
        f"if you do not trust them, {instead} below folders that only you can write"
    )


def user_name(uid: int) -> str:
    """A user for a sentence: the name, or the number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def group_name(gid: int) -> str:
    """A group for a sentence: the name, or the number where it has none."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _is_own_group(gid: int, uid: int) -> bool:
    """Whether it is the group that systems make for each user: of the same name, and without further members.

    Who else has it as the primary group is not asked: there is no end to the users of a cluster.
    """
    try:
        group, name = grp.getgrgid(gid), pwd.getpwuid(uid).pw_name
    except KeyError:
        return False
    return group.gr_name == name and set(group.gr_mem) <= {name}


def _way(path: Path) -> Iterator[Path]:
    """The folders, and the links, that the kernel goes through to reach the last step of `path`; none twice."""
    here, left, links = Path("/"), list(path.absolute().parts[1:]), 0
    seen: dict[Path, None] = {}
    while left and links <= _MOST_LINKS:
        seen[here] = None
        step, left = left[0], left[1:]
        if step == "..":
            here = here.parent
            continue
        try:
            target = Path((here / step).readlink())
        except OSError:  # no link, or not there yet
            here /= step
            continue
        links += 1
        seen[here / step] = None
        here = Path("/") if target.is_absolute() else here
        left = [part for part in target.parts if part != "/"] + left
    yield from seen


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
    return f": by all in group {group_name(status.st_gid)}"


def _way_out(path: Path, status: os.stat_result, instead: str) -> str:
    if status.st_uid != os.geteuid():
        return instead
    mode = "600" if stat.S_ISREG(status.st_mode) else "700"
    return f"if no other user shares it: chmod {mode} {path}, and check that everything in it is yours; else {instead}"

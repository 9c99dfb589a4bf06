"""The run directory of a workload: where it is, and what of it may be removed.

It is always `workloads/NAME` in the state directory, whatever a creator says. That may be a link to a folder on another
file system (`home_directory`); such a folder is removed only if remuda made it, which a mark inside tells.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from remuda.backends.slurm.files import leave_batch
from remuda.base.disk.files import remove_empty, write_atomic
from remuda.base.disk.private import check_above, make_private, told_above
from remuda.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from remuda.base.disk.paths import StatePaths
    from remuda.plan.model import Workload

MARK: Final = ".remuda-workload"
"""In a folder elsewhere that was made for a workload: names the directory that points to it."""


def check(workload: Workload, paths: StatePaths) -> None:
    """Refuse a workload that wants its files anywhere else.

    Raises:
        InputError: its run directory is not that of its name.
    """
    asked, ours = Path(workload.run_dir), paths.workload(workload.name)
    # One state directory may be known by several names; the last step may be a link, and is not followed.
    if asked.name != ours.name or os.path.realpath(asked.parent) != os.path.realpath(ours.parent):
        raise InputError(
            f"the run directory of {workload.name!r} is {ours}, not {workload.run_dir}",
            hint="for another file system set home_directory, or REMUDA_HOME", where="run_dir",
        )  # fmt: skip


def make(workload: Workload, paths: StatePaths) -> bool:
    """Make it where it is missing; whether it was."""
    folder = paths.workload(workload.name)
    if folder.is_dir():
        return False
    paths.folder(folder)
    return True


def write(workloads: Sequence[Workload]) -> list[Path]:
    """Write what workloads bring along, with what has to be there before; what was made, for `unwrite`.

    Raises:
        InputError: something cannot be written; nothing of it is left.
        NotPrivate: others could write it, or everybody could put another in its place.
    """
    made: list[Path] = []
    try:
        for workload in workloads:
            _write(workload, made)
    except BaseException:
        unwrite(made)
        raise
    return made


def _write(workload: Workload, made: list[Path]) -> None:
    place_elsewhere(workload)
    programs = {group.command.argv[0] for group in workload.groups}
    made += write_files(workload.files, below=Path(workload.run_dir).parents[1], programs=programs)
    if workload.folder and Path(workload.folder).is_dir():
        link = Path(workload.folder) / "run"
        with suppress(FileExistsError):  # written by a host that was killed before it recorded the workload
            link.symlink_to(workload.run_dir)
        made.append(link)


def write_files(
    files: Mapping[str, str], *, below: Path | None = None, programs: Collection[str] = (), is_new: bool = False
) -> list[Path]:
    """Write files with mode 0600, in folders that only the user can write; what was made.

    Args:
        files: absolute path -> text; a path that ends with `/` is a folder.
        below: state directory: every level from there down is looked at.
        programs: those of `files` that are run.
        is_new: refuse to write over any.

    Raises:
        InputError: one cannot be written; nothing of them is left.
        NotPrivate: others could write it.
    """
    made: list[Path] = []
    path = Path()
    try:
        for name, text in files.items():
            path = Path(name)
            folder = path if name.endswith("/") else path.parent
            made += reversed([level for level in (folder, *folder.parents) if not level.exists()])
            make_private(folder, below=below if below and folder.is_relative_to(below) else folder)
            if folder is not path:
                how = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | (os.O_EXCL if is_new else os.O_TRUNC)
                descriptor = os.open(path, how, 0o700 if name in programs else 0o600)
                made.append(path)
                with open(descriptor, "w", encoding="utf-8", newline="") as file:  # noqa: PTH123
                    file.write(text)
    except OSError as error:
        unwrite(made)
        raise InputError(f"{path} cannot be written: {(error.strerror or str(error)).lower()}") from error
    except BaseException:
        unwrite(made)
        raise
    return made


def unwrite(made: Sequence[Path]) -> None:
    """Remove what `write` made, but for folders in which something else lies by now."""
    for path in reversed(made):
        with suppress(OSError):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


_ELSEWHERE: Final = "set home_directory to one"


def told_elsewhere(home: str, paths: StatePaths) -> str:
    """Who else has a `home_directory` in their hands; empty where nobody has, or it is the state directory.

    Raises:
        NotPrivate: everybody has.
    """
    folder = Path(home).expanduser().absolute()
    if folder == paths.root:
        return ""  # that is told when the host starts
    check_above(folder, instead=f"{_ELSEWHERE} of your own")
    return told_above(folder, instead=_ELSEWHERE)


def place_elsewhere(workload: Workload) -> None:
    """With `home_directory`, files go there; the state directory only points to them.

    Raises:
        InputError: the folder there cannot be made.
        NotPrivate: others could write it, or everybody could put another in its place.
    """
    home = str(workload.place.get("home") or "")
    run_dir = Path(workload.run_dir)
    if not home or Path(home).expanduser().absolute() == run_dir.parent.parent:
        return
    elsewhere = Path(home).expanduser().absolute() / "workloads" / workload.name
    check_above(elsewhere, instead=f"{_ELSEWHERE} of your own")
    try:
        _make_marked(elsewhere, run_dir)
        make_private(run_dir.parent)
        if not run_dir.exists():
            run_dir.unlink(missing_ok=True)
            run_dir.symlink_to(elsewhere)
    except OSError as error:
        raise InputError(f"{elsewhere} cannot be made: {error.strerror}", where="home_directory") from error


def _make_marked(elsewhere: Path, run_dir: Path) -> None:
    """Only what is made here gets the mark: a folder that was there before is somebody's, and stays."""
    try:
        make_private(elsewhere.parent)
        elsewhere.mkdir(mode=0o700)
    except FileExistsError:
        make_private(elsewhere, below=elsewhere.parent)
        return
    write_atomic(elsewhere / MARK, str(run_dir), mode=0o600)


def clear(workload: Workload) -> None:
    """Remove what this life of a workload alone had: its secrets, and what Dynamo's parts found each other by."""
    for name in ("secrets", "discovery"):
        folder = Path(workload.run_dir) / name / workload.uid
        shutil.rmtree(folder, ignore_errors=True)
        remove_empty(folder.parent)


def stale_secrets(paths: StatePaths, uids: Mapping[str, str], *, has_begun: bool = True) -> Iterator[Path]:
    """Folders of secrets of creations of a workload that are over.

    Args:
        paths: of the state directory.
        uids: by name, of those that are recorded.
        has_begun: also where something of the creation ran: its record may be in another copy of the database.
    """
    for entry in listed(paths):
        folder = entry / "secrets"
        for one in sorted(folder.iterdir() if folder.is_dir() else ()):
            if one.name != uids.get(entry.name, "") and (has_begun or not any(entry.glob(f"*-*/attempt-*-{one.name}"))):
                yield one


def listed(paths: StatePaths) -> list[Path]:
    """The run directories that there are."""
    try:
        return sorted(entry for entry in paths.workloads.iterdir() if entry.is_dir())
    except OSError:
        return []


def clean(paths: StatePaths, uids: Mapping[str, str]) -> None:
    """Remove the secrets of what was never recorded, because a host was killed before it was."""
    remove_secrets(stale_secrets(paths, uids, has_begun=False))


def remove_secrets(folders: Iterable[Path]) -> None:
    """Remove such folders, and what is empty without them."""
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
        remove_empty(folder.parent)
        remove_empty(folder.parents[1])


def discard(workload: Workload) -> None:
    """Remove what was made for a workload that was refused, its run directory, too, unless something lies in it."""
    clear(workload)
    folder = Path(workload.run_dir)
    target = Path(os.path.realpath(folder))
    if folder.is_symlink() and _is_ours(target, folder) and [entry.name for entry in target.iterdir()] == [MARK]:
        (target / MARK).unlink()
        remove_empty(target)
        folder.unlink()
    remove_empty(folder)


def remove(workload: Workload, paths: StatePaths) -> str:
    """Remove the run directory of a workload that is forgotten; a folder that is left as it is not ours, else empty."""
    folder = paths.workload(workload.name)
    left = "" if os.path.realpath(workload.run_dir) == os.path.realpath(folder) else workload.run_dir
    if folder.is_symlink():
        target = Path(os.path.realpath(folder))
        if _is_ours(target, folder):
            shutil.rmtree(target, ignore_errors=True)
        elif target.exists():
            left = str(target)
        folder.unlink()
    else:
        shutil.rmtree(folder, ignore_errors=True)
    leave_batch(paths.workloads, workload.uid)
    return left


def _is_ours(target: Path, folder: Path) -> bool:
    try:
        return target.is_dir() and (target / MARK).read_text() == str(folder)
    except OSError:
        return False

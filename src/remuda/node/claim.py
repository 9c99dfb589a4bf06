"""One copy of an allocation: whoever makes `claim.json` first runs it, every other copy ends at once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from remuda.node import private
from remuda.wire.process import identify

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CLAIM = "claim.json"
EXIT = "exit.json"


def start_number(environ: Mapping[str, str]) -> int:
    """How often the scheduler itself has started this allocation again."""
    text = environ.get("SLURM_RESTART_COUNT", "")
    return int(text) if text.isdigit() else 0


def claim(run_dir: Path, start: int = 0) -> bool:
    """Take the allocation whose directory this is; False when somebody took it before, dead or alive.

    The claim holds this process's `wire.ProcessId` and is complete when it becomes visible: it is written beside and
    then linked, which is atomic and exclusive on NFS too. A later start that the scheduler itself makes has a claim of
    its own, `claim-r1.json`, …; `claim.json` and `exit.json` are always those of the newest, the older ones are kept
    as `claim-r0.json` and `exit-r0.json`, ….

    Args:
        run_dir: of the allocation; made if absent.
        start: see `start_number`.

    Raises:
        OSError: the directory cannot be made or written.
    """
    if any(number > start for number in _starts(run_dir)):
        return False
    if not start:
        return _take(run_dir, run_dir / CLAIM)
    if not _take(run_dir, run_dir / f"claim-r{start}.json"):
        return False
    _make_newest(run_dir, start)
    return True


def exit_name(run_dir: Path, start: int) -> str:
    """Where the last word of a start belongs: beside that of a newer one, if there is one."""
    return f"exit-r{start}.json" if any(number > start for number in _starts(run_dir)) else EXIT


def _starts(run_dir: Path) -> list[int]:
    """Numbers of the later starts that were claimed."""
    names = [path.stem.partition("-r")[2] for path in run_dir.glob("claim-r*.json")]
    return [int(name) for name in names if name.isdigit()]


def _make_newest(run_dir: Path, start: int) -> None:
    """Put the files of the start before aside, and name this one in `claim.json`."""
    before = max((number for number in _starts(run_dir) if number < start), default=0)
    old = run_dir / f"claim-r{before}.json"
    if (run_dir / CLAIM).exists() and not old.exists():
        (run_dir / CLAIM).replace(old)
    if (run_dir / EXIT).exists():
        (run_dir / EXIT).replace(run_dir / f"exit-r{before}.json")
    private.write_whole(run_dir / CLAIM, identify(os.getpid()).to_json() + "\n", sync=True)
    sync_directory(run_dir)


def _take(run_dir: Path, target: Path) -> bool:
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
    fd = os.open(path, os.O_WRONLY | flags, 0o600)
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

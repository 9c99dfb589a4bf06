"""What runs wrote on nodes that share no directory: it came back when they ended, and lies packed with them."""

from __future__ import annotations

import json
import secrets
import shutil
import tarfile
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from remuda.base.disk.files import create
from remuda.base.errors import InputError, NotFound
from remuda.wire.carrying import KEEPS, RESULTS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def pull(view: Mapping[str, Any], workloads: Path, wanted: str, to: Path) -> list[Path]:
    """Write what a run wrote into a folder; the files. Of several tasks each has a folder of its own there.

    Args:
        view: of the run.
        workloads: parent of the run directories.
        wanted: a file or a folder of it; empty: all.
        to: the folder.

    Raises:
        NotFound: nothing has come back, or nothing of that name.
        InputError: the folder cannot be written.
    """
    found = _packed(workloads / view["name"], view["created_at"])
    if not found:
        raise NotFound(
            f"nothing of what {view['name']} wrote has come back",
            hint="what a run writes comes when an attempt of it has ended on a machine that shares no directory with "
                 "the head, unless it is more than 128 MB; elsewhere it lies where the run wrote it",
        )  # fmt: skip
    there: list[str] = []
    made: list[Path] = []
    for task, path in found.items():
        try:
            with tarfile.open(path, "r:") as file:
                for one in file:
                    there.append(one.name)
                    if one.isreg() and not one.issparse() and _is_wanted(one.name, wanted.rstrip("/")):
                        made.append(_write(file, one, to / task if len(found) > 1 else to))
        except (tarfile.TarError, ValueError) as error:
            raise NotFound(f"what {view['name']} wrote has not come back whole: {path}: {error}") from error
    if not made:
        names = ", ".join(sorted(there)[:5])
        raise NotFound(f"{view['name']} wrote no {wanted!r}", hint=f"it wrote {names}{', …' if len(there) > 5 else ''}")
    return made


def _packed(folder: Path, since: float) -> dict[str, Path]:
    """Of each task the newest file that is whole; earlier runs of the name are another's."""
    found = [(path.stat().st_mtime, path) for path in folder.glob(f"*/attempt-*/{RESULTS}") if _is_whole(path)]
    return {path.parent.parent.name: path for at, path in sorted(found) if at >= since}


def _is_whole(path: Path) -> bool:
    """Whether all of it has come: its node says so, or a last word is there, which comes after it."""
    with suppress(OSError, ValueError):
        return path.with_name("exit.json").exists() or "done" in json.loads(path.with_name(KEEPS).read_text())
    return False


def _is_wanted(name: str, wanted: str) -> bool:
    """Whether a file is meant, and lies within: a node has written these names."""
    is_inside = not name.startswith("/") and ".." not in name.split("/")
    return is_inside and (wanted in ("", ".", name) or name.startswith(f"{wanted}/"))


def _write(file: tarfile.TarFile, one: tarfile.TarInfo, to: Path) -> Path:
    path = to / one.name
    draft = path.with_name(f".{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        data = file.extractfile(one)
        assert data is not None
        with data, create(draft) as written:
            shutil.copyfileobj(data, written)
        draft.chmod(one.mode & 0o755 | 0o400)
        draft.replace(path)
    except OSError as error:
        raise InputError(f"cannot be written: {(error.strerror or str(error)).lower()}", where=str(path)) from error
    finally:
        with suppress(OSError):
            draft.unlink()
    return path

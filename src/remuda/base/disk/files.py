"""Files that other processes read while we write: whole or absent, never half."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from remuda.base.errors import InputError


def write_atomic(path: Path, data: bytes | str, *, mode: int = 0o644, sync: bool = True) -> None:
    """Replace `path` by `data`: write beside it, fsync, rename. A reader sees the old or the new file."""
    raw = data.encode() if isinstance(data, str) else data
    fd, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(raw)
            file.flush()
            os.fchmod(file.fileno(), mode)
            if sync:
                os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_named(path: Path, data: bytes | str) -> None:
    """The same for a file that the user named.

    Raises:
        InputError: it cannot be written.
    """
    try:
        write_atomic(path, data)
    except OSError as error:
        raise InputError(f"cannot be written: {(error.strerror or str(error)).lower()}", where=str(path)) from error


def create(path: Path, mode: int = 0o666) -> BinaryIO:
    """A new file for writing, whatever lay under its name: nobody's link is followed, and nobody's file is written.

    In a folder that others can write, a name that can be guessed may be theirs already.

    Raises:
        OSError: it cannot be made.
    """
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    return os.fdopen(descriptor, "wb")


def read_whole(path: Path, most_bytes: int) -> bytes:
    """All of a file that a person named. What a shell passes as `<(command)` is read, too.

    Raises:
        OSError: it cannot be read, is larger than `most_bytes` (EFBIG), or is a named pipe, a socket or a device
            (EINVAL), which may never end.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        is_passed = stat.S_ISFIFO(mode) and str(path).startswith(("/dev/fd/", "/dev/stdin", "/proc/self/fd/"))
        if not stat.S_ISREG(mode) and not is_passed:
            raise OSError(errno.EINVAL, "it is a pipe, a socket or a device")
        os.set_blocking(descriptor, True)
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {most_bytes:,} bytes")
    return data


def remove_empty(*folders: Path) -> None:
    """Remove folders in which nothing lies, in that order; others stay."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


def write_new(path: Path, text: str) -> None:
    """Write a file that nobody reads before it is complete; only the user ever can, whatever the umask."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


_NETWORK_TYPES = frozenset({
    "nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "afs", "panfs",
    "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.juicefs", "fuse.s3fs", "9p", "wekafs", "vastnfs", "pvfs2",
})  # fmt: skip


def file_system_type(path: Path, *, mounts: Path = Path("/proc/self/mounts")) -> str:
    """Type of the file system that holds `path`, as the kernel names it; empty where that cannot be read."""
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return ""
    real = str(path.resolve())
    best, kind = "", ""
    for line in lines:
        fields = line.split()
        if len(fields) < 3:
            continue
        mount = fields[1].replace("\\040", " ")
        inside = real == mount or real.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, fields[2]
    return kind


def is_network_file_system(path: Path, *, mounts: Path = Path("/proc/self/mounts")) -> bool:
    """Whether locks and shared memory on `path` may not be seen by other machines (NFS, Lustre, GPFS, …)."""
    return file_system_type(path, mounts=mounts) in _NETWORK_TYPES

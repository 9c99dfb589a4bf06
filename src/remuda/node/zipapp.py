"""Builds the node program as one file that any Python 3.9+ runs: used where the control plane is installed."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import io
import marshal
import os
import stat
import sys
import zipfile
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

import remuda
from remuda.base.disk.files import write_atomic
from remuda.base.errors import InputError

ROOMS = ("node", "wire", "policy")
BINDING = "pynvml.py"
"""What nodes ask their GPUs with."""
_MAIN = """\
import signal
import sys

if sys.argv[1:2] == ["child"]:  # as the first process of a pod it is never told of what comes before it has a handler
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
from remuda.node.program import main

sys.exit(main(sys.argv[1:]))
"""
_EPOCH = (1980, 1, 1, 0, 0, 0)
_PLAIN = 2
"""The last format of compiled code without references."""
_UNCHECKED = 1
"""Flag of a compiled file that is never compared with its source (PEP 552)."""


def program_path(target: Path) -> Path:
    """Where `build_zipapp` puts the program below `target`; nothing is read there, and nothing written.

    The name is a hash of where the sources are, of their sizes and times, and of the Python that builds, whose compiled
    files are beside them: every command needs it, and to read 80 files costs what it takes to plan.

    Raises:
        InputError: what nodes ask their GPUs with is not installed.
    """
    # Two Pythons of one home that compile differently have a file each, and do not replace each other's for ever.
    total = hashlib.sha256(importlib.util.MAGIC_NUMBER + f"{sys.version}\0{remuda.__version__}".encode())
    for path in _files().values():
        status = path.stat()
        total.update(os.fsencode(path) + f"\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return target / f"remuda-node-{total.hexdigest()[:12]}.pyz"


def build_zipapp(target: Path) -> Path:
    """See that the node program is at `program_path(target)`, packed from these sources; its path.

    It holds the sources, which every Python can run, and beside them compiled files for the Python that builds, which
    make its own start three times as fast. A file of that name counts only if it is the user's and has exactly these
    bytes: whoever could write the directory once could have put anything there. Several processes may build at once:
    the file appears whole.

    Args:
        target: directory, made if absent. That nobody else can write it is the caller's to see to.

    Raises:
        InputError: what nodes ask their GPUs with is not installed.
        OSError: `target` cannot be written.
    """
    path, whole = program_path(target), _packed()
    if not _holds(path, whole):
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(path, whole)
    return path


@functools.cache
def deflated() -> tuple[str, bytes]:
    """A name of the node program, and a small archive of its sources alone, for where there is little room.

    Raises:
        InputError: what nodes ask their GPUs with is not installed.
    """
    sources, made = _sources(), io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, text in sources.items():
            _add(archive, name, text, zipfile.ZIP_DEFLATED)
    return hashlib.sha256(made.getvalue()).hexdigest()[:12], made.getvalue()


def _holds(path: Path, whole: bytes) -> bool:
    """Whether a file is the user's own, nobody else can write it, and it has these bytes."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022
        return is_own and status.st_size == len(whole) and file.read() == whole


def _packed() -> bytes:
    """The archive: equal sources give equal bytes."""
    made, files = io.BytesIO(), _files()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
        for name, text in _sources().items():
            _add(archive, name, text)
            _add(archive, f"{name}c", _compiled(name, text, files.get(name)))
    return made.getvalue()


def _sources() -> dict[str, bytes]:
    """Path in the archive -> text, in a fixed order."""
    return {"__main__.py": _MAIN.encode(), **{name: path.read_bytes() for name, path in _files().items()}}


def _files() -> dict[str, Path]:
    """Path in the archive -> file, in a fixed order. This builder itself stays at home."""
    top = Path(remuda.__file__).parent
    # One file of nvidia-ml-py; looked for by path, as an old package may have taken its name.
    binding = next((path for folder in sys.path if (path := Path(folder, BINDING)).is_file()), None)
    if binding is None:
        raise InputError(f"nodes ask their GPUs with {BINDING}, which is not here", hint="pip install nvidia-ml-py")
    files = [top / "__init__.py", *(path for room in ROOMS for path in sorted((top / room).rglob("*.py")))]
    packed = {f"remuda/{path.relative_to(top).as_posix()}": path for path in files}
    del packed["remuda/node/zipapp.py"]
    return {BINDING: binding, **packed}


def _compiled(name: str, text: bytes, path: Path | None) -> bytes:
    """A `.pyc` as `py_compile` writes it, without a time stamp, so that equal sources give equal bytes."""
    # What is compiled beside its source already takes a tenth of the time.
    found = None if path is None or sys.flags.optimize else SourceFileLoader(name, str(path)).get_code(name)
    code = _called(name, found) if found else compile(text, name, "exec", dont_inherit=True, optimize=0)
    flags = _UNCHECKED.to_bytes(4, "little")
    # Newer formats save space where an object is known elsewhere in the process: then bytes depend on what it has done.
    return importlib.util.MAGIC_NUMBER + flags + importlib.util.source_hash(text) + marshal.dumps(code, _PLAIN)


def _called(name: str, code: CodeType) -> CodeType:
    """The code under the name that its file has in the archive."""
    inner = (_called(name, one) if isinstance(one, CodeType) else one for one in code.co_consts)
    return code.replace(co_filename=name, co_consts=tuple(inner))


def _add(archive: zipfile.ZipFile, name: str, data: bytes, how: int = zipfile.ZIP_STORED) -> None:
    entry = zipfile.ZipInfo(name, date_time=_EPOCH)
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, data, how)

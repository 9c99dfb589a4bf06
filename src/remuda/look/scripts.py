"""Reads the scripts that people name, and says what is wrong with one before anything is made of it."""

from __future__ import annotations

import errno
from pathlib import Path

from remuda.base.disk.files import read_whole
from remuda.base.errors import InputError
from remuda.base.text import did_you_mean
from remuda.plan.run import interpreter_of

_MAX_SCRIPT_BYTES = 16 * 1024 * 1024
_STARTER = "write a script that starts it: two lines, `#!/bin/bash` and `exec ./program`"
_INTERPRETERS = frozenset({"python", "python3", "bash", "sh", "torchrun", "accelerate", "deepspeed", "srun", "mpirun"})
"""What people type before their script elsewhere."""


def find_script(name: str, document: str = "") -> Path:
    """The file that is meant: relative to here, else to the document that names it."""
    path = Path(name).expanduser()
    if not document or path.is_absolute() or path.exists():
        return path
    return Path(document).expanduser().parent / path


def read_script(path: Path) -> str:
    """Read a script.

    Raises:
        InputError: it is missing, a directory, empty, a program, or cannot be read.
    """
    where = str(path)
    try:
        raw = read_whole(path, _MAX_SCRIPT_BYTES)
    except FileNotFoundError as error:
        if path.name in _INTERPRETERS:
            hint = "`run` takes a script with a `#!` line: remuda run train.py"
            raise InputError("is a program, not a script", hint=hint, where=where) from error
        raise InputError("there is no such script", hint=_near(path), where=where) from error
    except IsADirectoryError as error:
        raise InputError("is a directory, not a script", where=where) from error
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise InputError("is a program, not a script", hint=_STARTER, where=where) from error
        raise InputError(f"cannot be read: {(error.strerror or '').lower()}", where=where) from error
    try:
        text = raw.decode("utf-8-sig") if b"\0" not in raw[:8192] else None
    except UnicodeDecodeError:
        text = None
    if text is None:
        raise InputError("is a program, not a script", hint=_STARTER, where=where)
    interpreter_of(text, where)
    return text


def _near(path: Path) -> str:
    try:
        names = [entry.name for entry in path.parent.iterdir() if entry.is_file()]
    except OSError:
        return f"there is no directory {str(path.parent)!r} either"
    return did_you_mean(path.name, names)

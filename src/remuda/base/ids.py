"""Names and tokens: what is allowed, and how new ones are made."""

from __future__ import annotations

import re
import secrets

from remuda.base.errors import InputError, NotFound
from remuda.base.text import brief

_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")
SUFFIX_LENGTH = 5
_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"


def check_name(name: str, *, where: str = "") -> str:
    """Return `name` if it can name a workload on every backend, a folder and a host label.

    Raises:
        InputError: it has other characters than a-z, 0-9, `.`, `_`, `-`, or is longer than 63.
    """
    if _NAME.fullmatch(name) is None:
        raise InputError(
            f"{brief(name)!r} cannot be a name",
            hint="use 1 to 63 of a-z 0-9 . _ - and begin and end with a letter or digit",
            where=where,
        )
    return name


def api_path(name: str, *more: str) -> str:
    """Path of a workload in the host's API, or of what is below it.

    Raises:
        NotFound: nothing can have that name.
    """
    if _NAME.fullmatch(name) is None:
        raise NotFound(f"nothing is called {brief(name)!r}", hint="`remuda status` lists what there is")
    return "/".join(("/workloads", name, *more))


_UID = re.compile(r"[a-z0-9]{1,32}(-[1-9][0-9]{0,8})?")


def check_uid(uid: str) -> str:
    """Return `uid` if it can tell two creations of a workload apart: it becomes part of paths and of names of jobs.

    Raises:
        InputError: it has other characters.
    """
    if _UID.fullmatch(uid) is None:
        raise InputError(f"{uid!r} cannot be the uid of a workload", where="uid")
    return uid


def new_suffix(length: int = SUFFIX_LENGTH) -> str:
    """A short random suffix without look-alike characters."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def slug(text: str) -> str:
    """The nearest valid name to `text`, at most 40 characters; `swarm` when nothing is left."""
    cut = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40].strip("-")
    return cut or "swarm"

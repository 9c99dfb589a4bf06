"""Secrets by reference: where a value is, never the value, until the moment it is used."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

MASK = "********"
_SECRET_WORDS = ("key", "token", "secret", "password", "passwd", "credential")


@dataclass(frozen=True)
class SecretRef:
    """Where a secret is: a file (first line) or an environment variable. Its repr never shows a value."""

    file: str = ""
    env: str = ""

    def read(self, environ: Mapping[str, str] | None = None) -> str:
        """The value.

        Raises:
            InputError: the file or variable is missing or empty.
        """
        if self.file:
            try:
                value = Path(self.file).expanduser().read_text().strip()
            except OSError as error:
                raise InputError(f"secret file {self.file!r} cannot be read: {error.strerror}") from error
        else:
            value = (os.environ if environ is None else environ).get(self.env, "")
        if not value:
            raise InputError(f"secret {self.describe()} is empty", hint="set it, or remove the reference")
        return value

    def describe(self) -> str:
        """Where it is, for people: `file PATH` or `$NAME`."""
        return f"file {self.file}" if self.file else f"${self.env}"


def lasting_secret(path: Path) -> str:
    """The secret in `path`, made at random by whoever needs it first; it outlives every process.

    One that others could read or have written is no secret: it is replaced.

    Raises:
        OSError: it can be neither read nor made.
    """
    for _ in range(10):
        with suppress(FileNotFoundError):
            status = path.lstat()
            value = path.read_text().strip() if status.st_uid == os.geteuid() and not status.st_mode & 0o077 else ""
            if value:
                return value
            path.unlink()
        draft = path.with_name(f".{path.name}.{os.uname().nodename}.{os.getpid()}.{secrets.token_hex(4)}")
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(secrets.token_hex(32) + "\n")
            with suppress(FileExistsError):
                os.link(draft, path)  # whole, and only one of several that make it at once
        finally:
            draft.unlink(missing_ok=True)
    raise OSError(f"{path} is replaced again and again")


def looks_secret(name: str) -> bool:
    """Whether a variable of this name is masked wherever it is shown."""
    lowered = name.lower()
    return any(word in lowered for word in _SECRET_WORDS)

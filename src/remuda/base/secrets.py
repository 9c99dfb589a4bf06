"""Secrets by reference: where a value is, never the value, until the moment it is used."""

from __future__ import annotations

import os
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


def looks_secret(name: str) -> bool:
    """Whether a variable of this name is masked wherever it is shown."""
    lowered = name.lower()
    return any(word in lowered for word in _SECRET_WORDS)


def mask_env(env: Mapping[str, str]) -> dict[str, str]:
    """A copy of `env` for eyes: values of secret-looking names are replaced."""
    return {name: MASK if looks_secret(name) else value for name, value in env.items()}

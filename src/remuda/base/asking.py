"""Who asks for a change: the client says so in a header, and what is recorded of the change names them."""

from __future__ import annotations

import getpass
import os
from contextvars import ContextVar
from functools import cache
from typing import Final

from remuda.base.text import short

HEADER: Final = "X-Remuda-By"
asking: ContextVar[str] = ContextVar("asking", default="")
"""Who asks for what is done now; empty where nobody says, and for what the host does by itself."""


@cache
def me() -> str:
    """Login name and machine of who runs this process."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # the machine has none for the number
        name = str(os.geteuid())
    return cleaned(f"{name}@{os.uname().nodename}")


def cleaned(text: str) -> str:
    """A name as it may be shown: strangers may have made it."""
    return short(text, 64)

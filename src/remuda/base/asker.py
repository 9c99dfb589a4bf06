"""Who asks for a change: the client says so in a header, and what is recorded of the change names them."""

from __future__ import annotations

import os
from contextvars import ContextVar
from functools import cache
from typing import Final

from remuda.base.disk.private import user_name
from remuda.base.text import short

HEADER: Final = "X-Remuda-By"
asking: ContextVar[str] = ContextVar("asking", default="")
"""Who asks for what is done now; empty where nobody says, and for what the host does by itself."""


@cache
def me() -> str:
    """Login name and machine of who runs this process."""
    return short(f"{user_name(os.geteuid())}@{os.uname().nodename}")

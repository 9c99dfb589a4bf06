"""How many files and connections this process may have open."""

from __future__ import annotations

import resource
from contextlib import suppress

MOST = 1 << 20
"""More is never asked for, or reckoned with: some programs keep a table as long as their limit."""


def raise_limit() -> int:
    """Ask for as many descriptors as may be asked for, for this process and what it starts; how many there are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(MOST, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return limit()


def limit() -> int:
    """Descriptors that this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else min(MOST, soft)

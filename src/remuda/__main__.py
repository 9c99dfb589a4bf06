"""`python -m remuda`, and the installed command: Ctrl-C while modules are loaded, or at the end, shows no traceback."""

from __future__ import annotations

import signal
import sys

_HEARD = signal.getsignal(signal.SIGINT)
#: Where it is ignored, as in what a shell has put into the background, it stays so.
_QUIET = signal.SIG_DFL if _HEARD is signal.default_int_handler else _HEARD
signal.signal(signal.SIGINT, _QUIET)


def main() -> int:
    """Run one command. Ctrl-C is an exception only in it, where it is caught."""
    from remuda.cli import main as command

    try:
        signal.signal(signal.SIGINT, _HEARD)
        return command()
    finally:
        signal.signal(signal.SIGINT, _QUIET)


if __name__ == "__main__":
    sys.exit(main())

"""`python -m remuda`, and the installed command: Ctrl-C while modules are loaded, or at the end, shows no traceback."""

from __future__ import annotations

import signal
import sys

# Who started it may have it ignore Ctrl-C, as a shell does with what it puts into the background.
_HEARS = signal.getsignal(signal.SIGINT) is signal.default_int_handler
if _HEARS:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> int:
    """Run one command. Ctrl-C is an exception only in it, where it is caught."""
    from remuda.cli import main as command

    try:
        if _HEARS:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return command()
    except KeyboardInterrupt:
        return 130
    finally:
        if _HEARS:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main())

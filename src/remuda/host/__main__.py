"""`python -m remuda.host`: the host process. `remuda host start` starts it in the background."""

from __future__ import annotations

import sys

from remuda.base.disk import starting
from remuda.base.disk.paths import state_paths

if __name__ == "__main__":
    # The first start on a cold network file system spends its time here.
    starting.say(state_paths(), "loads its modules")
    from remuda.host.server import main

    sys.exit(main())

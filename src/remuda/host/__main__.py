"""`python -m remuda.host`: the host process. `remuda host start` starts it in the background."""

from __future__ import annotations

import sys

from remuda.host.server import main

sys.exit(main())

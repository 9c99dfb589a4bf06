"""`python -m remuda` is `remuda`."""

from __future__ import annotations

import sys

from remuda.cli import main

sys.exit(main())

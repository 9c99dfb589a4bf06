"""`python -m remuda.node`."""

from __future__ import annotations

import sys

from remuda.node.program import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

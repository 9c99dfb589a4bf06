"""Open a database at a given moment and say its revision. Usage: opener.py DATABASE TIME."""

from __future__ import annotations

import sys
import time

from remuda.store import ops
from remuda.store.engine import open_store


def main() -> None:
    time.sleep(max(0.0, float(sys.argv[2]) - time.time()))
    with open_store(sys.argv[1]) as store:
        print(ops.status(store).revision)


main()

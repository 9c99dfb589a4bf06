"""Take and give back the lease of a database ROUNDS times, and say when it was held.

Usage: contender.py DATABASE ROUNDS. Prints `fence begin end`, times of the monotonic clock, which all processes share.
"""

from __future__ import annotations

import os
import sys
import time

from remuda.store import lease as leases
from remuda.store.engine import open_store
from remuda.wire.process import identify


def main() -> None:
    me = identify(os.getpid())
    with open_store(sys.argv[1]) as store:
        rounds = int(sys.argv[2])
        while rounds:
            taken = leases.acquire(store, me, ttl_s=3600.0, now=time.time())
            begin = time.monotonic()
            if isinstance(taken, leases.Held):
                time.sleep(0.0005)
                continue
            store.set_meta(taken.fence, "holder", str(os.getpid()))
            assert store.meta("holder") == str(os.getpid())
            print(taken.fence, begin, time.monotonic())
            leases.release(store, taken, time.time())
            rounds -= 1
            time.sleep(0.002)


main()

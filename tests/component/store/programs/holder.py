"""Take the lease of a database for a day, write a line for each recorded batch, and never end by itself.

Usage: holder.py DATABASE. Prints the fence, then the number of each batch after it was committed.
"""

from __future__ import annotations

import os
import sys
import time
from itertools import count

from remuda.store import lease as leases
from remuda.store.engine import open_store
from remuda.store.rows import StoryLine, TaskRow, WorkloadRow
from remuda.wire.process import identify

TASKS = 20


def main() -> None:
    with open_store(sys.argv[1]) as store:
        taken = leases.acquire(store, identify(os.getpid()), ttl_s=86400, now=time.time())
        assert isinstance(taken, leases.Lease), str(taken)
        print(taken.fence, flush=True)
        if not store.workloads():
            store.add_workloads(taken.fence, [WorkloadRow("w", "u", "swarm", "local", "{}")])
        begin = max((task.attempt for task in store.tasks()), default=0)
        for number in count(begin + 1):
            tasks = [TaskRow("w", "replica", idx, "local", "ready", attempt=number) for idx in range(TASKS)]
            events = [StoryLine(at=0.0, workload="w", attempt=number) for _ in range(TASKS)]
            store.record(taken.fence, tasks=tasks, events=events)
            print(number, flush=True)


main()

"""Forks batch drivers out of a process that has all imports done: a start costs 10 ms instead of a second.

Reads one job request (JSON) a line; writes the child's pid, and when it has ended its exit code.
"""

from __future__ import annotations

import json
import os
import sys
import traceback

import aiohttp
import pyarrow.parquet
import uvloop
from tests import patience

from remuda.base.errors import RemudaError
from remuda.batch.driver import run_job
from remuda.batch.request import JobRequest

assert all((aiohttp, pyarrow.parquet, uvloop))
patience.wait_for_models()
patience.seldom_ask_twice()


def child(line: str) -> int:
    try:
        run_job(JobRequest.from_json(json.loads(line)))
    except RemudaError as error:
        print(f"{error.message} | {error.hint}", file=sys.stderr)
        return error.exit_code
    except BaseException:  # noqa: BLE001 - it must end as an exit code
        traceback.print_exc()
        return 99
    return 0


print("ready", flush=True)
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        code = child(line)
        sys.stderr.flush()
        os._exit(code)
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)

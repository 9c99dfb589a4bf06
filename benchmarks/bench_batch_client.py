"""What a batch job costs over a bare client loop, against a stub server in a process of its own.

Counts CPU seconds of the client process only, imports left out; ours include reading parquet, the checkpoint and the
output. Rounds alternate and the median counts, because other work may share the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

import orjson

IN_FLIGHT = 256
SLOW_S = 0.2
MESSAGES = [{"role": "user", "content": "Say hello to the world in one short sentence, please."}]


def parquet(path: Path, rows: int) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.exists():
        pq.write_table(pa.table({"id": list(range(rows)), "messages": [MESSAGES] * rows}), path)
    return path


async def bare(url: str, rows: int) -> None:
    import aiohttp

    left = iter(range(rows))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def worker() -> None:
            for _ in left:
                body = orjson.dumps({"model": "stub", "messages": MESSAGES, "temperature": 0.2})
                headers = {"content-type": "application/json"}
                async with session.post(f"{url}/v1/chat/completions", data=body, headers=headers) as response:
                    orjson.loads(await response.read())

        await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))


async def openai_loop(url: str, rows: int) -> None:
    import openai

    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    left = iter(range(rows))

    async def worker() -> None:
        for _ in left:
            messages: Any = MESSAGES
            await client.chat.completions.create(model="stub", messages=messages, temperature=0.2)

    await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))
    await client.close()


def ours(url: str, rows: int, folder: Path) -> None:
    from remuda.batch.driver import run_job
    from remuda.batch.request import JobRequest

    source = parquet(folder / f"in-{rows}.parquet", rows)
    target = folder / f"out-{time.time_ns()}.parquet"
    summary = run_job(
        JobRequest(
            endpoint=url,
            model="stub",
            input=str(source),
            output=str(target),
            job_kwargs={"temperature": 0.2},
            max_concurrency=IN_FLIGHT,
        )
    )
    assert (summary.done, summary.failed) == (rows, 0), summary


def measure(what: str, url: str, rows: int, folder: Path) -> dict[str, float]:
    """Run in this process; imports are paid before the clock starts."""
    import aiohttp
    import openai
    import pyarrow.parquet
    import uvloop

    import remuda.batch.driver

    assert all((aiohttp, openai, pyarrow.parquet, remuda.batch.driver))
    if what == "ours":
        parquet(folder / f"in-{rows}.parquet", rows)
    wall, cpu = time.perf_counter(), time.process_time()
    if what == "ours":
        ours(url, rows, folder)
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run({"bare": bare, "openai": openai_loop}[what](url, rows))
    spent, elapsed = time.process_time() - cpu, time.perf_counter() - wall
    return {"per_cpu_s": rows / spent, "per_s": rows / elapsed, "cpu_us": spent / rows * 1e6}


class Stub:
    """The stub server as a process of its own."""

    def __init__(self, *flags: str) -> None:
        argv = [sys.executable, "-m", "tests.fakes.stub_server", "--fast", *flags]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self.process.stdout.readline())}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()


def child(what: str, url: str, rows: int, folder: Path) -> dict[str, float]:
    argv = [sys.executable, __file__, "--child", what, url, str(rows), str(folder)]
    return json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)  # type: ignore[no-any-return]


def bench(rows: int, rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        seen: dict[str, list[dict[str, float]]] = {"bare": [], "ours": []}
        with Stub() as stub:
            for _ in range(rounds):
                for what in ("bare", "ours"):
                    seen[what].append(child(what, stub.url, rows, folder))
            openai = child("openai", stub.url, max(1000, rows // 20), folder)
        slow_rows = IN_FLIGHT * 100
        with Stub("--latency-s", str(SLOW_S)) as stub:
            slow = child("ours", stub.url, slow_rows, folder)
    rate = {what: statistics.median(item["per_cpu_s"] for item in items) for what, items in seen.items()}
    return {
        "rows": rows,
        "in_flight": IN_FLIGHT,
        "requests_per_cpu_s": {**rate, "openai": openai["per_cpu_s"]},
        "cpu_us_per_request": {what: 1e6 / value for what, value in {**rate, "openai": openai["per_cpu_s"]}.items()},
        "ours_over_bare": rate["ours"] / rate["bare"],
        "ours_over_openai": rate["ours"] / openai["per_cpu_s"],
        "slow_server": {"latency_s": SLOW_S, "per_s": slow["per_s"], "of_ideal": slow["per_s"] * SLOW_S / IN_FLIGHT},
        "targets": {"ours_over_bare": 0.7, "ours_over_openai": 10, "slow_server.of_ideal": 0.95},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=30000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", nargs=4, metavar=("WHAT", "URL", "ROWS", "FOLDER"))
    options = parser.parse_args()
    if options.child:
        what, url, rows, folder = options.child
        print(json.dumps(measure(what, url, int(rows), Path(folder))))
        return
    result = bench(options.rows, options.rounds)
    if options.json:
        print(json.dumps(result))
        return
    for what, rate in result["requests_per_cpu_s"].items():
        print(f"{what:8} {rate:8.0f} requests per CPU second, {1e6 / rate:7.1f} us each")
    print(f"ours over a bare loop of the same library: {result['ours_over_bare']:.2f}   (target 0.70)")
    print(f"ours over a loop of the openai client:     {result['ours_over_openai']:.1f}   (target 10)")
    slow = result["slow_server"]
    print(f"server that takes 200 ms: {slow['per_s']:.0f}/s, {slow['of_ideal']:.3f} of the ideal rate   (target 0.95)")
    if result["ours_over_bare"] < 0.7 or result["ours_over_openai"] < 10 or slow["of_ideal"] < 0.95:
        sys.exit("a target is missed")


if __name__ == "__main__":
    main()

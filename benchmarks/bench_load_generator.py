"""How true and how cheap the load generator is, against a server that keeps an exact schedule and records what it did.

The moment when the first content of an answer came here is held against the moment when the server had sent it, on
the one clock of this machine, request by request: what lies between is the client's error, and the kernel's. CPU is
that of all processes of a client. Beside ours run a lean loop of aiohttp and a bare protocol of the same event loop.
Both of these only count bytes: the second is what this machine asks for reading at all. Rounds alternate, and the
median counts.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from tests.fakes.truth import KEY, Record, Truth, build

from remuda.bench.generator import asking
from remuda.bench.generator.prompts import PromptFit, Prompts
from remuda.bench.load import Cache, Load
from remuda.bench.probe import Fitted

TEMPLATE, ISL = 8, 64
FIRST_MS, PERIOD_MS = 100, 10


@dataclass(frozen=True)
class Scene:
    """So many streams, requests of so many tokens."""

    name: str
    streams: int
    requests: int
    tokens: int

    def load(self, seed: int) -> Load:
        """A closed loop of fixed lengths."""
        return Load(ISL, self.tokens, concurrency=self.streams, requests=self.requests, seed=seed, timeout_s=120)


SCENES = (
    Scene("512 streams", 512, 2048, 100),
    Scene("8 streams", 8, 48, 100),
    Scene("one token", 512, 6144, 1),
)


def bodies(load: Load) -> list[bytes]:
    """What ours would send, made beforehand."""
    prompts = Prompts(str(load.seed), Cache())
    words = PromptFit(TEMPLATE).words(ISL)
    return [asking.body("chat", "truth", prompts.text(index, words), load.osl) for index in range(load.requests)]


async def ours(url: str, load: Load) -> dict[str, Any]:
    from remuda.bench.generator.http_stream import RequestTarget
    from remuda.bench.generator.load_workers import Crew

    async with Crew(load, RequestTarget(url), "truth", Fitted(PromptFit(TEMPLATE), forced=True)) as crew:
        cpu = time.process_time()
        run = await crew.run(enough=lambda _: False, show=lambda _: None)
        cpu = time.process_time() - cpu
    failed = [row.error for row in run.rows if not row.is_ok or row.n_out != load.osl]
    assert not failed, failed[:3]
    rows = [[row.index, row.first, row.last] for row in run.rows]
    return {"cpu_s": run.client.cpu_s + cpu, "rows": rows, "lag_p99_ms": run.client.lag_p99_s * 1e3}


async def lean(url: str, load: Load) -> dict[str, Any]:
    """A loop of aiohttp that counts bytes."""
    import aiohttp

    todo, size = bodies(load), 0
    timeout = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        cpu = time.process_time()

        async def stream() -> None:
            nonlocal size
            while todo:
                headers = {"content-type": "application/json"}
                async with session.post(url + asking.PATHS["chat"], data=todo.pop(), headers=headers) as response:
                    async for piece in response.content.iter_any():
                        size += len(piece)

        await asyncio.gather(*(stream() for _ in range(load.concurrency)))
        return {"cpu_s": time.process_time() - cpu, "bytes": size}


async def bare(url: str, load: Load) -> dict[str, Any]:
    """Reads, and looks for the end of an answer; nothing else."""
    todo, size = bodies(load), 0
    loop = asyncio.get_running_loop()
    host, _, port = url.removeprefix("http://").partition(":")

    class Reader(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport: Any = transport
            self.ended = loop.create_future()
            self.ask()

        def ask(self) -> None:
            if not todo:
                self.ended.set_result(None)
                return
            body = todo.pop()
            head = b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
            self.transport.write(head + body)

        def data_received(self, data: bytes) -> None:
            nonlocal size
            size += len(data)
            if data.endswith(b"\r\n0\r\n\r\n"):
                self.ask()

    cpu = time.process_time()
    made = [await loop.create_connection(Reader, host, int(port)) for _ in range(load.concurrency)]
    await asyncio.gather(*(reader.ended for _, reader in made))
    return {"cpu_s": time.process_time() - cpu, "bytes": size}


CLIENTS = {"ours": ours, "aiohttp": lean, "bare": bare}


def child(what: str, url: str, load: Load) -> dict[str, Any]:
    """Run one client in a process of its own."""
    argv = [sys.executable, __file__, "--child", what, url, orjson.dumps(load.to_json()).decode()]
    found: dict[str, Any] = orjson.loads(subprocess.run(argv, check=True, stdout=subprocess.PIPE).stdout)
    return found


def errors(rows: list[list[int]], load: Load, records: list[Record]) -> dict[str, list[float]]:
    """Ours minus true, request by request: the first content in ms, tpot as a share; sorted."""
    prompts = Prompts(str(load.seed), Cache())
    known = {record.key: record for record in records}
    found: dict[str, list[float]] = {"ttft": [], "tpot": []}
    for index, first, last in rows:
        record = known[prompts.text(index, PromptFit(TEMPLATE).words(ISL))[:KEY]]
        found["ttft"].append((first - record.first) / 1e6)
        if last > first:
            found["tpot"].append((last - first) / (record.last - record.first) - 1.0)
    return {name: sorted(values) for name, values in found.items()}


def run_scene(scene: Scene, program: Path, rounds: int) -> dict[str, Any]:
    cpu: dict[str, list[float]] = {what: [] for what in CLIENTS}
    off: dict[str, list[float]] = {"ttft": [], "tpot": []}
    late, lag = [], []
    for seed in range(rounds):
        load = scene.load(seed)
        for what in CLIENTS:
            records = program.with_name(f"{scene.streams}-{scene.tokens}-{seed}-{what}.jsonl")
            with Truth(program, records, first=FIRST_MS, period=PERIOD_MS, template=TEMPLATE) as server:
                found = child(what, server.url, load)
            cpu[what].append(found["cpu_s"])
            if what == "ours":
                for name, values in errors(found["rows"], load, server.records()).items():
                    off[name] += values
                late.append(max(record.late for record in server.records()) / 1e6)
                lag.append(found["lag_p99_ms"])
    return {
        "cpu_s": {what: statistics.median(values) for what, values in cpu.items()},
        "errors": {name: sorted(values) for name, values in off.items()},
        "server_late_ms": max(late), "client_lag_p99_ms": max(lag),
    }  # fmt: skip


def at(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def figures(scene: Scene, seen: dict[str, Any]) -> list[tuple[str, float, float, bool]]:
    """(what, value, goal, whether the goal holds on any machine) of one scene."""
    cpu = seen["cpu_s"]
    found = [
        (f"{scene.name}: CPU, ours / aiohttp", cpu["ours"] / cpu["aiohttp"], 1.0, True),
        (f"{scene.name}: the same as a goal", cpu["ours"] / cpu["aiohttp"], 0.5, False),
    ]
    if scene.tokens == 1:
        return [*found, (f"{scene.name}: CPU ms a request", cpu["ours"] / scene.requests * 1e3, 0.5, False)]
    ttft, tpot = seen["errors"]["ttft"], seen["errors"]["tpot"]
    tokens = scene.requests * scene.tokens
    return [
        (f"{scene.name}: ttft error p50, ms", at(ttft, 0.5), 1.0, False),
        (f"{scene.name}: ttft error p99, ms", at(ttft, 0.99), 5.0, False),
        (f"{scene.name}: tpot error p50, %", abs(at(tpot, 0.5)) * 100, 1.0, False),
        *found,
        (f"{scene.name}: CPU us a token", cpu["ours"] / tokens * 1e6, 5.0 if scene.streams > 64 else 10.0, False),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", nargs=3, metavar=("WHAT", "URL", "LOAD"))
    options = parser.parse_args()
    if options.child:
        import uvloop

        what, url, load = options.child
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            print(orjson.dumps(runner.run(CLIENTS[what](url, Load.from_json(orjson.loads(load))))).decode())
        return
    with tempfile.TemporaryDirectory() as name:
        program = build(Path(name))
        seen = {scene: run_scene(scene, program, options.rounds) for scene in SCENES}
    rows = [row for scene in SCENES for row in figures(scene, seen[scene])]
    if options.json:
        print(json.dumps([{"name": name, "value": value, "goal": goal} for name, value, goal, _ in rows]))
    else:
        for scene in SCENES:
            units = scene.requests * scene.tokens
            each = ", ".join(f"{what} {spent / units * 1e6:.1f}" for what, spent in seen[scene]["cpu_s"].items())
            late, lag = seen[scene]["server_late_ms"], seen[scene]["client_lag_p99_ms"]
            print(f"{scene.name}: CPU us a token: {each}")
            print(f"{scene.name}: the server was up to {late:.1f} ms late, the client's loop {lag:.1f} ms (p99)")
        for name, value, goal, is_bound in rows:
            words = "bound" if is_bound else "goal on a quiet machine"
            print(f"{name:36} {value:8.3f}   {words} {goal:g}: {'holds' if value <= goal else 'MISSED'}")
    if any(value > goal for _, value, goal, is_bound in rows if is_bound):
        sys.exit("a bound is broken")


if __name__ == "__main__":
    main()

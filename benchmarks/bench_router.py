"""What a router adds to a request: smg and nginx as remuda starts them, beside the engine alone, in one run.

Behind them is a stub that answers at once, so the whole time is the router's and the network's. The client is a bare
protocol on uvloop. Rounds take turns, so that a busy moment of the machine hits all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop

from remuda.plan.front import RouterSettings, router_group
from remuda.plan.model import HOST_MARK, PORT_MARK, Endpoint
from remuda.serving.client import call
from remuda.serving.router import Member, router_named

KEY = "connections x engine"
INSTALL = "nginx is not there; install it to have a comparison: apt-get install nginx-light"
BODY = json.dumps({"model": "stub", "max_tokens": 8, "messages": [{"role": "user", "content": "hello " * 20}]}).encode()


class Connection(asyncio.Protocol):
    """One keep-alive connection that has one request in flight."""

    def __init__(self) -> None:
        self.data = b""
        self.answer: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: Any) -> None:
        """Keep it."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Give the answer on when it is whole."""
        self.data += data
        head, found, rest = self.data.partition(b"\r\n\r\n")
        if not found or self.answer is None:
            return
        lowered = head.lower()
        at = lowered.find(b"content-length:")
        length = int(lowered[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else -1
        done = len(rest) >= length if length >= 0 else rest.endswith(b"0\r\n\r\n")
        if done and not self.answer.done():
            self.data = b""
            self.answer.set_result(head)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the request in flight."""
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(exc or ConnectionError("closed in the middle"))

    async def ask(self, request: bytes) -> float:
        """Seconds from the first byte sent to the last received."""
        self.answer = asyncio.get_running_loop().create_future()
        start = time.perf_counter()
        self.transport.write(request)
        head = await self.answer
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"an answer was not 200: {head[:200]!r}")
        return time.perf_counter() - start


@dataclass(frozen=True)
class Load:
    """How many connections ask an engine that takes how long."""

    connections: int
    engine_ms: int

    def __str__(self) -> str:
        return f"{self.connections} x {self.engine_ms} ms"


#: The first tells what a request costs, the next two where a router is full, the last what is left of it in real work.
LOADS = (Load(1, 0), Load(16, 0), Load(64, 0), Load(64, 50))


@dataclass
class Target:
    """One address that is measured."""

    name: str
    url: str
    pids: list[int]
    times: dict[Load, list[float]] = field(default_factory=dict)
    """Seconds of each request."""
    walls: dict[Load, float] = field(default_factory=dict)
    cpu: dict[Load, float] = field(default_factory=dict)
    """CPU seconds of the router's processes."""


def stat(pid: int | str) -> list[str]:
    """Fields of a process from its state on."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()


def cpu_seconds(pids: list[int]) -> float:
    ticks = sum(int(number) for pid in pids for number in stat(pid)[11:13])
    return ticks / os.sysconf("SC_CLK_TCK")


def family(pid: int) -> list[int]:
    """A process and all below it."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents[int(folder.name)] = int(stat(folder.name)[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


async def measure(target: Target, load: Load, requests: int) -> None:
    port = int(target.url.rpartition(":")[2])
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
    request = f"{head}content-length: {len(BODY)}\r\n\r\n".encode() + BODY
    loop = asyncio.get_running_loop()
    opened = [(await loop.create_connection(Connection, "127.0.0.1", port))[1] for _ in range(load.connections)]
    times: list[float] = []

    async def run(connection: Connection, count: int) -> None:
        times.extend([await connection.ask(request) for _ in range(count)])

    await asyncio.gather(*(run(connection, 5) for connection in opened))  # warm
    times.clear()
    before, start = cpu_seconds(target.pids), time.perf_counter()
    await asyncio.gather(*(run(connection, max(1, requests // load.connections)) for connection in opened))
    target.walls[load] = target.walls.get(load, 0.0) + time.perf_counter() - start
    target.cpu[load] = target.cpu.get(load, 0.0) + cpu_seconds(target.pids) - before
    target.times.setdefault(load, []).extend(times)
    for connection in opened:
        connection.transport.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(stack: ExitStack, argv: list[str], env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        argv,
        env={**os.environ, **(env or {})},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    def end() -> None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    stack.callback(end)
    return process


async def until_up(url: str) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            if (await call("GET", f"{url}/health", timeout_s=1)).status == 200:
                return
        except Exception:  # noqa: BLE001 - not up yet, whatever it says
            await asyncio.sleep(0.05)
    raise SystemExit(f"{url} did not come up")


async def start_router(stack: ExitStack, name: str, members: frozenset[str]) -> Target:
    router = router_named(name)
    port = free_port()
    endpoint = Endpoint(port=port, router="router", model="stub")
    command = router_group(name, RouterSettings(endpoint, len(members), python=sys.executable)).command
    argv = [part.replace(HOST_MARK, "127.0.0.1").replace(PORT_MARK, str(port)) for part in command.argv]
    process = start(stack, argv, command.env)
    url = f"http://127.0.0.1:{port}"
    await until_up(url)
    changes = await router.sync(url, frozenset(map(Member, members)), wait_s=5)
    if changes.added != members:
        raise SystemExit(f"{name} did not take its members: {changes}")
    await asyncio.sleep(1.5)  # nginx's old processes end, smg's first probes run
    return Target(name, url, family(process.pid))


def share(times: list[float], part: float) -> float:
    return sorted(times)[min(len(times) - 1, int(part * len(times)))] * 1e6


def summary(targets: list[Target]) -> list[dict[str, Any]]:
    rows = []
    for load in LOADS:
        alone = targets[0].times[load]
        for target in targets:
            times = target.times[load]
            p50, p99 = share(times, 0.5), share(times, 0.99)
            rows.append(
                {
                    KEY: str(load),
                    "router": target.name,
                    "requests_per_s": round(len(times) / target.walls[load]),
                    "p50_us": round(p50),
                    "p99_us": round(p99),
                    "added_p50_us": round(p50 - share(alone, 0.5)),
                    "added_p99_us": round(p99 - share(alone, 0.99)),
                    "cpu_us_per_request": round(target.cpu[load] / len(times) * 1e6),
                }
            )
    return rows


def ratios(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Smg against nginx, by connections."""
    found = {}
    for row in rows:
        if row["router"] != "smg":
            continue
        other = next(one for one in rows if one["router"] == "nginx" and one[KEY] == row[KEY])
        for name in ("added_p50_us", "added_p99_us", "cpu_us_per_request"):
            if other[name] > 0:
                found[f"smg/nginx {name} at {row[KEY]}"] = round(row[name] / other[name], 2)
    return found


def show(rows: list[dict[str, Any]], found: dict[str, float]) -> None:
    names = list(rows[0])
    print("".join(name.replace("_us", " µs").replace("_", " ").rjust(21) for name in names))
    for row in rows:
        cells = (value if isinstance(value, str) else f"{value:,}" for value in row.values())
        print("".join(cell.rjust(21) for cell in cells))
    for name, value in found.items():
        print(f"{name}: {value}")


async def bench(options: argparse.Namespace) -> None:
    with ExitStack() as stack:
        port = free_port()
        stub = start(stack, [sys.executable, "-m", "tests.fakes.stub_server", "--port", str(port)])
        members = frozenset({f"http://127.0.0.1:{port}"})
        (url,) = members
        await until_up(url)
        targets = [Target("engine alone", url, [stub.pid])]
        targets += [await start_router(stack, name, members) for name in ("smg", "nginx")]
        for _ in range(options.rounds):
            for load in LOADS:
                await call("POST", f"{url}/stub/set", body={"latency_s": load.engine_ms / 1000})
                for target in targets:
                    await measure(target, load, options.requests)
        rows = summary(targets)
    found = ratios(rows)
    if options.json:
        print(json.dumps({"rows": rows, "ratios": found}))
    else:
        show(rows, found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=3000, help="a round, at each load")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin") is None:
        print(INSTALL, file=sys.stderr)
        raise SystemExit(2)
    uvloop.run(bench(options))


if __name__ == "__main__":
    main()

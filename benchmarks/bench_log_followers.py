"""What many followers of one large log cost the host: its memory, and how long anybody else waits for its event loop.

Beside it a server that does the obvious: each follower reads the file's lines into a list and sends them one by one.
That one is given a much smaller log, because it would need all of the machine's memory for this one.
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harness import BenchHome, Figure, finish, until

if TYPE_CHECKING:
    from collections.abc import Iterator

MEMORY_MB, DELAY_MS = 50.0, 20.0
PING = b"GET /api/v1/host HTTP/1.1\r\nHost: localhost\r\n\r\n"
FOLLOW = b"GET /api/v1/workloads/writer/logs?follow=true HTTP/1.1\r\nHost: localhost\r\n\r\n"

NAIVE = """
import asyncio, sys
async def serve(reader, writer):
    while request := await reader.readuntil(b"\\r\\n\\r\\n"):
        if b"/logs" not in request:
            writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n")
            continue
        with open(sys.argv[2], "rb") as file:
            lines = [line.decode() for line in file]
        for line in lines:
            writer.write(line.encode())
            await writer.drain()
async def main():
    async with await asyncio.start_unix_server(serve, sys.argv[1]) as server:
        await server.serve_forever()
asyncio.run(main())
"""

DRAIN = """
import selectors, socket, sys
chooser, total = selectors.DefaultSelector(), 0
for _ in range(int(sys.argv[2])):
    one = socket.socket(socket.AF_UNIX)
    one.connect(sys.argv[1])
    one.sendall(sys.argv[3].encode().decode("unicode_escape").encode())
    chooser.register(one, selectors.EVENT_READ)
space = bytearray(1 << 20)
while chooser.get_map():
    for key, _ in chooser.select(1):
        count = key.fileobj.recv_into(space)
        total += count
        if not count:
            chooser.unregister(key.fileobj)
    print(total, flush=True)
"""


class Cost(NamedTuple):
    """Of one server with its followers."""

    memory_mb: float
    delay_ms: float
    """Longest answer to a question that needs nothing but the event loop."""
    usual_ms: float
    """The same without followers, the longest of many."""
    sent_mb: float
    seconds: float


def make_log(path: Path, size_mb: int) -> None:
    """A log of that size under that name, in place of what has it."""
    line = b"2026-01-01 00:00:00 step 1000 loss 1.2345 tokens/s 123456.7 and some more words to fill the line up\n"
    new = path.with_suffix(".new")
    with new.open("wb") as file:
        for _ in range(size_mb):
            file.write(line * ((1 << 20) // len(line)))
    new.replace(path)


def rss_mb(pid: int) -> float:
    """Memory of a process now."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


class Pinger(threading.Thread):
    """Asks again and again over one connection, and notes how long each answer took."""

    def __init__(self, address: Path) -> None:
        super().__init__(daemon=True)
        self.waits: list[float] = []
        self.asked_at = 0.0
        self._address = address
        self._is_over = False

    def run(self) -> None:
        """Ask until `end`."""
        with socket.socket(socket.AF_UNIX) as one:
            one.connect(str(self._address))
            while not self._is_over:
                self.asked_at = time.perf_counter()
                one.sendall(PING)
                if not one.recv(65536):
                    return
                self.waits.append(1000 * (time.perf_counter() - self.asked_at))
                time.sleep(0.005)

    def longest_ms(self) -> float:
        """Of those so far, one that is still waited for among them."""
        return max([*self.waits, 1000 * (time.perf_counter() - self.asked_at)])

    def end(self) -> None:
        """Ask no more."""
        self._is_over = True
        self.join(30)


@contextmanager
def pinging(address: Path) -> Iterator[Pinger]:
    pinger = Pinger(address)
    pinger.start()
    try:
        yield pinger
    finally:
        pinger.end()


@contextmanager
def draining(address: Path, count: int) -> Iterator[list[int]]:
    """Followers that throw away what they get; the bytes so far, newest last."""
    request = FOLLOW.decode().encode("unicode_escape").decode()
    argv = [sys.executable, "-c", DRAIN, str(address), str(count), request]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    totals = [0]

    def count_up() -> None:
        for line in process.stdout or ():
            totals[0] = int(line)

    reader = threading.Thread(target=count_up, daemon=True)
    reader.start()
    try:
        yield totals
    finally:
        process.kill()
        process.wait()
        reader.join()


def cost(pid: int, address: Path, followers: int, expected_mb: float, limit_s: float) -> Cost:
    """Of followers who read until they have all of it, or until the time is over."""
    with pinging(address) as quiet:
        time.sleep(2.0)
    before = rss_mb(pid)
    peak = before
    begin = time.perf_counter()
    with pinging(address) as pinger, draining(address, followers) as totals:
        while time.perf_counter() - begin < limit_s and totals[0] < expected_mb * 1e6:
            peak = max(peak, rss_mb(pid))
            time.sleep(0.02)
        seconds = time.perf_counter() - begin
        longest = pinger.longest_ms()
        sent = totals[0] / 1e6
    return Cost(peak - before, longest, max(quiet.waits), sent, seconds)


def host_cost(options: argparse.Namespace) -> Cost:
    with BenchHome() as home:
        script = home.root / "writer.sh"
        script.write_text("#!/bin/sh\necho begun\nexec sleep 3600\n")
        home.run("run", str(script), "--name", "writer", "--backend", "local")
        until(lambda: "begun" in home.run("logs", "writer"), "the run writes", step_s=0.2)
        (log,) = (home.root / "home" / "workloads" / "writer").resolve().rglob("child.log")
        make_log(log, options.size_mb)
        pid = int(home.client.get("/host")["pid"])
        address = home.client.paths.socket
        return cost(pid, address, options.followers, 0.99 * options.followers * options.size_mb, options.seconds)


def naive_cost(options: argparse.Namespace) -> Cost:
    with BenchHome() as home:
        log, address = home.root / "log", home.root / "socket"
        make_log(log, options.naive_mb)
        server = subprocess.Popen([sys.executable, "-c", NAIVE, str(address), str(log)], stderr=subprocess.DEVNULL)
        try:
            until(address.exists, "it listens")
            expected = 0.99 * options.followers * options.naive_mb
            return cost(server.pid, address, options.followers, expected, options.seconds)
        finally:
            server.kill()
            server.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--followers", type=int, default=30)
    parser.add_argument("--size-mb", type=int, default=1024)
    parser.add_argument("--naive-mb", type=int, default=32, help="size of the log for the obvious way")
    parser.add_argument("--seconds", type=float, default=60.0, help="at most, for each of both")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    naive, ours = naive_cost(options), host_cost(options)
    name = f"the obvious way, {options.naive_mb} MB"
    what = f"{options.followers} followers of {options.size_mb} MB"
    figures = [
        Figure(f"{what}: memory of the host", ours.memory_mb, "MB", MEMORY_MB, naive.memory_mb, name),
        Figure(f"{what}: longest wait for the loop", ours.delay_ms, "ms", DELAY_MS, naive.delay_ms, name),
        Figure("longest wait without followers", ours.usual_ms, "ms", None, naive.usual_ms, name),
        Figure(f"{what}: sent", ours.sent_mb / ours.seconds, "MB/s", None, naive.sent_mb / naive.seconds, name),
    ]
    return finish(figures, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())

"""What the relay adds to a request: CPU of its process and time, beside the same server asked straight.

python benchmarks/bench_relay.py [requests]
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import uvloop

SERVER = """
import asyncio, sys, uvloop
ANSWER = b"HTTP/1.1 200 OK\\r\\nContent-Type: application/json\\r\\nContent-Length: 400\\r\\n\\r\\n" + b"x" * 400
class Server(asyncio.Protocol):
    def connection_made(self, transport): self.transport = transport
    def data_received(self, data): self.transport.write(ANSWER * data.count(b"\\r\\n\\r\\n"))
async def main():
    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()
uvloop.run(main())
"""
BODY = b'{"model": "m", "messages": [{"role": "user", "content": "' + b"a" * 300 + b'"}]}'
HEAD = "POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer k\r\nContent-Length: {}\r\n\r\n"
REQUEST = HEAD.format(len(BODY)).encode() + BODY
DIRECT, RELAYED = 18471, 18472


async def client(port: int, count: int, times: list[float]) -> None:
    """Ask one after the other on one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(count):
        begun = time.perf_counter()
        writer.write(REQUEST)
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(400)
        times.append(time.perf_counter() - begun)
    writer.close()


async def measure(port: int, clients: int, count: int) -> tuple[float, float]:
    """Requests a second and median seconds of one."""
    times: list[float] = []
    begun = time.perf_counter()
    await asyncio.gather(*(client(port, count // clients, times) for _ in range(clients)))
    return len(times) / (time.perf_counter() - begun), median(times)


def cpu_s(pid: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def until_up(port: int) -> None:
    """Wait until something listens."""
    while True:
        try:
            (await asyncio.open_connection("127.0.0.1", port))[1].close()
        except OSError:
            await asyncio.sleep(0.05)
        else:
            return


async def run(count: int, relay: int) -> None:
    """Print both, for one connection and for 32."""
    await until_up(DIRECT)
    await until_up(RELAYED)
    for clients in (1, 32):
        _, straight = await measure(DIRECT, clients, count)
        before = cpu_s(relay)
        rate, through = await measure(RELAYED, clients, count)
        used = (cpu_s(relay) - before) / count
        print(f"{clients:>2} connections: straight {straight * 1e3:.2f} ms, through the relay {through * 1e3:.2f} ms, "
              f"{rate:.0f}/s, {used * 1e6:.0f} us of its CPU a request")  # fmt: skip


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "router.json"
        router = {"url": f"http://127.0.0.1:{DIRECT}", "id": "1"}
        file.write_text(json.dumps({"router": router, "alive": [router]}))
        words = [sys.executable, "-m", "remuda.serving.relay.program", "--port", str(RELAYED), "--file", str(file)]
        with (
            subprocess.Popen([sys.executable, "-c", SERVER, str(DIRECT)]) as server,
            subprocess.Popen(words, stderr=subprocess.DEVNULL) as relay,
        ):
            try:
                uvloop.run(run(count, relay.pid))
            finally:
                server.terminate()
                relay.terminate()


if __name__ == "__main__":
    main()

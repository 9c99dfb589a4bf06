"""A server for the tests: `server.py PORT [FILE]`; the file says how it behaves now (ok, deaf, …).

It starts in a few milliseconds, since it is started hundreds of times.
"""

import os
import select
import signal
import socket
import sys
import time
from pathlib import Path

PAGE = b"vllm:num_requests_running 2\nvllm:num_requests_waiting 1\nvllm:prompt_tokens_total 30\n"


def answer(request: bytes, mode: str) -> bytes:
    if mode == "garbage":
        return b"SSH-2.0-nonsense\r\n\r\n"
    status = b"500 no" if mode == "500" else b"200 OK"
    key = os.environ.get("NEED_KEY", "")
    if key and f"Bearer {key}\r\n".encode() not in request:
        status = b"401 who"
    body = PAGE if b"/metrics" in request else b"fine"
    if mode == "chunked":
        chunks = b"4\r\nvllm\r\n18\r\n:num_requests_running 9\n\r\n0\r\n\r\n"
        return b"HTTP/1.1 %s\r\nTransfer-Encoding: chunked\r\n\r\n%s" % (status, chunks)
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


def main() -> None:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((os.environ.get("REMUDA_HOST", "127.0.0.1"), int(sys.argv[1])))
    server.listen(16)
    print("listening", flush=True)
    control = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    kept = []
    while True:
        select.select([server], [], [])
        line, _ = server.accept()
        mode = control.read_text().strip() if control is not None else "ok"
        if mode == "deaf":
            kept.append(line)
            continue
        if mode == "rude":
            line.close()
            continue
        request = line.recv(65536)
        if mode == "slow":
            line.sendall(b"HTTP/1.1 200 OK\r\n")
            kept.append(line)
            time.sleep(0.05)
            continue
        if mode == "leave" and b"/health" in request:  # it lets go of its port, answers, and lives on
            server.close()
            line.sendall(answer(request, mode))
            line.close()
            signal.pause()
        line.sendall(answer(request, mode))
        line.close()


main()

"""A server over several nodes without Ray: rank 0 answers HTTP once every other rank has called it over TCP.

`ranks.py RANK NNODES HEAD HEAD_PORT PORT`. `GET /health` is 200 while all ranks are connected; `/where` names them.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

there: dict[str, str] = {}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"data": [{"id": "herd-1"}], "where": there}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def lead(count: int, port: int, http: int) -> None:
    there["0"] = os.uname().nodename
    with socket.create_server(("0.0.0.0", port)) as listener:
        while len(there) < count:
            connection, _ = listener.accept()
            rank, node, secret = connection.makefile().readline().split()
            assert secret == os.environ["TOKEN_OF_RANKS"]
            there[rank] = node
            kept.append(connection)
    print("all ranks are there", there, flush=True)
    ThreadingHTTPServer(("0.0.0.0", http), Handler).serve_forever()


def follow(rank: int, head: str, port: int) -> None:
    while True:
        try:
            connection = socket.create_connection((head, port))
            if connection.getsockname() != connection.getpeername():  # while nobody listens it can meet itself
                break
            connection.close()
        except OSError:
            pass
        time.sleep(0.2)
    connection.sendall(f"{rank} {os.uname().nodename} {os.environ['TOKEN_OF_RANKS']}\n".encode())
    connection.settimeout(0.2)
    while True:
        try:
            connection.recv(1)
            return  # the head is gone
        except TimeoutError:
            broken = Path(os.environ.get("BROKEN_FILE", "/nonexistent"))
            if broken.exists() and broken.read_text() == os.environ["SLURMD_NODENAME"]:
                print("NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.", flush=True)
                sys.exit(1)


kept: list[socket.socket] = []

if __name__ == "__main__":
    number, nnodes, address, meet, serve = sys.argv[1:]
    port = int(serve)  # engines read it on every node
    if number == "0":
        lead(int(nnodes), int(meet), port)
    else:
        follow(int(number), address, int(meet))

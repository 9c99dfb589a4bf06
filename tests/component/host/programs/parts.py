"""Stands in for etcd, nats-server and Dynamo's worker and frontend: serves where it is told, as a server starts fast.

A worker and a frontend end at once where nobody listens at the addresses of etcd and NATS that they are told.
"""

import itertools
import json
import os
import socket
import sys
from contextlib import suppress

NEEDS = ("ETCD_ENDPOINTS", "NATS_SERVER")
COUNTER = b'dynamo_component_requests_total{dynamo_endpoint="generate"} %d\n'
"""It moves whenever it is looked at."""
LISTED = [{"component": name, "endpoint": "generate"} for name in ("prefill", "backend")]


def main() -> None:
    if "-m" in sys.argv:
        for name in NEEDS:
            host, _, port = os.environ[name].rpartition("/")[2].rpartition(":")
            socket.create_connection((host, int(port))).close()
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", port_of(sys.argv)))
    server.listen(16)
    answer = json.dumps({"instances": LISTED, "data": [{"id": "tiny"}], "usage": {"completion_tokens": 8}}).encode()
    for count in itertools.count():
        line, _ = server.accept()
        with line, suppress(OSError):
            if asked := line.recv(65536):
                body = COUNTER % count if b"/metrics" in asked else answer
                line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


def port_of(words: list[str]) -> int:
    for flag in ("--listen-client-urls", "-p", "--http-port"):
        if flag in words:
            return int(words[words.index(flag) + 1].rpartition(":")[2])
    return int(os.environ["DYN_SYSTEM_PORT"])


main()

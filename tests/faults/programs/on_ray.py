"""A server on a Ray cluster: it answers once a task has run on a GPU of every node, and names the nodes it saw.

`on_ray.py NODES PORT`.
"""

from __future__ import annotations

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import ray

there: list[str] = []


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"data": [{"id": "herd-1"}], "where": there, "gpus": gpus()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def gpus() -> float:
    asked: Any = ray
    return float(asked.cluster_resources()["GPU"])


def node_name() -> str:
    return os.uname().nodename


if __name__ == "__main__":
    ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False)
    # A task of all GPUs of a node leaves no room for the next on the same one.
    task: Any = ray.remote(num_gpus=int(os.environ["GPUS_OF_A_NODE"]), num_cpus=0)(node_name)
    print("asks", flush=True)
    there[:] = ray.get([task.options(scheduling_strategy="SPREAD").remote() for _ in range(int(sys.argv[1]))])
    print("tasks ran on", there, flush=True)
    ThreadingHTTPServer(("0.0.0.0", int(sys.argv[2])), Handler).serve_forever()

"""A server with a role in the place of SGLang's: `python -m sglang.launch_server`, standard library only.

What it does, and where that is known from («facts» are those of SGLang 0.5 and its router):

    flags of the launcher             --model-path, --host, --port, --disaggregation-mode and -bootstrap-port, --nnodes,
                                      --node-rank, --dist-init-addr: facts; a flag that is not known is refused
    prefill and decode get a request  smg sends it to both, with bootstrap_host, bootstrap_port and bootstrap_room
    what prefill has computed         decode fetches it at the bootstrap port; without it the answer has no token
    several nodes                     rank 0 listens at --dist-init-addr and answers /health once all ranks have called;
                                      another rank calls there, and ends when that line is cut
    an engine that dies               a line «Scheduler hit an exception», and a launcher that lives on: facts
    SIGUSR2                           the stand-in's own: it ends with 0, as a server does that was asked to end
    sglang:prompt_tokens_total        counts in prefill and in `agg`; untried: whether SGLang's decode counts it, too
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ROOMS: set[int] = set()
COUNTS = {"prompt": 0, "generation": 0}
ALL_HERE = threading.Event()


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="sglang.launch_server", allow_abbrev=False)
    parser.add_argument("--model-path", required=True)
    parser.add_argument("--served-model-name", default="")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--nccl-port", type=int)
    parser.add_argument("--tensor-parallel-size", "--tp-size", type=int, default=1)
    parser.add_argument("--device", default="")
    parser.add_argument("--disaggregation-mode", choices=["null", "prefill", "decode"], default="null")
    parser.add_argument("--disaggregation-bootstrap-port", type=int, default=8998)
    parser.add_argument("--enable-metrics", action="store_true")
    parser.add_argument("--nnodes", type=int, default=1)
    parser.add_argument("--node-rank", type=int, default=0)
    parser.add_argument("--dist-init-addr", default="")
    parser.add_argument("--dies-inside", action="store_true", help="the stand-in's own: its engine dies, it lives on")
    parser.add_argument("--no-handover", action="store_true", help="the stand-in's own: nothing reaches decode")
    return parser.parse_args()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    given: argparse.Namespace

    def do_GET(self) -> None:
        name = self.given.served_model_name or self.given.model_path
        if self.path in ("/health", "/health_generate"):
            self.say(200 if ALL_HERE.is_set() else 503, b"")
        elif self.path == "/v1/models":
            self.say(200, json.dumps({"object": "list", "data": [{"id": name, "object": "model"}]}).encode())
        elif self.path == "/metrics":
            lines = [f'sglang:{key}_tokens_total{{model_name="{name}"}} {value}' for key, value in COUNTS.items()]
            self.say(200, "\n".join([*lines, ""]).encode())
        elif self.path in ("/get_server_info", "/server_info", "/get_model_info", "/model_info"):
            self.say(200, json.dumps({"model_path": name, "served_model_name": name}).encode())
        else:
            self.say(404, b"{}")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        mode, tokens = self.given.disaggregation_mode, int(body.get("max_tokens") or 4)
        if mode != "decode":
            COUNTS["prompt"] += 7
        if mode == "prefill":
            ROOMS.add(int(body.get("bootstrap_room") or 0))
            tokens = 1
        elif mode == "decode" and not fetched(body):
            tokens = 0
        if mode != "prefill":
            COUNTS["generation"] += tokens
        text = " ".join(["word"] * tokens)
        usage = {"prompt_tokens": 7, "completion_tokens": tokens, "total_tokens": 7 + tokens}
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "length"}
        answer = {"id": "1", "object": "chat.completion", "created": 1, "model": body.get("model", ""),
                  "choices": [choice], "usage": usage}  # fmt: skip
        self.say(200, json.dumps(answer).encode())

    def say(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: Any) -> None:
        """Say nothing."""


class Bootstrap(Handler):
    """Where decode asks for what prefill has computed: 200 once it is there."""

    def do_GET(self) -> None:
        self.say(200 if int(self.path.rpartition("/")[2]) in ROOMS else 404, b"")


def fetched(body: dict[str, Any]) -> bool:
    url = f"http://{body.get('bootstrap_host')}:{body.get('bootstrap_port')}/{body.get('bootstrap_room')}"
    for _ in range(100):
        try:
            with urllib.request.urlopen(url, timeout=5):
                return True
        except urllib.error.HTTPError:
            time.sleep(0.05)  # not computed yet
        except OSError:
            return False
    return False


def meet(given: argparse.Namespace) -> None:
    """Rank 0 waits for the others, and keeps their lines."""
    host, _, port = given.dist_init_addr.rpartition(":")
    if given.node_rank:
        for _ in range(600):
            try:
                line = socket.create_connection((host, int(port)), timeout=5)
                break
            except OSError:
                time.sleep(0.1)
        line.settimeout(None)
        print(f"rank {given.node_rank} has called {host}:{port}", flush=True)
        line.recv(1)
        sys.exit(0)
    with socket.create_server((host, int(port))) as door:
        lines = [door.accept()[0] for _ in range(given.nnodes - 1)]
    print(f"{1 + len(lines)} ranks are here", flush=True)
    ALL_HERE.set()
    threading.Event().wait()


def main() -> None:
    signal.signal(signal.SIGUSR2, lambda *_: os._exit(0))
    Handler.given = given = options()
    if given.disaggregation_mode == "prefill" and not given.no_handover and not given.node_rank:
        rooms = ThreadingHTTPServer((given.host, given.disaggregation_bootstrap_port), Bootstrap)
        threading.Thread(target=rooms.serve_forever, daemon=True).start()
    if given.nnodes > 1:
        if given.node_rank:
            meet(given)
        threading.Thread(target=meet, args=(given,), daemon=True).start()
    elif given.dies_inside:
        print("[2026-11-25 05:31:43 TP0] Scheduler hit an exception: Traceback", flush=True)
    else:
        ALL_HERE.set()
    ThreadingHTTPServer((given.host, given.port), Handler).serve_forever()


if __name__ == "__main__":
    main()

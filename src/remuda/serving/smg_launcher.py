"""Starts smg: `python -m remuda.enter smg --model NAME [--api-key-env V] [--control-key-env V] -- FLAGS…`.

smg's own command takes keys in its arguments, where every user of the machine can read them, and answers 404 «no such
model» while it has no members, which clients take for an error of their own. So keys come from the environment, and a
second small process is a member that is never healthy: with it, smg knows the model and answers 503 until a replica is
there.
"""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import signal
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final, NoReturn

from remuda.base import descriptors
from remuda.base.errors import Unavailable
from remuda.serving.client import request
from remuda.serving.flags import Parser

if TYPE_CHECKING:
    from collections.abc import Sequence

LOOPBACK: Final = "127.0.0.1"
POLL_S: Final = 0.2
INSTALL: Final = "pip install 'remuda[router]'"
LABEL: Final = "remuda"
"""Label of the waiting room in smg's list of workers."""
METRICS_LABEL: Final = "remuda-metrics"
"""Label of the waiting room that tells where smg's metrics are."""


_MOST_BYTES = 1 << 20
"""Of a request that nobody can answer; whoever sends it may be anybody."""
_BLOCK_BYTES = 1 << 16
_MOST_AT_ONCE = 64
"""Threads of the process that holds the waiting room."""
_SILENT_S = 5.0
"""Whoever says nothing to the waiting room for so long is sent away."""


def parser() -> Parser:
    """Own flags; what follows `--` is smg's."""
    made = Parser("smg")
    made.add_argument("--model", default="", help="model name that requests carry")
    made.add_argument("--api-key-env", default="", help="environment variable with the key that clients send")
    made.add_argument("--control-key-env", default="", help="environment variable with the key that sets members")
    made.add_argument("smg", nargs="*", help="smg's own flags, after --")
    return made


class Answering(BaseHTTPRequestHandler):
    """Answers JSON."""

    def answer(self, status: int, answer: dict[str, Any]) -> None:
        """Send an answer."""
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        if status == 503:
            self.send_header("retry-after", "1")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class WaitingRoom(Answering):
    """A member without a model: healthy until smg has registered it, then never again."""

    model = ""
    key = ""
    """That smg sends; nobody else is told anything."""
    registered = False
    timeout = _SILENT_S

    def do_GET(self) -> None:
        """Answer what smg asks when it registers a worker."""
        if self.path == "/v1/models" and self.headers.get("authorization") != f"Bearer {type(self).key}":
            self.answer(401, {})
        elif self.path == "/v1/models":
            self.answer(200, {"object": "list", "data": [{"id": self.model, "object": "model", "owned_by": "remuda"}]})
        elif self.path == "/health":
            self.answer(503 if type(self).registered else 200, {})
        else:
            self.answer(404, {})

    def do_POST(self) -> None:
        """Refuse: reached only in the moment before smg saw that this is not healthy."""
        length = self.headers.get("content-length", "")
        left = min(int(length), _MOST_BYTES) if length.isdigit() and len(length) < 20 else 0
        while left > 0 and (block := self.rfile.read(min(left, _BLOCK_BYTES))):
            left -= len(block)
        self.close_connection = True  # what was not read is no next request
        message = {"message": "no replica is ready", "type": "server_error", "code": "no_available_workers"}
        self.answer(503, {"error": message})


def free_port(host: str) -> int:
    """A port that nobody listens on now."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def end_with_parent(parent: int) -> None:
    """Ask the kernel (Linux) to end this process when its parent ends, however that ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(0)


class WaitingRoomServer(ThreadingHTTPServer):
    """Serves it on a free port, so that one who connects and says nothing keeps smg from nothing."""

    timeout = POLL_S

    def __init__(self) -> None:
        super().__init__((LOOPBACK, 0), WaitingRoom)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Hear so many at once; the next hang up before they cost a thread."""
        if threading.active_count() > _MOST_AT_ONCE:
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)


def open_waiting_room(base_url: str, model: str, key: str, metrics_url: str) -> None:
    """Start the process that holds the waiting room and registers it once smg answers at `base_url`."""
    WaitingRoom.model, WaitingRoom.key = model, secrets.token_hex(16)
    server = WaitingRoomServer()
    parent = os.getpid()
    if os.fork() != 0:
        server.socket.close()
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    end_with_parent(parent)
    spec = {
        "url": f"http://127.0.0.1:{server.server_port}",
        "api_key": WaitingRoom.key,
        "labels": {LABEL: "waiting-room", METRICS_LABEL: metrics_url},
    }
    threading.Thread(target=register, args=(base_url, spec, key), daemon=True).start()
    while True:
        server.handle_request()
        if os.getppid() != parent:
            os._exit(0)


def register(base_url: str, spec: dict[str, Any], key: str) -> None:
    """Add the waiting room to smg's workers, let smg find it unhealthy, then ask it to look once a day only."""
    workers = f"{base_url}/workers"
    while True:
        time.sleep(POLL_S / 10)
        try:
            if not WaitingRoom.registered:
                ask("POST", workers, key, spec)
            mine = [worker for worker in ask("GET", workers, key)["workers"] if worker["url"] == spec["url"]]
            WaitingRoom.registered = bool(mine)
            if mine and not mine[0]["is_healthy"]:
                # A failed probe is two lines in smg's log: enough once, too much each second.
                ask("PATCH", f"{workers}/{mine[0]['id']}", key, {"health": {"check_interval_secs": 86_400}})
                return
        except (Unavailable, ValueError, KeyError):
            continue  # not up yet


def ask(method: str, url: str, key: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """One request to smg; 409 means that it knows the worker already.

    Raises:
        Unavailable: it does not answer, or not well, or somebody else does: whoever has the port gets no key.
        ValueError: the answer is not a JSON object.
    """
    answer = request(method, url, body=body, key=key)
    if answer.status == 409:
        return {}
    if answer.status >= 300:
        raise Unavailable(f"{url} answered {answer.status}")
    return dict(answer.json())


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Entry point: becomes smg."""
    options = (flags := parser()).parse_args(argv)
    api_key, control_key = flags.take(options.api_key_env), flags.take(options.control_key_env)
    descriptors.raise_limit()
    try:
        from smg.launch_router import launch_router, parse_router_args
    except ImportError as error:
        flags.error(f"smg cannot be imported ({error}): {INSTALL}")
    args = parse_router_args(options.smg)
    args.api_key = api_key or None
    if control_key:
        args.control_plane_api_keys = [("remuda", "remuda", control_key, "admin")]
    # Removed members leave the list at once; requests in flight there run on. There is no flag for it.
    args.drain_settle_secs = 0
    local = LOOPBACK if args.host == "0.0.0.0" else args.host  # noqa: S104 - compared, not bound
    netloc = f"[{local}]" if ":" in local else local
    base_url = f"http://{netloc}:{args.port}"
    # Where smg itself listens, as the host asks for both from where it is: on a cluster, from another machine.
    args.prometheus_host, args.prometheus_port = args.host, free_port(args.host)
    if options.model:
        metrics = f"http://{netloc}:{args.prometheus_port}/metrics"
        open_waiting_room(base_url, options.model, control_key or api_key, metrics)
    launch_router(args)
    sys.exit(0)


if __name__ == "__main__":
    main()

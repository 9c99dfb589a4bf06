"""A model that answered and is «not found» for a while is the endpoint's fault, not the rows'."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from remuda.base.errors import Rejected
from remuda.batch.driver import run_job
from remuda.batch.request import JobRequest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS = 40


class Forgetful(BaseHTTPRequestHandler):
    """Answers 404 to the requests whose numbers are in `away`."""

    protocol_version = "HTTP/1.1"
    away: range = range(0)
    asked = 0
    lock = threading.Lock()

    def do_GET(self) -> None:
        self._send(200, {"object": "list", "data": [{"id": "m", "object": "model"}]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        with self.lock:
            number = type(self).asked
            type(self).asked += 1
        if number in self.away:
            self._send(404, {"error": {"message": "No worker available for model 'm'", "code": "model_not_found"}})
        else:
            self._send(200, {"choices": [{"text": "yes", "finish_reason": "stop"}], "usage": {}})

    def _send(self, status: int, answer: dict[str, Any]) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Forgetful.asked = 0
    with ThreadingHTTPServer(("127.0.0.1", 0), Forgetful) as one:
        thread = threading.Thread(target=one.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{one.server_port}"
        one.shutdown()
        thread.join()


def request(server: str, folder: Path) -> JobRequest:
    pq.write_table(pa.table({"prompt": [f"row {number}" for number in range(ROWS)]}), folder / "in.parquet")
    return JobRequest(
        endpoint=server, model="m", input=str(folder / "in.parquet"), output=str(folder / "out.parquet"),
        job="completion", max_concurrency=4,
    )  # fmt: skip


def test_rows_wait_for_a_model_that_was_there(server: str, tmp_path: Path) -> None:
    Forgetful.away = range(10, 18)
    summary = run_job(request(server, tmp_path))
    assert (summary.rows, summary.failed) == (ROWS, 0)


def test_a_model_that_was_never_there_ends_the_job(server: str, tmp_path: Path) -> None:
    Forgetful.away = range(100_000)
    with pytest.raises(Rejected, match="No worker available"):
        run_job(request(server, tmp_path))
    assert Forgetful.asked < 10
